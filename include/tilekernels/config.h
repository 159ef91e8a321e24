// Settings of the process. Thread-safe; an op reads each of them once per call.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tilekernels/device.h"
#include "tilekernels/tensor.h"

namespace tilekernels {

/// Forces every call onto one backend; empty takes the tensors' device again.
/// Starts from TILEKERNELS_BACKEND. Forcing a backend never changes a layout or a result.
void set_backend(std::optional<Backend> backend);
std::optional<Backend> get_backend();

/// Threads of the cpu backend; 0 (the start value, or TILEKERNELS_NUM_THREADS) takes every core
/// that this process may run on.
/// Errors: std::invalid_argument when negative or above 1024.
void set_num_threads(int num_threads);
/// The number in force: at least 1.
int get_num_threads();

/// The SIMD targets of the cpu backend that this machine can run, best first ("AVX3", "AVX2").
/// Empty on a machine without any: the reference then serves the cpu backend.
std::vector<std::string> cpu_targets();
/// Forces one target of `cpu_targets()`; an empty name takes the best again. For tests and
/// measurements: not to be changed while calls are running. Starts from TILEKERNELS_CPU_TARGET.
/// Errors: std::invalid_argument for a name that is not in `cpu_targets()`.
void set_cpu_target(std::string_view target);
/// The target that the next call runs; empty when there is none.
std::string get_cpu_target();

/// Whether faults in the data are reported (`DataError`). On unless TILEKERNELS_CHECK_DATA=0.
void set_check_data(bool enabled);
bool get_check_data();

/// Whether CUDA kernels are launched with programmatic dependent launch: a kernel may then start
/// while its predecessor in the stream ends, and waits before it reads. Off at the start.
void set_pdl(bool enabled);
bool get_pdl();

/// Whether this machine has the device file of Ascend's driver, /dev/davinci_manager; looked up
/// once. The NPU need not be usable: `backends()` says that.
bool is_ascend();
/// The kind of accelerator that functions below ask for when no device is named: kAscend if
/// `is_ascend()`, else kCuda.
DeviceType get_device();

/// Multiprocessors of a CUDA device, each device asked once. Of kAscend the cube cores, which are
/// half the vector cores, of the machine model.
/// Errors: std::invalid_argument for host memory and for a device that is not there; BackendError,
///   or Unsupported in a build without the cuda backend, where there is no driver to ask.
int get_device_num_sms(std::optional<Device> device = {});
/// Limits the grids of persistent kernels to so many multiprocessors, on an Ascend machine model
/// the vector cores to twice as many; no result depends on it. Kernels that give each row or block
/// of its own a thread block are not persistent and not limited.
/// Errors: std::invalid_argument unless 1 <= num_sms <= get_device_num_sms(); as that function.
void set_num_sms(int num_sms);
/// The number in force on a device: its own, or what `set_num_sms` limits it to.
int get_num_sms(std::optional<Device> device = {});
/// The same number: AI cores and cube cores.
int get_num_ai_cores(std::optional<Device> device = {});
int get_num_cube_cores(std::optional<Device> device = {});
/// Twice that number: an AI core has two vector cores.
int get_num_vec_cores(std::optional<Device> device = {});
/// Bytes of shared memory of a CUDA multiprocessor. Errors: as get_device_num_sms; for kAscend
/// std::invalid_argument, it has none.
int get_max_smem_per_sm(std::optional<Device> device = {});
/// Bytes of on-core buffer of an Ascend 950 vector core that a kernel may take: 216 KiB if it has
/// SIMT parts, whose cache takes the rest, else 248 KiB.
int get_max_ub_per_vector_core(bool use_simt = true);

/// Rows to which SwiGLU's experts are aligned unless a call says otherwise; 128 at the start.
/// Errors: std::invalid_argument unless in 1..2^20.
void set_token_alignment(int token_alignment);
int get_token_alignment();

/// Asks for deterministic algorithms. All of this library's are, whether it was asked or not: kept
/// for callers of the reference package. Off at the start.
void use_deterministic_algorithms(bool enabled);
bool get_deterministic_algorithms();

/// The smallest amax from which a scaling factor is computed, by format of the data (`kE4M3` or
/// `kE2M1x2`) and whether the scales are e4m3. Defaults: 1e-4 and 448·2^-9 for e4m3, 6·2^-126 and
/// 6·2^-9 for e2m1.
/// Errors: std::invalid_argument for another format, and for a value that is not finite or lies
/// below Q·2^-126 (with e4m3 scales Q·2^-9), Q being the format's largest number: the scaling
/// factor would not be a normal number.
void set_amax_clamp_for_quant(DType fmt, bool use_e4m3_sf, float value);
float get_amax_clamp_for_quant(DType fmt, bool use_e4m3_sf);

/// Takes a warning: one sentence, each said once. Called by any thread; must not throw.
using LogHook = std::function<void(std::string_view)>;
/// Where warnings go, such as that the kernel cache cannot be written. Empty, as at the start:
/// nowhere, for the library prints nothing. Not touched by `reset_runtime_config`.
void set_log_hook(LogHook hook);

/// Restores every setting of this header to its start value.
void reset_runtime_config();

}  // namespace tilekernels
