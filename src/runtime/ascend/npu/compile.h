// The NPU's run-time compiler: aclrtc, opened at the first need, turns kernel text into a binary.
#pragma once

#include <string>

#include "runtime/jit/compile.h"

namespace tilekernels::ascend::npu {

/// The compiler, opened by the first call: the library of TILEKERNELS_ACLRTC_LIBRARY, else
/// libacl_rtc.so from the loader's path.
/// Errors: BackendError with `aclrtc_problem()`.
const jit::Compiler& aclrtc();

/// Empty when `aclrtc()` works, else one sentence that says how to get a compiler.
std::string aclrtc_problem();

/// Whether `aclrtc()` worked before, without trying.
bool is_aclrtc_ready();

/// Opens a compiler library. Returns the problem, empty when the table is complete.
std::string open_aclrtc(const std::string& library, jit::Compiler& table);

/// For tests: looks for the library again at the next call.
void forget_aclrtc();

/// The key of a kernel in the caches.
std::string key_of(const jit::CompileJob& job, const jit::Compiler& compiler);

/// Errors: BackendError with the compiler's whole log.
jit::Compiled compile(const jit::CompileJob& job, const jit::Compiler& compiler);

}  // namespace tilekernels::ascend::npu
