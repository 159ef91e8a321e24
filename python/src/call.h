// One call from Python: its arguments from left to right, and its result. The families register
// their functions with this alone; only call.cpp knows tvm-ffi.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tilekernels/config.h"
#include "tilekernels/quant.h"
#include "tilekernels/stream.h"
#include "tilekernels/tensor.h"

namespace tilekernels::python {

/// Arguments of a call, taken in order. A missing argument or one of another type is a TypeError.
class PyCall {
 public:
  PyCall(const char* op, const void* arguments, int count, void* result)
      : op_(op), next_(arguments), left_(count), result_(result) {}

  /// Arguments not taken yet.
  int left() const { return left_; }
  /// Two arguments: a DLPack tensor and the number of its `DType`. DLPack's own dtype is not
  /// looked at, since the narrow formats cross as bytes.
  TensorView tensor();
  /// One argument: the integers `dtype, DLPack device type, device index, shape…, strides…`.
  TensorSpec spec();
  DType dtype();
  bool flag();
  int integer(const char* argument);
  std::optional<double> maybe_number();
  /// An address.
  int64_t handle();
  double number();
  std::optional<std::string> maybe_text();
  std::string text();
  /// A callable that takes a sentence, or nothing.
  LogHook maybe_hook();
  /// The last argument of every op: the backend's name or nothing. The stream is the one that the
  /// tensors' framework works on.
  Call options(const Device& device);

  /// For every spec `dtype, elements of its storage, rank, shape…, strides…`.
  void give(std::initializer_list<TensorSpec> specs);
  void give(bool value);
  void give(int64_t value);
  void give(double value);
  void give(const std::optional<std::string>& value);
  void give(const std::vector<std::string>& values);

  /// Throws std::invalid_argument "[op] argument rule, got value".
  [[noreturn]] void refuse(const std::string& argument, const std::string& rule,
                           const std::string& value) const;

 private:
  const void* take();

  const char* op_;
  const void* next_;
  int left_;
  void* result_;
};

/// Makes a function known to Python as `tilekernels.<name>`; `op` is the name in its messages.
/// To be made as a static object: the module's loading registers it.
struct Registration {
  using Body = void (*)(PyCall&);
  Registration(const char* name, const char* op, Body body);
};

/// The two functions of an op, `<name>_spec` and `<name>_out`.
struct OpRegistration {
  OpRegistration(const char* name, const char* op, Registration::Body spec, Registration::Body out);
};

}  // namespace tilekernels::python
