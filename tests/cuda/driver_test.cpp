// The driver table: what is missing is one sentence, and nothing starts before it is needed.
#include "runtime/cuda/driver.h"

#include <gtest/gtest.h>

#include "cuda/children.h"
#include "cuda/fake.h"
#include "errors.h"
#include "runtime/cuda/runtime.h"
#include "tilekernels/cache.h"
#include "tilekernels/device.h"
#include "tilekernels/error.h"

namespace tilekernels::cuda {
namespace {

std::string problem_of(fake::Machine& machine) {
  const fake::Install install(machine);
  const BackendStatus found = status();
  EXPECT_EQ(found.backend, Backend::kCuda);
  EXPECT_FALSE(found.available);
  EXPECT_FALSE(is_available());
  return found.detail;
}

TEST(OpenDriver, SaysThatTheLibraryIsMissing) {
  Driver table;
  EXPECT_EQ(open_driver("libabsent.so.1", table),
            "the NVIDIA driver is missing: libabsent.so.1: cannot open shared object file: No such "
            "file or directory");
}

TEST(OpenDriver, SaysThatTheLibraryIsTooOld) {
  Driver table;
  EXPECT_EQ(open_driver("libm.so.6", table),
            "the NVIDIA driver is too old: libm.so.6 has no cuInit; CUDA 12.0 is needed");
}

TEST(OpenDriver, TheNamedLibraryIsTheOnlyCandidate) {
  setenv("TILEKERNELS_CUDA_LIBRARY", "/nowhere/libcuda.so", 1);
  replace_driver(nullptr);
  EXPECT_NE(driver_problem().find("/nowhere/libcuda.so"), std::string::npos) << driver_problem();
  EXPECT_THROW(driver(), BackendError);
  unsetenv("TILEKERNELS_CUDA_LIBRARY");
  replace_driver(nullptr);
}

TEST(Status, NamesDevicesDriverAndCompiler) {
  fake::Machine machine{.capabilities = {{9, 0}, {8, 6}}};
  const fake::Install install(machine);
  EXPECT_EQ(machine.counts->inits, 0);
  const BackendStatus found = status();
  EXPECT_TRUE(found.available);
  EXPECT_TRUE(is_available());
  EXPECT_EQ(found.detail,
            "Fake 0 (sm_90a), Fake 1 (no kernels for compute capability 8.6), driver for CUDA "
            "13.0, nvrtc 13.0");
  EXPECT_EQ(machine.counts->inits, 1);
  EXPECT_EQ(backends()[static_cast<size_t>(Backend::kCuda)].detail, found.detail);
}

TEST(Status, ArchitecturesAreThoseWithKernels) {
  fake::Machine machine{.capabilities = {{9, 0}, {8, 6}, {10, 3}, {9, 0}}};
  const fake::Install install(machine);
  EXPECT_EQ(device_archs(), (std::vector<std::string>{"sm_103a", "sm_90a"}));
  EXPECT_EQ(arch_of(10, 0), "sm_100a");
  EXPECT_EQ(arch_of(12, 0), "");
}

TEST(Status, SaysWhatIsWrong) {
  fake::Machine refused{.init_result = fake::kNoDevice};
  EXPECT_EQ(problem_of(refused),
            "the NVIDIA driver cannot start: fake error 100 (CUDA_ERROR_NO_DEVICE)");
  fake::Machine old{.driver_version = 11080};
  EXPECT_EQ(problem_of(old), "the NVIDIA driver is too old: it knows CUDA 11.8, 12.0 is needed");
  fake::Machine none{.capabilities = {}};
  EXPECT_EQ(problem_of(none), "the NVIDIA driver finds no device");
  fake::Machine other{.capabilities = {{7, 5}}};
  EXPECT_EQ(problem_of(other), "Fake 0 (no kernels for compute capability 7.5)");
}

TEST(Driver, ThrowsTheProblem) {
  fake::Machine machine{.init_result = fake::kNoDevice};
  const fake::Install install(machine);
  EXPECT_EQ(error_of<BackendError>([] { driver(); }),
            "[cuda] the NVIDIA driver cannot start: fake error 100 (CUDA_ERROR_NO_DEVICE)");
}

TEST(Fork, BeforeTheFirstCallIsFine) {
  fake::Machine machine;
  const fake::Install install(machine);
  EXPECT_TRUE(runs_well([] { return status().available && &driver() == &fake::kDriver; }));
  EXPECT_TRUE(status().available);
}

TEST(Fork, AfterTheFirstCallIsAClearErrorAndNoHang) {
  fake::Machine machine;
  const fake::Install install(machine);
  driver();
  EXPECT_TRUE(runs_well([&] {
    const int inits = machine.counts->inits;
    alarm(20);  // a hang ends the child badly
    if (is_available()) return false;
    if (status().detail.find("forked after CUDA was used") == std::string::npos) return false;
    try {
      driver();
    } catch (const BackendError&) {
      return machine.counts->inits == inits;
    }
    return false;
  }));
  EXPECT_TRUE(is_available());
}

}  // namespace
}  // namespace tilekernels::cuda
