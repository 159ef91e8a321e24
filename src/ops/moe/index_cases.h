// Indices as inputs of cases.
#pragma once

#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "cases/case.h"

namespace tilekernels::cases {

/// (tokens, topk) indices in 0..bound - 1, one in eight -1; few far more often than others. Then
/// `planted` (place, index) stands where it says.
inline Input index_input(const std::string& name, int64_t tokens, int64_t topk, int64_t bound,
                         const std::vector<std::pair<int64_t, int64_t>>& planted = {},
                         DType dtype = DType::kI64) {
  std::vector<int64_t> indices(static_cast<size_t>(tokens * topk));
  uint64_t state = 0x9E3779B97F4A7C15u + static_cast<uint64_t>(bound);
  for (int64_t& index : indices) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    const auto random = static_cast<int64_t>(state >> 33);
    const int64_t skewed = random % 3 == 0 ? random / 16 % (bound / 16 + 1) : random / 16;
    index = random % 8 == 0 ? -1 : skewed % bound;
  }
  for (const auto& [place, index] : planted) indices[static_cast<size_t>(place)] = index;
  Input input{name, {{tokens, topk}, dtype}, Fill::kGiven, {}};
  const auto size = static_cast<size_t>(size_bytes(dtype));
  input.given.resize(indices.size() * size);
  for (size_t i = 0; i < indices.size(); ++i) {
    std::memcpy(input.given.data() + i * size, &indices[i], size);  // the low bytes
  }
  return input;
}

}  // namespace tilekernels::cases
