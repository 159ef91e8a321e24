// The checks of every front: fronts call these and compose no sentence of their own.
#include "core/check.h"

#include <limits>
#include <stdexcept>

#include "core/message.h"
#include "tilekernels/error.h"

namespace tilekernels {
namespace {

ByteRange range_of(const TensorView& view, int64_t bytes) {
  const auto begin = reinterpret_cast<uintptr_t>(view.data);
  uintptr_t end;
  if (__builtin_add_overflow(begin, static_cast<uintptr_t>(bytes), &end)) {
    end = std::numeric_limits<uintptr_t>::max();
  }
  return {view.device, begin, end};
}

// "a, b or c".
template <class T, class Text>
std::string any_of(std::initializer_list<T> allowed, const Text& text) {
  std::string words;
  size_t i = 0;
  for (const T& value : allowed) {
    if (i > 0) words += i + 1 == allowed.size() ? " or " : ", ";
    words += text(value);
    ++i;
  }
  return words;
}

}  // namespace

ByteRange bytes_read(const TensorView& view) { return range_of(view, view.span_bytes()); }

ByteRange bytes_written(const TensorView& view) { return range_of(view, view.storage_bytes()); }

int64_t row_stride(const TensorSpec& spec) {
  return spec.size(0) > 1 ? spec.stride(0) : spec.size(1);
}

void Check::fail(std::string_view argument, std::string_view rule, std::string_view value) const {
  throw std::invalid_argument(message(op_, argument, rule, value));
}

void Check::fail(std::string_view argument, std::string_view rule, int64_t value) const {
  fail(argument, rule, std::to_string(value));
}

void Check::unsupported(std::string_view argument, std::string_view rule,
                        std::string_view value) const {
  throw Unsupported(message(op_, argument, rule, value));
}

void Check::unsupported(std::string_view argument, std::string_view rule, int64_t value) const {
  unsupported(argument, rule, std::to_string(value));
}

void Check::fail_rank(std::string_view argument, const TensorSpec& spec, int rank) const {
  fail(argument, "must have " + counted(rank, "dimension"), to_string(spec.shape));
}

const Check& Check::extents(std::string_view argument, const Dims& shape) const {
  int64_t bytes = 16;  // the widest output element, so that no size computed later overflows
  for (int64_t extent : shape) {
    if (extent < 0) fail(argument, "must have no negative extent", to_string(shape));
    int64_t padded;
    if (__builtin_add_overflow(extent, 1024, &padded) ||
        __builtin_mul_overflow(bytes, padded, &bytes)) {
      fail(argument, "must have fewer than 2^63 bytes", to_string(shape));
    }
  }
  return *this;
}

void Check::fail_dtype(std::string_view argument, DType value,
                       std::initializer_list<DType> allowed) const {
  fail(argument, "must have dtype " + any_of(allowed, [](DType dtype) { return name(dtype); }),
       name(value));
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
  if (spec.is_empty()) return *this;
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

void Check::fail_shape(std::string_view argument, const TensorSpec& spec,
                       const Dims& expected) const {
  fail(argument, "must have shape " + to_string(expected), to_string(spec.shape));
}

void Check::fail_range(std::string_view argument, int64_t value, int64_t low, int64_t high) const {
  fail(argument, "must be in " + std::to_string(low) + ".." + std::to_string(high), value);
}

void Check::fail_multiple(std::string_view argument, int64_t value, int64_t of) const {
  fail(argument, "must be a multiple of " + std::to_string(of), value);
}

void Check::fail_one_of(std::string_view argument, int64_t value,
                        std::initializer_list<int64_t> allowed) const {
  fail(argument, "must be " + any_of(allowed, [](int64_t one) { return std::to_string(one); }),
       value);
}

void Check::fail_same_device(std::string_view argument, const TensorSpec& spec,
                             std::string_view as_argument, const TensorSpec& as) const {
  fail(argument,
       "must be on " + to_string(as.device) + ", where " + std::string(as_argument) + " is",
       to_string(spec.device));
}

const Check& Check::matches(std::string_view argument, const TensorView& view,
                            const TensorSpec& expected) const {
  if (!tilekernels::matches(view, expected)) {
    fail(argument, "must be " + to_string(expected), to_string(view));
  }
  return memory(argument, view);
}

void Check::fail_memory(std::string_view argument, const TensorView& view) const {
  if (view.data == nullptr) fail(argument, "must have memory", "a null pointer");
  const int64_t size = size_bytes(view.dtype);
  const uintptr_t remainder = reinterpret_cast<uintptr_t>(view.data) % static_cast<uintptr_t>(size);
  fail(argument, "must be aligned to " + std::to_string(size) + " bytes",
       "an address with remainder " + std::to_string(remainder));
}

void Check::fail_finite(std::string_view argument, float value) const {
  fail(argument, "must be finite", value == value ? "Inf" : "NaN");
}

void Check::fail_together(std::string_view argument, bool is_given,
                          std::string_view other_argument) const {
  const std::string first(argument);
  const std::string second(other_argument);
  fail(first + " and " + second, "must be given together", (is_given ? first : second) + " alone");
}

void Check::fail_disjoint(std::string_view argument, std::string_view other_argument) const {
  fail(argument, "must not overlap " + std::string(other_argument), "shared memory");
}

}  // namespace tilekernels
