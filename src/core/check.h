// The checks of every front: fronts call these and compose no sentence of their own.
#pragma once

#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>

#include "tilekernels/tensor.h"

namespace tilekernels {

/// Elements from one row of a matrix to the next; of a single row, whose stride means nothing, its
/// length.
int64_t row_stride(const TensorSpec& spec);

/// An optional tensor that is given, or null.
template <class T>
const T* or_null(const std::optional<T>& tensor) {
  return tensor ? &*tensor : nullptr;
}

/// Where bytes of a tensor begin and end.
struct ByteRange {
  Device device{};
  uintptr_t begin = 0;
  uintptr_t end = 0;
};
/// From the first byte of an input to the end of its last element.
ByteRange bytes_read(const TensorView& view);
/// The same of an output, with the padding that belongs to it.
ByteRange bytes_written(const TensorView& view);

/// Collects an op's checks: each throws std::invalid_argument "[op] argument rule, got value", or
/// returns the same object. Cheapest first, before any allocation. What a call asks every time
/// stands here, to be inlined; what it says when the answer is no stands in the .cpp.
class Check {
 public:
  explicit constexpr Check(std::string_view op) : op_(op) {}

  const Check& rank(std::string_view argument, const TensorSpec& spec, int rank) const {
    if (spec.rank() != rank) fail_rank(argument, spec, rank);
    return extents(argument, spec.shape);
  }
  /// None is negative, and the bytes of such a tensor are fewer than 2^63.
  const Check& extents(std::string_view argument, const Dims& shape) const;
  const Check& dtype(std::string_view argument, DType value,
                     std::initializer_list<DType> allowed) const {
    for (DType dtype : allowed) {
      if (value == dtype) return *this;
    }
    fail_dtype(argument, value, allowed);
  }
  const Check& dtype(std::string_view argument, const TensorSpec& spec,
                     std::initializer_list<DType> allowed) const {
    return dtype(argument, spec.dtype, allowed);
  }
  const Check& contiguous(std::string_view argument, const TensorSpec& spec) const;
  /// Rank 2, columns contiguous, rows any distance >= their length apart.
  const Check& rows(std::string_view argument, const TensorSpec& spec) const;
  /// `count` rows or columns, `stride` elements apart, span a number of bytes that int64 holds.
  const Check& span(std::string_view argument, const TensorSpec& spec, int64_t count,
                    int64_t stride) const;
  const Check& shape(std::string_view argument, const TensorSpec& spec,
                     const Dims& expected) const {
    if (!(spec.shape == expected)) fail_shape(argument, spec, expected);
    return *this;
  }
  const Check& range(std::string_view argument, int64_t value, int64_t low, int64_t high) const {
    if (value < low || value > high) fail_range(argument, value, low, high);
    return *this;
  }
  const Check& multiple(std::string_view argument, int64_t value, int64_t of) const {
    if (value % of != 0) fail_multiple(argument, value, of);
    return *this;
  }
  const Check& one_of(std::string_view argument, int64_t value,
                      std::initializer_list<int64_t> allowed) const {
    for (int64_t candidate : allowed) {
      if (value == candidate) return *this;
    }
    fail_one_of(argument, value, allowed);
  }
  const Check& same_device(std::string_view argument, const TensorSpec& spec,
                           std::string_view as_argument, const TensorSpec& as) const {
    if (spec.device != as.device) fail_same_device(argument, spec, as_argument, as);
    return *this;
  }
  /// The tensor has exactly the spec that `_spec` returned, and usable memory.
  const Check& matches(std::string_view argument, const TensorView& view,
                       const TensorSpec& expected) const;
  /// Memory is there (unless the tensor is empty) and aligned to its element.
  const Check& memory(std::string_view argument, const TensorView& view) const {
    if (view.is_empty()) return *this;
    const auto address = reinterpret_cast<uintptr_t>(view.data);
    const auto size = static_cast<uintptr_t>(size_bytes(view.dtype));  // a power of two
    if (address == 0 || (address & (size - 1)) != 0) fail_memory(argument, view);
    return *this;
  }
  /// An output shares no byte with an input or another output.
  const Check& disjoint(std::string_view argument, const ByteRange& written,
                        std::string_view other_argument, const ByteRange& other) const {
    if (written.device == other.device && written.begin < other.end && other.begin < written.end) {
      fail_disjoint(argument, other_argument);
    }
    return *this;
  }
  const Check& finite(std::string_view argument, float value) const {
    if (!(value - value == 0.0f)) fail_finite(argument, value);
    return *this;
  }
  /// Both of two optional arguments, or neither.
  const Check& together(std::string_view argument, bool is_given, std::string_view other_argument,
                        bool other_is_given) const {
    if (is_given != other_is_given) fail_together(argument, is_given, other_argument);
    return *this;
  }
  /// Any other rule: throws when `holds` is false.
  const Check& require(bool holds, std::string_view argument, std::string_view rule,
                       std::string_view value) const {
    if (!holds) fail(argument, rule, value);
    return *this;
  }
  const Check& require(bool holds, std::string_view argument, std::string_view rule,
                       int64_t value) const {
    if (!holds) fail(argument, rule, value);
    return *this;
  }

  /// Throws. For a rule whose words cost more than the question whether it holds.
  [[noreturn]] void fail(std::string_view argument, std::string_view rule,
                         std::string_view value) const;
  [[noreturn]] void fail(std::string_view argument, std::string_view rule, int64_t value) const;

  /// Throws Unsupported: the call is right, and there is no kernel for it.
  [[noreturn]] void unsupported(std::string_view argument, std::string_view rule,
                                std::string_view value) const;
  [[noreturn]] void unsupported(std::string_view argument, std::string_view rule,
                                int64_t value) const;

  std::string_view op() const { return op_; }

 private:
  [[noreturn]] void fail_rank(std::string_view argument, const TensorSpec& spec, int rank) const;
  [[noreturn]] void fail_dtype(std::string_view argument, DType value,
                               std::initializer_list<DType> allowed) const;
  [[noreturn]] void fail_shape(std::string_view argument, const TensorSpec& spec,
                               const Dims& expected) const;
  [[noreturn]] void fail_range(std::string_view argument, int64_t value, int64_t low,
                               int64_t high) const;
  [[noreturn]] void fail_multiple(std::string_view argument, int64_t value, int64_t of) const;
  [[noreturn]] void fail_one_of(std::string_view argument, int64_t value,
                                std::initializer_list<int64_t> allowed) const;
  [[noreturn]] void fail_same_device(std::string_view argument, const TensorSpec& spec,
                                     std::string_view as_argument, const TensorSpec& as) const;
  [[noreturn]] void fail_memory(std::string_view argument, const TensorView& view) const;
  [[noreturn]] void fail_finite(std::string_view argument, float value) const;
  [[noreturn]] void fail_together(std::string_view argument, bool is_given,
                                  std::string_view other_argument) const;
  [[noreturn]] void fail_disjoint(std::string_view argument, std::string_view other_argument) const;

  std::string_view op_;
};

}  // namespace tilekernels
