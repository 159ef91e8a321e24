// The way between tvm-ffi and the library: arguments, results, errors.
#include "call.h"

#include <tvm/ffi/any.h>
#include <tvm/ffi/container/array.h>
#include <tvm/ffi/container/shape.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/error.h>
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/function.h>
#include <tvm/ffi/string.h>

#include <limits>
#include <new>
#include <stdexcept>

#include "tilekernels/error.h"

namespace tilekernels::python {
namespace {

namespace ffi = tvm::ffi;

const ffi::AnyView& as_any(const void* argument) {
  return *static_cast<const ffi::AnyView*>(argument);
}

ffi::Any& as_result(void* result) { return *static_cast<ffi::Any*>(result); }

DLDeviceType dlpack_type(DeviceType type) {
  switch (type) {
    case DeviceType::kCuda:
      return kDLCUDA;
    case DeviceType::kAscend:
      return kDLExtDev;
    case DeviceType::kCpu:
      break;
  }
  return kDLCPU;
}

std::optional<DeviceType> device_type(int64_t dlpack) {
  switch (dlpack) {
    case kDLCPU:
    case kDLCUDAHost:
      return DeviceType::kCpu;
    case kDLCUDA:
    case kDLCUDAManaged:
      return DeviceType::kCuda;
    case kDLExtDev:
      return DeviceType::kAscend;
    default:
      return std::nullopt;
  }
}

// Python's errors: the kinds of the library's own classes are registered by errors.py. The row of
// a DataError travels in front of its message.
void run(const char* op, Registration::Body body, ffi::PackedArgs args, ffi::Any* result) {
  try {
    PyCall call(op, args.data(), args.size(), result);
    body(call);
  } catch (const DataError& error) {
    throw ffi::Error("tilekernels.DataError", std::to_string(error.row()) + ":" + error.what(), "");
  } catch (const Unsupported& error) {
    throw ffi::Error("tilekernels.Unsupported", error.what(), "");
  } catch (const BackendError& error) {
    throw ffi::Error("tilekernels.BackendError", error.what(), "");
  } catch (const std::invalid_argument& error) {
    throw ffi::Error("ValueError", error.what(), "");
  } catch (const std::bad_alloc&) {
    throw ffi::Error("MemoryError", std::string("[") + op + "] out of memory", "");
  }
}

}  // namespace

const void* PyCall::take() {
  if (left_ == 0) throw ffi::Error("TypeError", std::string("[") + op_ + "] argument missing", "");
  --left_;
  const void* argument = next_;
  next_ = static_cast<const ffi::AnyView*>(next_) + 1;
  return argument;
}

TensorView PyCall::tensor() {
  const DLTensor* tensor = as_any(take()).cast<DLTensor*>();
  const DType element = dtype();
  const std::optional<DeviceType> type = device_type(tensor->device.device_type);
  if (!type) refuse("device", "must be cpu, cuda or ascend", "another kind");
  const auto rank = static_cast<size_t>(tensor->ndim);
  const Device device{*type, *type == DeviceType::kCpu ? 0 : tensor->device.device_id};
  TensorSpec spec(Dims(tensor->shape, rank), element, device);
  if (tensor->strides != nullptr) spec.strides = Dims(tensor->strides, rank);
  if ((tensor->dtype.bits * tensor->dtype.lanes + 7) / 8 != size_bytes(element)) {
    throw ffi::Error("TypeError", std::string("[") + op_ + "] element size does not fit dtype", "");
  }
  return {static_cast<char*>(tensor->data) + tensor->byte_offset, spec};
}

TensorSpec PyCall::spec() {
  const auto numbers = as_any(take()).cast<ffi::Shape>();
  const size_t rank = (numbers.size() - 3) / 2;
  const std::optional<DeviceType> type = device_type(numbers[1]);
  if (!type) refuse("device", "must be cpu, cuda or ascend", "another kind");
  const Device device{*type, *type == DeviceType::kCpu ? 0 : static_cast<int32_t>(numbers[2])};
  const int64_t* extents = numbers.data() + 3;
  return {Dims(extents, rank), Dims(extents + rank, rank), static_cast<DType>(numbers[0]), device};
}

DType PyCall::dtype() { return static_cast<DType>(as_any(take()).cast<int64_t>()); }

bool PyCall::flag() {
  const auto value = as_any(take()).cast<int64_t>();
  if (value != 0 && value != 1) {
    throw ffi::Error("TypeError", std::string("[") + op_ + "] a flag must be True or False", "");
  }
  return value == 1;
}

int PyCall::integer(const char* argument) {
  const auto value = as_any(take()).cast<int64_t>();
  if (value < std::numeric_limits<int>::min() || value > std::numeric_limits<int>::max()) {
    refuse(argument, "must fit in 32 bits", std::to_string(value));
  }
  return static_cast<int>(value);
}

int64_t PyCall::handle() { return as_any(take()).cast<int64_t>(); }

double PyCall::number() { return as_any(take()).cast<double>(); }

std::optional<double> PyCall::maybe_number() {
  const ffi::AnyView& argument = as_any(take());
  if (argument == nullptr) return std::nullopt;
  return argument.cast<double>();
}

std::string PyCall::text() { return as_any(take()).cast<ffi::String>(); }

std::optional<std::string> PyCall::maybe_text() {
  const ffi::AnyView& argument = as_any(take());
  if (argument == nullptr) return std::nullopt;
  return std::string(argument.cast<ffi::String>());
}

LogHook PyCall::maybe_hook() {
  const ffi::AnyView& argument = as_any(take());
  if (argument == nullptr) return {};
  return [hook = argument.cast<ffi::Function>()](std::string_view sentence) {
    try {
      hook(ffi::Bytes(sentence.data(), sentence.size()));  // paths need not be UTF-8
    } catch (const ffi::Error&) {
      // A warning has nobody to tell that its hook failed.
    }
  };
}

Call PyCall::options(const Device& device) {
  Call call;
  if (const auto backend = maybe_text()) call.backend = backend_from_name(*backend);
  if (device.type != DeviceType::kCpu) {
    call.stream.handle = TVMFFIEnvGetStream(dlpack_type(device.type), device.index);
  }
  return call;
}

void PyCall::give(std::initializer_list<TensorSpec> specs) {
  std::vector<int64_t> numbers;
  for (const TensorSpec& spec : specs) {
    numbers.insert(numbers.end(), {static_cast<int64_t>(spec.dtype),
                                   spec.storage_bytes() / size_bytes(spec.dtype), spec.rank()});
    numbers.insert(numbers.end(), spec.shape.begin(), spec.shape.end());
    numbers.insert(numbers.end(), spec.strides.begin(), spec.strides.end());
  }
  as_result(result_) = ffi::Shape(numbers.begin(), numbers.end());
}

void PyCall::give(bool value) { as_result(result_) = value; }

void PyCall::give(int64_t value) { as_result(result_) = value; }

void PyCall::give(double value) { as_result(result_) = value; }

void PyCall::give(const std::optional<std::string>& value) {
  if (value) as_result(result_) = ffi::String(*value);
}

void PyCall::give(const std::vector<std::string>& values) {
  ffi::Array<ffi::String> texts;
  for (const std::string& value : values) texts.push_back(value);
  as_result(result_) = texts;
}

void PyCall::refuse(const std::string& argument, const std::string& rule,
                    const std::string& value) const {
  throw std::invalid_argument(std::string("[") + op_ + "] " + argument + " " + rule + ", got " +
                              value);
}

Registration::Registration(const char* name, const char* op, Body body) {
  ffi::Function::SetGlobal(
      std::string("tilekernels.") + name,
      ffi::Function::FromPacked(
          [op, body](ffi::PackedArgs args, ffi::Any* result) { run(op, body, args, result); }),
      /*override=*/true);
}

OpRegistration::OpRegistration(const char* name, const char* op, Registration::Body spec,
                               Registration::Body out) {
  Registration((std::string(name) + "_spec").c_str(), op, spec);
  Registration((std::string(name) + "_out").c_str(), op, out);
}

}  // namespace tilekernels::python
