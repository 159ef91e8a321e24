// Launching an op's kernel: find or load it, then one driver call in the device's context.
#include "runtime/cuda/launch.h"

#include <algorithm>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "core/message.h"
#include "core/settings.h"
#include "numerics/types.h"
#include "runtime/cuda/memory.h"
#include "runtime/cuda/runtime.h"
#include "runtime/jit/disk_cache.h"
#include "tilekernels/cache.h"
#include "tilekernels/config.h"
#include "tilekernels/error.h"

namespace tilekernels {

struct CompileOnly::State {
  std::string arch;
  std::vector<CompiledKernel> kernels{};
  std::set<std::string> keys{};
};

namespace cuda {
namespace {

thread_local CompileOnly::State* compile_only = nullptr;

constexpr int64_t kMaxGridX = (int64_t{1} << 31) - 1;
constexpr int64_t kMaxGridYZ = 65535;
constexpr int kNumSmsWithoutDevice = 132;  // an H200's

void compile_without_device(const KernelId& id) {
  CompileOnly::State& state = *compile_only;
  const CompileJob job = job_of(id, state.arch);
  const Nvrtc& compiler = nvrtc();
  const std::string key = key_of(job, compiler);
  if (!state.keys.insert(key).second) return;
  const std::string folder = cache_dir();
  Compiled compiled = jit::find_or_make(folder, key, [&] { return compile(job, compiler); });
  CompiledKernel kernel = jit::describe(key, compiled);
  kernel.cubin = std::move(compiled.binary);
  const std::string path = jit::cache_file(folder, key);
  if (!folder.empty() && jit::read_cache_file(path)) kernel.path = path;
  state.kernels.push_back(std::move(kernel));
}

LoadedKernel& load(const KernelId& id, DeviceState& device, void* stream) {
  const char* op = id.text->op;
  if (is_capturing(op, stream)) {
    throw BackendError(message(
        op, std::string("must be called once with this shape, these options and memory aligned "
                        "like this before the capture: its kernel is not loaded yet, and loading "
                        "breaks a capture")));
  }
  const RelaxedCapture relaxed;
  make_fault_word(op, device, stream);
  return load_kernel(id, device);
}

void allow_shared_bytes(const char* op, LoadedKernel& kernel, int64_t bytes) {
  check(driver().func_set_attribute(kernel.function, kAttributeMaxDynamicShared,
                                    static_cast<int>(bytes)),
        op, "cuFuncSetAttribute(MAX_DYNAMIC_SHARED_SIZE_BYTES)");
  kernel.shared_bytes.store(bytes, std::memory_order_relaxed);
}

DeviceState& device_of(const Text& text, const Launch& where) {
  DeviceState* const made = device_state_if_made(where.device.index);
  return made != nullptr ? *made : device_state(text.op, where.device.index);
}

void check_grid(const char* op, const Extent& grid) {
  if (grid.x <= kMaxGridX && grid.y <= kMaxGridYZ && grid.z <= kMaxGridYZ) return;
  throw Unsupported(message(op, "grid", "must be within (2147483647, 65535, 65535) blocks",
                            "(" + std::to_string(grid.x) + ", " + std::to_string(grid.y) + ", " +
                                std::to_string(grid.z) + ")"));
}

}  // namespace

bool is_compile_only() { return compile_only != nullptr; }

int num_sms(const Text& text, const Launch& where) {
  const int all = compile_only != nullptr ? kNumSmsWithoutDevice : device_of(text, where).num_sms;
  const int limit = num_sms_limit();
  return limit == 0 ? all : std::min(all, limit);
}

RowsOfBlock rows_of_block(int64_t num_rows, int32_t most, const Text& text, const Launch& where) {
  constexpr int64_t kFew = 2;    // rows of a multiprocessor
  constexpr int64_t kMany = 32;  // run at once with 64 registers a thread
  constexpr int32_t kSlim = 4;
  const int64_t sms = num_sms(text, where);
  if (num_rows <= kFew * sms) return {1, 1};
  if (num_rows > kMany * sms) return {kSlim, kSlim};
  return {most, std::min<int64_t>(numerics::ceil_div(num_rows, sms), most)};
}

std::shared_ptr<void> scratch(int64_t size_bytes, const Launch& where) {
  if (compile_only != nullptr) return nullptr;
  return allocate(size_bytes, where.device.index, where.stream);
}

void launch_raw(const Text& text, const Plan& plan, KernelId& id, void* args, uint64_t** fault,
                const Launch& where) {
  const bool pdl = get_pdl();
  id.text = &text;
  id.kind.device = static_cast<int16_t>(where.device.index);
  id.kind.pdl = pdl;
  check_grid(text.op, plan.grid);
  if (compile_only != nullptr) return compile_without_device(id);

  const Driver& cuda = driver();
  DeviceState& device = device_of(text, where);
  const CurrentContext current(text.op, device);
  LoadedKernel* kernel = find_kernel(id);
  if (kernel == nullptr) kernel = &load(id, device, where.stream.handle);
  if (plan.shared_bytes > kernel->shared_bytes.load(std::memory_order_relaxed)) {
    allow_shared_bytes(text.op, *kernel, plan.shared_bytes);
  }
  if (fault != nullptr) {
    *fault = reinterpret_cast<uint64_t*>(device.fault.load(std::memory_order_relaxed));
  }
  if (plan.before.size_bytes > 0) {
    check(cuda.memset_d8_async(reinterpret_cast<uint64_t>(plan.before.to), plan.before.value,
                               static_cast<size_t>(plan.before.size_bytes), where.stream.handle),
          text.op, "cuMemsetD8Async");
  }
  const auto u = [](int64_t extent) { return static_cast<unsigned>(extent); };
  LaunchAttribute attribute{.id = kLaunchProgrammaticSerial, .padding = 0, .bytes = {}};
  attribute.value = 1;
  const LaunchConfig config{
      .grid = {u(plan.grid.x), u(plan.grid.y), u(plan.grid.z)},
      .block = {u(plan.block.x), u(plan.block.y), u(plan.block.z)},
      .shared_bytes = u(plan.shared_bytes),
      .stream = where.stream.handle,
      .attributes = &attribute,
      .num_attributes = pdl ? 1u : 0u,
  };
  void* params[] = {args};
  check(cuda.launch_kernel_ex(&config, kernel->function, params, nullptr), text.op,
        "cuLaunchKernelEx");
}

}  // namespace cuda

CompileOnly::CompileOnly(std::string_view arch) {
  if (!cuda::is_arch(arch)) {
    throw std::invalid_argument(
        message("CompileOnly", "arch", "must be sm_90a, sm_100a or sm_103a", arch));
  }
  if (cuda::compile_only != nullptr) {
    throw BackendError(message("CompileOnly", "this thread has one already"));
  }
  cuda::nvrtc();
  state_ = std::make_unique<State>(State{.arch = std::string(arch)});
  cuda::compile_only = state_.get();
}

CompileOnly::~CompileOnly() { cuda::compile_only = nullptr; }

const std::vector<CompiledKernel>& CompileOnly::kernels() const { return state_->kernels; }

}  // namespace tilekernels
