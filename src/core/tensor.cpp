// Tensors, dtypes and devices: their sizes, names and printed forms.
#include "tilekernels/tensor.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <new>
#include <stdexcept>

#include "core/message.h"
#include "runtime/ascend/runtime.h"
#include "runtime/cuda/runtime.h"
#include "tilekernels/error.h"
#include "tilekernels/stream.h"

namespace tilekernels {
namespace {

constexpr std::string_view kDTypeNames[kNumDTypes] = {
    "f32", "f16", "bf16", "e4m3", "e5m2", "e8m0", "e2m1",
    "i8",  "i16", "i32",  "i64",  "u8",   "u32",  "bool",
};

// a · b, or the largest number when that is more: such a tensor is refused by the first check, or
// it is a stride that means nothing.
int64_t product(int64_t a, int64_t b) {
  int64_t result;
  return __builtin_mul_overflow(a, b, &result) ? std::numeric_limits<int64_t>::max() : result;
}

constexpr std::string_view kDeviceNames[] = {"cpu", "cuda", "ascend"};
constexpr std::string_view kBackendNames[kNumBackends] = {"reference", "cpu", "cuda", "ascend"};
constexpr std::align_val_t kHostAlignment{64};

class DefaultAllocator : public Allocator {
 public:
  std::shared_ptr<void> allocate(int64_t size_bytes, Device device, Stream stream) override {
    if (size_bytes < 0) {
      throw std::invalid_argument(message("allocate", "size_bytes", "must be >= 0", size_bytes));
    }
    if (device.type == DeviceType::kCuda) return cuda::allocate(size_bytes, device.index, stream);
    if (device.type == DeviceType::kAscend) {
      return ascend::allocate(size_bytes, device.index, stream);
    }
    void* block = ::operator new(static_cast<size_t>(size_bytes), kHostAlignment);
    return {block, [](void* p) { ::operator delete(p, kHostAlignment); }};
  }
};

}  // namespace

void refuse_dtype(DType dtype) {
  throw std::invalid_argument(message("tensor", "dtype", "must be a DType", int64_t(dtype)));
}

std::string_view name(DType dtype) {
  const auto i = static_cast<size_t>(dtype);
  if (i >= kNumDTypes) refuse_dtype(dtype);
  return kDTypeNames[i];
}

void Dims::refuse_rank(int64_t rank) {
  throw std::invalid_argument(message("tensor", "rank", "must be at most 8", rank));
}

void Dims::push_back(int64_t value) {
  if (size_ == kMaxRank) refuse_rank(size_ + 1);
  values_[static_cast<size_t>(size_++)] = value;
}

TensorSpec::TensorSpec(const Dims& shape_in, DType dtype_in, Device device_in)
    : shape(shape_in), strides(shape_in), dtype(dtype_in), device(device_in) {
  int64_t stride = 1;
  for (int i = shape.size() - 1; i >= 0; --i) {
    strides[i] = stride;
    stride = product(stride, std::max<int64_t>(shape[i], 1));
  }
}

int64_t TensorSpec::numel() const {
  int64_t numel = 1;
  for (int64_t extent : shape) {
    if (extent == 0) return 0;
    numel = product(numel, extent);
  }
  return numel;
}

bool TensorSpec::is_contiguous() const {
  if (is_empty()) return true;
  int64_t stride = 1;
  for (int i = rank() - 1; i >= 0; --i) {
    if (shape[i] != 1 && strides[i] != stride) return false;
    stride = product(stride, shape[i]);
  }
  return true;
}

int64_t TensorSpec::span_bytes() const {
  if (is_empty()) return 0;  // the strides of an empty tensor may be anything
  int64_t last = 0;
  for (int i = 0; i < rank(); ++i) last += (shape[i] - 1) * strides[i];
  return (last + 1) * size_bytes(dtype);
}

int64_t TensorSpec::storage_bytes() const {
  if (is_empty()) return 0;
  int64_t elements = 1;
  for (int i = 0; i < rank(); ++i) elements = std::max(elements, product(shape[i], strides[i]));
  return product(elements, size_bytes(dtype));
}

bool matches(const TensorSpec& a, const TensorSpec& b) {
  if (a.dtype != b.dtype || a.device != b.device || !(a.shape == b.shape)) return false;
  if (a.is_empty()) return true;
  for (int i = 0; i < a.rank(); ++i) {
    if (a.shape[i] != 1 && a.strides[i] != b.strides[i]) return false;
  }
  return true;
}

std::string to_string(const Dims& dims) {
  std::string text = "(";
  for (int i = 0; i < dims.size(); ++i) {
    if (i > 0) text += ", ";
    text += std::to_string(dims[i]);
  }
  return text + ")";
}

std::string to_string(const TensorSpec& spec) {
  std::string text(name(spec.dtype));
  text += " " + to_string(spec.shape);
  if (!spec.is_contiguous()) text += " strides " + to_string(spec.strides);
  return text + " on " + to_string(spec.device);
}

Tensor::Tensor(const TensorSpec& spec) { *this = Call{}.allocate(spec); }

Allocator& default_allocator() {
  static DefaultAllocator allocator;
  return allocator;
}

Tensor Call::allocate(const TensorSpec& spec) const { return allocate({spec}).front(); }

std::vector<Tensor> Call::allocate(std::initializer_list<TensorSpec> specs) const {
  if (specs.size() == 0) return {};
  constexpr int64_t kAlignment = 256;  // what every device's vector accesses can rely on
  int64_t total = 0;
  for (const TensorSpec& spec : specs) {
    total += (spec.storage_bytes() + kAlignment - 1) / kAlignment * kAlignment;
  }
  Allocator& source = allocator != nullptr ? *allocator : default_allocator();
  const std::shared_ptr<void> block = source.allocate(total, specs.begin()->device, stream);
  std::vector<Tensor> tensors;
  int64_t offset = 0;
  for (const TensorSpec& spec : specs) {
    tensors.emplace_back(TensorView(static_cast<char*>(block.get()) + offset, spec), block);
    offset += (spec.storage_bytes() + kAlignment - 1) / kAlignment * kAlignment;
  }
  return tensors;
}

void copy(const TensorView& to, const TensorView& from) { copy(to, from, Stream{}); }

void copy(const TensorView& to, const TensorView& from, Stream stream) {
  TensorSpec expected = from;
  expected.device = to.device;
  if (!matches(to, expected)) {
    throw std::invalid_argument(
        message("copy", "to", "must be " + to_string(expected), to_string(to)));
  }
  if (from.is_empty()) return;
  for (const TensorView* view : {&to, &from}) {
    const char* argument = view == &to ? "to" : "from";
    if (view->data == nullptr) {
      throw std::invalid_argument(message("copy", argument, "must have memory", "a null pointer"));
    }
  }
  const DeviceType types[] = {to.device.type, from.device.type};
  if (types[0] != types[1] && types[0] != DeviceType::kCpu && types[1] != DeviceType::kCpu) {
    throw std::invalid_argument(
        message("copy", "from", "must be on cpu or " + to_string(to.device), to_string(from)));
  }
  for (int64_t stride : from.strides) {
    if (stride < 0) {
      throw std::invalid_argument(
          message("copy", "from", "must have no negative stride", to_string(from.strides)));
    }
  }
  const int64_t size = from.span_bytes();
  const Device device = to.device.type == DeviceType::kCpu ? from.device : to.device;
  if (device.type == DeviceType::kCuda) {
    cuda::copy(to.data, from.data, size, device.index, stream);
  } else if (device.type == DeviceType::kAscend) {
    ascend::copy(to.data, to.device.type == DeviceType::kAscend, from.data,
                 from.device.type == DeviceType::kAscend, size, device.index, stream);
  } else {
    std::memmove(to.data, from.data, static_cast<size_t>(size));
  }
}

std::string to_string(const Device& device) {
  const auto i = static_cast<size_t>(device.type);
  if (i >= std::size(kDeviceNames)) return "device " + std::to_string(i);
  std::string text(kDeviceNames[i]);
  if (device.type != DeviceType::kCpu) text += ":" + std::to_string(device.index);
  return text;
}

std::string_view name(Backend backend) {
  const auto i = static_cast<size_t>(backend);
  if (i >= kNumBackends) {
    throw std::invalid_argument(message("backend", "value", "must be a Backend", int64_t(backend)));
  }
  return kBackendNames[i];
}

Backend backend_from_name(std::string_view text) {
  for (int i = 0; i < kNumBackends; ++i) {
    if (kBackendNames[i] == text) return static_cast<Backend>(i);
  }
  throw std::invalid_argument(
      message("backend", "name", "must be reference, cpu, cuda or ascend", text));
}

}  // namespace tilekernels
