// The checks of every front: fronts call these and compose no sentence of their own.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>

#include "tilekernels/tensor.h"

namespace tilekernels {

/// Elements from one row of a matrix to the next; of a single row, whose stride means nothing, its
/// length.
int64_t row_stride(const TensorSpec& spec);

/// Collects an op's checks: each throws std::invalid_argument "[op] argument rule, got value", or
/// returns the same object. Cheapest first, before any allocation.
class Check {
 public:
  explicit constexpr Check(std::string_view op) : op_(op) {}

  const Check& rank(std::string_view argument, const TensorSpec& spec, int rank) const;
  const Check& dtype(std::string_view argument, const TensorSpec& spec,
                     std::initializer_list<DType> allowed) const;
  const Check& contiguous(std::string_view argument, const TensorSpec& spec) const;
  /// Rank 2, columns contiguous, rows any distance >= their length apart.
  const Check& rows(std::string_view argument, const TensorSpec& spec) const;
  /// `count` rows or columns, `stride` elements apart, span a number of bytes that int64 holds.
  const Check& span(std::string_view argument, const TensorSpec& spec, int64_t count,
                    int64_t stride) const;
  const Check& shape(std::string_view argument, const TensorSpec& spec, const Dims& expected) const;
  const Check& range(std::string_view argument, int64_t value, int64_t low, int64_t high) const;
  const Check& multiple(std::string_view argument, int64_t value, int64_t of) const;
  const Check& one_of(std::string_view argument, int64_t value,
                      std::initializer_list<int64_t> allowed) const;
  const Check& same_device(std::string_view argument, const TensorSpec& spec,
                           std::string_view as_argument, const TensorSpec& as) const;
  /// The tensor has exactly the spec that `_spec` returned, and usable memory.
  const Check& matches(std::string_view argument, const TensorView& view,
                       const TensorSpec& expected) const;
  /// Memory is there (unless the tensor is empty) and aligned to its element.
  const Check& memory(std::string_view argument, const TensorView& view) const;
  /// An output shares no byte with an input or another output.
  const Check& disjoint(std::string_view argument, const TensorView& view,
                        std::string_view other_argument, const TensorView& other) const;
  /// Any other rule: throws when `holds` is false.
  const Check& require(bool holds, std::string_view argument, std::string_view rule,
                       std::string_view value) const;
  const Check& require(bool holds, std::string_view argument, std::string_view rule,
                       int64_t value) const;

  /// Throws. For a rule whose words cost more than the question whether it holds.
  [[noreturn]] void fail(std::string_view argument, std::string_view rule,
                         std::string_view value) const;

  std::string_view op() const { return op_; }

 private:
  std::string_view op_;
};

}  // namespace tilekernels
