// The checks of every front: fronts call these and compose no sentence of their own.
#include "core/check.h"

#include <limits>
#include <stdexcept>

#include "core/message.h"

namespace tilekernels {
namespace {

std::string count_range(int64_t low, int64_t high) {
  return "must be in " + std::to_string(low) + ".." + std::to_string(high);
}

}  // namespace

int64_t row_stride(const TensorSpec& spec) {
  return spec.size(0) > 1 ? spec.stride(0) : spec.size(1);
}

void Check::fail(std::string_view argument, std::string_view rule, std::string_view value) const {
  throw std::invalid_argument(message(op_, argument, rule, value));
}

const Check& Check::rank(std::string_view argument, const TensorSpec& spec, int rank) const {
  if (spec.rank() != rank) {
    fail(argument, "must have " + std::to_string(rank) + " dimensions", to_string(spec.shape));
  }
  int64_t bytes = 16;  // the widest output element, so that no size computed later overflows
  for (int64_t extent : spec.shape) {
    if (extent < 0) fail(argument, "must have no negative extent", to_string(spec.shape));
    int64_t padded;
    if (__builtin_add_overflow(extent, 1024, &padded) ||
        __builtin_mul_overflow(bytes, padded, &bytes)) {
      fail(argument, "must have fewer than 2^63 bytes", to_string(spec.shape));
    }
  }
  return *this;
}

const Check& Check::dtype(std::string_view argument, const TensorSpec& spec,
                          std::initializer_list<DType> allowed) const {
  for (DType dtype : allowed) {
    if (spec.dtype == dtype) return *this;
  }
  std::string rule = "must have dtype ";
  size_t i = 0;
  for (DType dtype : allowed) {
    if (i > 0) rule += i + 1 == allowed.size() ? " or " : ", ";
    rule += name(dtype);
    ++i;
  }
  fail(argument, rule, name(spec.dtype));
}

const Check& Check::contiguous(std::string_view argument, const TensorSpec& spec) const {
  if (!spec.is_contiguous()) {
    fail(argument, "must be contiguous",
         "strides " + to_string(spec.strides) + " for shape " + to_string(spec.shape));
  }
  return *this;
}

const Check& Check::rows(std::string_view argument, const TensorSpec& spec) const {
  rank(argument, spec, 2);
  if (spec.numel() == 0) return *this;
  if (spec.size(1) != 1 && spec.stride(1) != 1) {
    fail(argument, "must have column stride 1", "strides " + to_string(spec.strides));
  }
  if (spec.size(0) != 1 && spec.stride(0) < spec.size(1)) {
    fail(argument, "must have a row stride of at least " + std::to_string(spec.size(1)),
         "strides " + to_string(spec.strides));
  }
  return span(argument, spec, spec.size(0), row_stride(spec));
}

const Check& Check::span(std::string_view argument, const TensorSpec& spec, int64_t count,
                         int64_t stride) const {
  // 16 bytes: more than any element, so that no byte count computed later overflows.
  int64_t elements;
  if (__builtin_mul_overflow(count, stride, &elements) ||
      elements > std::numeric_limits<int64_t>::max() / 16) {
    fail(argument, "must span fewer than 2^63 bytes",
         "strides " + to_string(spec.strides) + " for shape " + to_string(spec.shape));
  }
  return *this;
}

const Check& Check::shape(std::string_view argument, const TensorSpec& spec,
                          const Dims& expected) const {
  if (!(spec.shape == expected)) {
    fail(argument, "must have shape " + to_string(expected), to_string(spec.shape));
  }
  return *this;
}

const Check& Check::range(std::string_view argument, int64_t value, int64_t low,
                          int64_t high) const {
  if (value < low || value > high) fail(argument, count_range(low, high), std::to_string(value));
  return *this;
}

const Check& Check::multiple(std::string_view argument, int64_t value, int64_t of) const {
  if (value % of != 0) {
    fail(argument, "must be a multiple of " + std::to_string(of), std::to_string(value));
  }
  return *this;
}

const Check& Check::one_of(std::string_view argument, int64_t value,
                           std::initializer_list<int64_t> allowed) const {
  for (int64_t candidate : allowed) {
    if (value == candidate) return *this;
  }
  std::string rule = "must be ";
  size_t i = 0;
  for (int64_t candidate : allowed) {
    if (i > 0) rule += i + 1 == allowed.size() ? " or " : ", ";
    rule += std::to_string(candidate);
    ++i;
  }
  fail(argument, rule, std::to_string(value));
}

const Check& Check::same_device(std::string_view argument, const TensorSpec& spec,
                                std::string_view as_argument, const TensorSpec& as) const {
  if (spec.device != as.device) {
    fail(argument,
         "must be on " + to_string(as.device) + ", where " + std::string(as_argument) + " is",
         to_string(spec.device));
  }
  return *this;
}

const Check& Check::matches(std::string_view argument, const TensorView& view,
                            const TensorSpec& expected) const {
  if (!tilekernels::matches(view, expected)) {
    fail(argument, "must be " + to_string(expected), to_string(view));
  }
  return memory(argument, view);
}

const Check& Check::memory(std::string_view argument, const TensorView& view) const {
  if (view.numel() == 0) return *this;
  if (view.data == nullptr) fail(argument, "must have memory", "a null pointer");
  const int64_t size = size_bytes(view.dtype);
  const auto address = reinterpret_cast<uintptr_t>(view.data);
  if (address % static_cast<uintptr_t>(size) != 0) {
    fail(argument, "must be aligned to " + std::to_string(size) + " bytes",
         "an address with remainder " + std::to_string(address % static_cast<uintptr_t>(size)));
  }
  return *this;
}

const Check& Check::disjoint(std::string_view argument, const TensorView& view,
                             std::string_view other_argument, const TensorView& other) const {
  if (view.device != other.device) return *this;
  const auto begin = reinterpret_cast<uintptr_t>(view.data);
  const auto other_begin = reinterpret_cast<uintptr_t>(other.data);
  const auto end = begin + static_cast<uintptr_t>(view.storage_bytes());
  const auto other_end = other_begin + static_cast<uintptr_t>(other.span_bytes());
  if (begin < other_end && other_begin < end) {
    fail(argument, "must not overlap " + std::string(other_argument), "shared memory");
  }
  return *this;
}

const Check& Check::require(bool holds, std::string_view argument, std::string_view rule,
                            std::string_view value) const {
  if (!holds) fail(argument, rule, value);
  return *this;
}

const Check& Check::require(bool holds, std::string_view argument, std::string_view rule,
                            int64_t value) const {
  if (!holds) fail(argument, rule, std::to_string(value));
  return *this;
}

}  // namespace tilekernels
