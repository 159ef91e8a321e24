// What a user of the installed package writes first.
#include <tilekernels/tilekernels.h>

#include <cstdint>
#include <vector>

int main() {
  std::vector<float> scores = {5, 1, 5, 5};
  const tilekernels::TensorView view(scores.data(), {{1, 4}, tilekernels::DType::kF32});
  const tilekernels::Tensor ids = tilekernels::topk_gate(view, 2);
  const auto* id = static_cast<const int64_t*>(ids.data());
  if (id[0] != 0 || id[1] != 2) return 1;

  std::vector<float> x(256, 1.0f);
  const tilekernels::TensorView rows(x.data(), {{2, 128}, tilekernels::DType::kF32});
  const tilekernels::QuantTensor quantized =
      tilekernels::per_token_cast(rows, tilekernels::DType::kE4M3, 128);
  const tilekernels::Tensor back =
      tilekernels::cast_back(quantized, {.block = {1, 128}}, tilekernels::DType::kF32);
  return static_cast<const float*>(back.data())[255] == 1.0f ? 0 : 1;
}
