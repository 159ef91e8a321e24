// Takes cases to a device's compiler without the device.
#include "cases/compile.h"

namespace tilekernels::cases {
namespace {

// Tensors far apart, `offset` elements off an aligned place.
Views views_of(const Specs& specs, int64_t first, int64_t offset) {
  Views views;
  for (const TensorSpec& spec : specs) {
    const int64_t address = (first + static_cast<int64_t>(views.size())) << 40;
    views.emplace_back(reinterpret_cast<void*>(address + offset * size_bytes(spec.dtype)), spec);
  }
  return views;
}

}  // namespace

void compile_case(const Case& test) {
  Specs inputs;
  for (const Input& input : test.inputs) {
    inputs.push_back(input.spec);
    inputs.back().device = {DeviceType::kCuda, 0};
  }
  const Specs outputs = test.spec(inputs);
  for (const int64_t offset : {0, 1}) {
    test.out(views_of(outputs, 100, offset), views_of(inputs, 1, offset), Call{});
  }
}

}  // namespace tilekernels::cases
