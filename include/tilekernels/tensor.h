// Tensors: a small value type over somebody's memory, and one that owns its memory.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>

#include "tilekernels/device.h"

namespace tilekernels {

/// Element types. `kE2M1x2` holds two FP4 codes a byte, the even element in the low nibble; its
/// shapes and strides count bytes.
enum class DType : int32_t {
  kF32,
  kF16,
  kBF16,
  kE4M3,
  kE5M2,
  kE8M0,
  kE2M1x2,
  kI8,
  kI16,
  kI32,
  kI64,
  kU8,
  kU32,
  kBool,
};
inline constexpr int kNumDTypes = 14;

/// Throws std::invalid_argument for a number that no `DType` has.
[[noreturn]] void refuse_dtype(DType dtype);

/// Bytes of one element (of one byte pair for `kE2M1x2`).
inline int64_t size_bytes(DType dtype) {
  constexpr int8_t kSizes[kNumDTypes] = {4, 2, 2, 1, 1, 1, 1, 1, 2, 4, 8, 1, 4, 1};
  const auto i = static_cast<size_t>(dtype);
  if (i >= kNumDTypes) refuse_dtype(dtype);
  return kSizes[i];
}

/// The field's short name: "f32", "bf16", "e4m3", "e2m1", "i64", …
std::string_view name(DType dtype);

inline constexpr int kMaxRank = 8;

/// Up to `kMaxRank` extents or strides, without heap memory.
class Dims {
 public:
  Dims() = default;
  /// Errors: std::invalid_argument when there are more than `kMaxRank` values.
  Dims(std::initializer_list<int64_t> values) : Dims(values.begin(), values.size()) {}
  Dims(const int64_t* values, size_t count) : size_(static_cast<int>(count)) {
    if (count > kMaxRank) refuse_rank(static_cast<int64_t>(count));
    for (size_t i = 0; i < count; ++i) values_[i] = values[i];
  }

  int size() const { return size_; }
  int64_t operator[](int i) const { return values_[static_cast<size_t>(i)]; }
  int64_t& operator[](int i) { return values_[static_cast<size_t>(i)]; }
  const int64_t* begin() const { return values_.data(); }
  const int64_t* end() const { return values_.data() + size_; }
  void push_back(int64_t value);
  friend bool operator==(const Dims& a, const Dims& b) {
    if (a.size_ != b.size_) return false;
    for (int i = 0; i < a.size_; ++i) {
      if (a[i] != b[i]) return false;
    }
    return true;
  }

 private:
  [[noreturn]] static void refuse_rank(int64_t rank);

  std::array<int64_t, kMaxRank> values_{};
  int size_ = 0;
};

/// "(4096, 7168)".
std::string to_string(const Dims& dims);

/// Everything about a tensor but its memory. Strides count elements.
struct TensorSpec {
  Dims shape;
  Dims strides;
  DType dtype = DType::kF32;
  Device device;

  TensorSpec() = default;
  TensorSpec(const Dims& shape_in, const Dims& strides_in, DType dtype_in, Device device_in = {})
      : shape(shape_in), strides(strides_in), dtype(dtype_in), device(device_in) {}
  /// A row-major contiguous tensor.
  TensorSpec(const Dims& shape_in, DType dtype_in, Device device_in = {});

  int rank() const { return shape.size(); }
  int64_t size(int dim) const { return shape[dim]; }
  int64_t stride(int dim) const { return strides[dim]; }
  int64_t numel() const;
  /// Whether `numel()` is 0.
  bool is_empty() const {
    for (int64_t extent : shape) {
      if (extent == 0) return true;
    }
    return false;
  }
  /// Row-major contiguous; the strides of dimensions of size 1 do not matter.
  bool is_contiguous() const;
  /// Bytes from the first element to the end of the last one, 0 when empty.
  int64_t span_bytes() const;
  /// Bytes that an output of this spec occupies: `span_bytes()` and the padding behind the last
  /// row or column of a padded pitch.
  int64_t storage_bytes() const;
};

/// Same dtype, device and shape, and the same strides wherever a stride means something.
bool matches(const TensorSpec& a, const TensorSpec& b);

/// "f32 (4096, 256) strides (256, 1) on cpu".
std::string to_string(const TensorSpec& spec);

/// A tensor in memory that somebody else owns. `data` points to element 0.
struct TensorView : TensorSpec {
  void* data = nullptr;

  TensorView() = default;
  TensorView(void* data_in, const TensorSpec& spec) : TensorSpec(spec), data(data_in) {}
};

struct Stream;

/// Where allocating forms take memory. Called by any thread; `deleter` of the returned pointer
/// frees. Blocks of host memory are aligned to 64 bytes.
class Allocator {
 public:
  virtual ~Allocator() = default;
  /// Errors: std::bad_alloc or BackendError when there is no memory.
  virtual std::shared_ptr<void> allocate(int64_t size_bytes, Device device, Stream stream) = 0;
};

/// The library's allocator: aligned host memory, and CUDA memory from a stream-ordered pool, which
/// is free again on the same stream when its last owner lets go; the stream must still be there.
Allocator& default_allocator();

/// A tensor that owns, or shares, its memory. Copies share.
class Tensor {
 public:
  Tensor() = default;
  Tensor(const TensorView& view, std::shared_ptr<void> storage)
      : view_(view), storage_(std::move(storage)) {}
  /// Memory of `default_allocator()`, not initialised.
  explicit Tensor(const TensorSpec& spec);

  const TensorView& view() const { return view_; }
  operator const TensorView&() const { return view_; }  // NOLINT: a Tensor is a TensorView
  void* data() const { return view_.data; }
  const TensorSpec& spec() const { return view_; }

 private:
  TensorView view_;
  std::shared_ptr<void> storage_;
};

/// Copies the storage of one tensor to another of the same shape, dtype and strides, between host
/// and CUDA memory in any direction, gaps between rows included; done when it returns.
/// Errors: std::invalid_argument for tensors that differ; BackendError.
void copy(const TensorView& to, const TensorView& from);
void copy(const TensorView& to, const TensorView& from, Stream stream);

}  // namespace tilekernels
