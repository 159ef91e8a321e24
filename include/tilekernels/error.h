// The four kinds of error. Every message reads "[op] argument rule, got value".
//
//   std::invalid_argument  the caller's fault: shape, dtype, range, stride, device
//   DataError              a value in the data breaks the op's contract; all outputs are complete
//   Unsupported            no kernel for this backend, dtype or shape; says what is available
//   BackendError           the machine failed: driver, compiler, file system, machine model
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

namespace tilekernels {

/// A value in the data breaks the op's contract. Other rows of the result are right.
class DataError : public std::runtime_error {
 public:
  DataError(const std::string& message, int64_t row) : std::runtime_error(message), row_(row) {}
  /// The lowest offending row: the same on every backend.
  int64_t row() const { return row_; }

 private:
  int64_t row_;
};

/// No kernel for this backend, dtype or shape.
class Unsupported : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// The machine failed, not the caller.
class BackendError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace tilekernels
