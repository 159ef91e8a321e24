// The run-time compiler: NVRTC, opened at the first need, turns device text into a cubin.
#pragma once

#include <string>
#include <string_view>

#include "runtime/cuda/text.h"
#include "runtime/jit/compile.h"

namespace tilekernels::cuda {

using jit::Compiled;
using jit::CompileJob;
using jit::KernelResources;

/// NVRTC's entry points.
using Nvrtc = jit::Compiler;

/// The compiler, opened by the first call: the library of TILEKERNELS_NVRTC_LIBRARY; else
/// libnvrtc.so.13 or .12 from the loader's path, from PyPI's packages beside ours, from
/// /usr/local/cuda. One newer than the driver is passed over: the driver would refuse its cubins.
/// Errors: BackendError with `nvrtc_problem()`.
const Nvrtc& nvrtc();

/// Empty when `nvrtc()` works, else one sentence that says how to get a compiler.
std::string nvrtc_problem();

/// Whether `nvrtc()` worked before, without trying.
bool is_nvrtc_ready();

/// Opens a compiler library. Returns the problem, empty when the table is complete.
std::string open_nvrtc(const std::string& library, Nvrtc& table);

/// For tests: makes the table, or with null the machine's, the one that the next call finds.
void replace_nvrtc(const Nvrtc* table);

/// The key of a kernel in the caches.
std::string key_of(const CompileJob& job, const Nvrtc& compiler);

/// Errors: BackendError with the compiler's whole log.
Compiled compile(const CompileJob& job, const Nvrtc& compiler);

/// Reads the report of --ptxas-options=-v.
KernelResources parse_resources(std::string_view log);

}  // namespace tilekernels::cuda
