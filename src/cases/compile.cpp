// Takes cases to a device's compiler without the device.
#include "cases/compile.h"

#include <atomic>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "tilekernels/error.h"

namespace tilekernels::cases {
namespace {

// Tensors far apart, `offset` elements off an aligned place.
Views views_of(const Specs& specs, int64_t first, int64_t offset) {
  Views views;
  for (const TensorSpec& spec : specs) {
    const int64_t address = (first + static_cast<int64_t>(views.size())) << 40;
    views.emplace_back(reinterpret_cast<void*>(address + offset * size_bytes(spec.dtype)), spec);
  }
  return views;
}

// What the threads of one run share.
struct Shared {
  std::string_view arch;
  const std::vector<const Case*>& tests;
  std::atomic<size_t> next{0};
  std::mutex mutex{};
  // By op and constants; guarded by the mutex, like what follows
  std::map<std::pair<std::string, std::string>, CompiledKernel> kernels{};
  std::set<std::string> unsupported{};
  std::string error{};
};

// Takes cases until none is left or one fails.
void compile_some(Shared& shared) {
  std::string id;
  std::string error;
  try {
    const CompileOnly compile_only(shared.arch);
    for (size_t i; (i = shared.next++) < shared.tests.size();) {
      const Case& test = *shared.tests[i];
      if (!test.error.empty()) continue;
      id = test.id + ": ";
      try {
        compile_case(test);
      } catch (const Unsupported& absent) {
        const std::lock_guard lock(shared.mutex);
        shared.unsupported.insert(absent.what());
      }
    }
    const std::lock_guard lock(shared.mutex);
    for (const CompiledKernel& kernel : compile_only.kernels()) {
      shared.kernels.try_emplace({kernel.op, kernel.constants}, kernel);
    }
  } catch (const std::exception& thrown) {
    shared.next = shared.tests.size();
    const std::lock_guard lock(shared.mutex);
    if (shared.error.empty()) shared.error = id + thrown.what();
  }
}

}  // namespace

void compile_case(const Case& test) {
  Specs inputs;
  for (const Input& input : test.inputs) {
    inputs.push_back(input.spec);
    inputs.back().device = {DeviceType::kCuda, 0};
  }
  const Specs outputs = test.spec(inputs);
  for (const int64_t offset : {0, 1}) {
    test.out(views_of(outputs, 100, offset), views_of(inputs, 1, offset), Call{});
  }
}

CompiledCases compile_cases(std::string_view arch, const std::vector<const Case*>& tests,
                            int num_threads) {
  Shared shared{arch, tests};
  std::vector<std::thread> others;
  for (int i = 1; i < num_threads; ++i) others.emplace_back([&] { compile_some(shared); });
  compile_some(shared);
  for (std::thread& thread : others) thread.join();
  if (!shared.error.empty()) throw BackendError(shared.error);
  CompiledCases compiled;
  for (auto& [name, kernel] : shared.kernels) compiled.kernels.push_back(std::move(kernel));
  compiled.unsupported = std::move(shared.unsupported);
  return compiled;
}

}  // namespace tilekernels::cases
