// Routes two tokens, quantizes a matrix in groups of 128 columns, and casts it back.
#include <tilekernels/tilekernels.h>

#include <cstdint>
#include <cstdio>
#include <vector>

namespace tk = tilekernels;

int main() {
  std::vector<float> scores = {0.1f, 0.7f, 0.2f, 0.7f,   // token 0: ties go to the lower expert
                               0.9f, 0.0f, 0.8f, 0.3f};  // token 1
  const tk::Tensor topk_idx =
      tk::topk_gate(tk::TensorView(scores.data(), {{2, 4}, tk::DType::kF32}), 2);
  const auto* idx = static_cast<const int64_t*>(topk_idx.data());
  std::printf("experts: %d %d | %d %d\n", int(idx[0]), int(idx[1]), int(idx[2]), int(idx[3]));

  std::vector<float> x(4 * 256, 3.0f);
  const tk::TensorView rows(x.data(), {{4, 256}, tk::DType::kF32});
  const tk::QuantTensor quantized = tk::per_token_cast(rows, tk::DType::kE4M3, 128);
  const tk::Tensor back = tk::cast_back(quantized, {.block = {1, 128}}, tk::DType::kF32);
  std::printf("3 -> code 0x%02X -> %g\n", *static_cast<const uint8_t*>(quantized.data.data()),
              static_cast<const float*>(back.data())[0]);
  return 0;
}
