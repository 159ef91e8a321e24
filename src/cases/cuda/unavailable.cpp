// The device bench of a build without the cuda backend.
#include "cases/cuda/device_bench.h"
#include "cases/cuda/kernel_timer.h"
#include "tilekernels/error.h"

namespace tilekernels::cases {
namespace {

[[noreturn]] void fail() { throw Unsupported("[bench] this build has no cuda backend"); }

}  // namespace

std::string text(const CopyTile&) { return ""; }
DeviceBench::DeviceBench(int64_t) { fail(); }
std::vector<CopyTile> DeviceBench::tiles() { return {}; }
void DeviceBench::copy(int64_t, const CopyTile&) const { fail(); }
bool DeviceBench::has_copied(int64_t) const { return false; }
void DeviceBench::flush() const { fail(); }
void DeviceBench::empty() const { fail(); }
void DeviceBench::synchronize() const { fail(); }
HostCost host_cost(const Case&, const Views&, const Views&, int) { fail(); }
double lookup_ns() { fail(); }
JitTimes jit_times(const Case&, const Views&, const Views&, const std::string&) { fail(); }
std::unique_ptr<KernelTimer> cupti_timer(const std::string&, std::string&) { return nullptr; }
std::unique_ptr<KernelTimer> event_timer(const KernelCall&) { fail(); }

}  // namespace tilekernels::cases
