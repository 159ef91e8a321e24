// Routings for the cases of the fused ops, and the positions that follow from them.
#pragma once

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "cases/case.h"

namespace tilekernels::cases {

enum class Routing {
  kRandom,     ///< any expert, one entry in eight -1
  kOneExpert,  ///< all to the last one
  kNone,       ///< all -1
  kBad,        ///< random, with indices that name no expert from row 2 on
};

inline std::string routing_text(Routing routing) {
  constexpr const char* kTexts[] = {"", ",routing=one", ",routing=none", ",routing=bad"};
  return kTexts[static_cast<size_t>(routing)];
}

/// The indices of a routing, row by row.
inline std::vector<int64_t> routing_indices(int64_t tokens, int topk, int experts,
                                            Routing routing) {
  std::vector<int64_t> indices(static_cast<size_t>(tokens * topk));
  uint64_t state = 0x9E3779B97F4A7C15u;
  for (size_t i = 0; i < indices.size(); ++i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    const uint64_t bits = state >> 33;
    int64_t& index = indices[i];
    switch (routing) {
      case Routing::kOneExpert:
        index = experts - 1;
        break;
      case Routing::kNone:
        index = -1;
        break;
      default:
        index =
            bits % 8 == 0 ? -1 : static_cast<int64_t>(bits / 8 % static_cast<uint64_t>(experts));
    }
    if (routing == Routing::kBad && i >= static_cast<size_t>(2 * topk) && i % 5 == 4) {
      const int64_t bad[] = {-2, experts, INT64_MIN, INT64_MAX, int64_t{1} << 32};
      index = bad[i / 5 % 5];
    }
  }
  return indices;
}

template <class T>
std::vector<uint8_t> given_bytes(const std::vector<T>& values) {
  std::vector<uint8_t> bytes(values.size() * sizeof(T));
  if (!bytes.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

/// The input topk_idx of a routing.
inline Input routed(const std::string& name, int64_t tokens, int topk, int experts,
                    Routing routing) {
  return {name,
          {{tokens, topk}, DType::kI64},
          Fill::kGiven,
          given_bytes(routing_indices(tokens, topk, experts, routing))};
}

/// What an expansion needs of a mapping.
struct Positions {
  std::vector<int32_t> token_topk_to_pos;
  std::vector<int32_t> pos_to_expert;
};

/// The positions of a random routing: segments in the order of experts, aligned, then `tail` more.
inline Positions routing_positions(int64_t tokens, int topk, int experts, int64_t alignment,
                                   int64_t tail) {
  const std::vector<int64_t> indices = routing_indices(tokens, topk, experts, Routing::kRandom);
  Positions positions;
  positions.token_topk_to_pos.assign(indices.size(), -1);
  std::vector<std::vector<size_t>> entries(static_cast<size_t>(experts));
  for (size_t i = 0; i < indices.size(); ++i) {
    if (indices[i] >= 0) entries[static_cast<size_t>(indices[i])].push_back(i);
  }
  std::vector<int32_t>& of = positions.pos_to_expert;
  for (size_t expert = 0; expert < entries.size(); ++expert) {
    for (size_t i : entries[expert]) {
      positions.token_topk_to_pos[i] = static_cast<int32_t>(of.size());
      of.push_back(static_cast<int32_t>(expert));
    }
    while (static_cast<int64_t>(of.size()) % alignment != 0) of.push_back(-1);
  }
  of.insert(of.end(), static_cast<size_t>(tail), -1);
  return positions;
}

}  // namespace tilekernels::cases
