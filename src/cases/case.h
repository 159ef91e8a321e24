// A case is data: inputs, one call in its three forms, and what must come of it. Tests, verify and
// bench read the same cases.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tilekernels/stream.h"
#include "tilekernels/tensor.h"

namespace tilekernels::cases {

/// How the bytes of an input are made. Everything follows from the fill, the input's name and the
/// element's place, so a case has the same bytes on every machine.
enum class Fill {
  kNormal,  ///< standard normal
  kTies,    ///< few distinct values, rounding midpoints of e4m3 and e2m1 among them
  kZero,    ///< +0 and -0
  kEdge,    ///< by row: zeros, subnormals, tiny, huge, ties, powers of two, clamp, wide exponents
  kNonFinite,  ///< normal with NaN (any payload, either sign) and Inf strewn in
  kBits,       ///< every bit random; for codes too
  kScale,      ///< positive scaling factors with a mantissa, 2^-12..2^12; for e4m3 0x01..0x7E
  kPow2Scale,  ///< powers of two 2^-12..2^12, as f32 or as exponent bytes
  kGiven,      ///< the bytes stand in `given`
};

/// "nonfinite", as case ids have it.
std::string_view name(Fill fill);

struct Input {
  std::string name;
  TensorSpec spec;
  Fill fill = Fill::kNormal;
  std::vector<uint8_t> given{};  ///< row-major logical bytes, for kGiven
};

using Specs = std::vector<TensorSpec>;
using Views = std::vector<TensorView>;

struct Case {
  std::string id;  ///< "topk_gate/tokens=4001,experts=256,topk=8"
  std::vector<Input> inputs;
  std::vector<std::string> outputs;  ///< names, in the order of `spec`'s results
  std::function<Specs(const Specs& inputs)> spec;
  std::function<void(const Views& outputs, const Views& inputs, const Call&)> out;
  /// For tensors that a call changes in place: by output, the input whose bytes it starts with, -1
  /// for none; outputs beyond the list have none. `out` is handed both, and the input stays as it
  /// is. Such an input and output have the same spec.
  std::vector<int> starts_as{};
  /// Empty for an op without an allocating form.
  std::function<std::vector<Tensor>(const Views& inputs, const Call&)> alloc;
  /// Not empty: a bad call; the std::invalid_argument that every form throws says exactly this.
  std::string error{};
  /// Not empty: the DataError that the call ends with, its outputs complete all the same.
  std::string fault{};
  /// Hand-worked results by output, whole storage; an empty one is judged by the reference alone.
  std::vector<std::vector<uint8_t>> expected{};
  /// A shape to be timed; too large for the tests.
  bool bench = false;
  /// To be timed on cuda as a dependent launch too.
  bool bench_pdl = false;
};

struct OpCases {
  std::string_view op;
  std::vector<Case> cases;
};

/// The input whose bytes output i starts with, -1 for none.
inline int start_of(const Case& test, size_t i) {
  return i < test.starts_as.size() ? test.starts_as[i] : -1;
}

/// Every op with its cases, by folder.
const std::vector<OpCases>& all_ops();

/// The storage bytes of an input: gaps between rows hold 0xFF.
std::vector<uint8_t> make_bytes(const Input& input);

/// Bytes that the call must move: every element of its inputs and outputs once.
int64_t bytes_moved(const Case& test);

/// Little-endian bytes of values in order, for `given` and `expected`.
template <class T>
std::vector<uint8_t> bytes_of(std::span<const T> values) {
  const auto* begin = reinterpret_cast<const uint8_t*>(values.data());
  return {begin, begin + values.size_bytes()};
}
template <class T>
std::vector<uint8_t> bytes_of(std::initializer_list<T> values) {
  return bytes_of(std::span<const T>(values.begin(), values.size()));
}

}  // namespace tilekernels::cases
