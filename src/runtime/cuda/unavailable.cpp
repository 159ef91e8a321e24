// The cuda runtime of a build that has none.
#include <string>

#include "core/message.h"
#include "numerics/fault.h"
#include "runtime/cuda/launch.h"
#include "runtime/cuda/runtime.h"
#include "tilekernels/cache.h"
#include "tilekernels/error.h"

namespace tilekernels {
namespace {

constexpr const char* kSentence = "this build has no cuda backend";

[[noreturn]] void refuse(const char* op) { throw Unsupported(message(op, kSentence)); }

}  // namespace

struct CompileOnly::State {
  std::vector<CompiledKernel> kernels;
};
CompileOnly::CompileOnly(std::string_view) { refuse("CompileOnly"); }
CompileOnly::~CompileOnly() = default;
const std::vector<CompiledKernel>& CompileOnly::kernels() const { return state_->kernels; }
std::string device_text_digest(std::string_view) { return ""; }
std::vector<std::string> device_archs() { return {}; }

namespace cuda {

BackendStatus status() { return {Backend::kCuda, false, kSentence}; }
bool is_available() { return false; }
bool is_compile_only() { return false; }
DeviceFacts device_facts(const char* op, int) { refuse(op); }
std::shared_ptr<void> allocate(int64_t, int, Stream) { refuse("allocate"); }
void copy(void*, const void*, int64_t, int, Stream) { refuse("copy"); }
uint64_t take_fault(Stream) { return numerics::kNoFault; }
int num_sms(const Text& text, const Launch&) { refuse(text.op); }
std::shared_ptr<void> scratch(int64_t, const Launch&) { refuse("scratch"); }
void fill(const Text& text, void*, uint8_t, int64_t, const Launch&) { refuse(text.op); }
void launch_raw(const Text& text, const Plan&, KernelId&, void*, uint64_t**, const Launch&) {
  refuse(text.op);
}

}  // namespace cuda
}  // namespace tilekernels
