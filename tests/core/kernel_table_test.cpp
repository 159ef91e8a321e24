// Dispatch: which backend a call runs, and what it says when it cannot.
#include "core/kernel_table.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <stdexcept>

#include "errors.h"
#include "runtime/ascend/npu/acl.h"
#include "tilekernels/config.h"
#include "tilekernels/error.h"

namespace tilekernels {
namespace {

struct Args {
  int* sum;
  uint64* fault;
};
struct Shape {
  int32 addend;
};

void add(const Args& args, const Shape& shape, const Launch&) { *args.sum += shape.addend; }
void fault_rows(const Args& args, const Shape&, const Launch&) {
  for (int64 row : {7, 3, 5}) {
    const uint64 word = numerics::fault_word(row, 9, numerics::kFaultIndexOutOfRange);
    *args.fault = numerics::min_of(*args.fault, word);
  }
}

constexpr KernelTable<Args, Shape> kReferenceOnly = {.op = "add", .reference = add};
constexpr KernelTable<Args, Shape> kFaulty = {
    .op = "look_up", .reference = fault_rows, .faults = {.index_out_of_range = "indices"}};
constexpr Device kHost{};
constexpr Device kGpu{DeviceType::kCuda, 0};

class KernelTableTest : public testing::Test {
 protected:
  void TearDown() override { reset_runtime_config(); }

  // The message of the exception that a run throws.
  template <class Error>
  std::string error_of(const KernelTable<Args, Shape>& table, const Call& call, Device device) {
    int sum = 0;
    return tilekernels::error_of<Error>([&] { table.run(call, device, {&sum, nullptr}, {1}); });
  }
};

TEST_F(KernelTableTest, RunsTheForcedBackendAndSaysSo) {
  int sum = 0;
  Backend ran = Backend::kCuda;
  kReferenceOnly.run({.backend = Backend::kReference, .ran = &ran}, kHost, {&sum, nullptr}, {3});
  EXPECT_EQ(sum, 3);
  EXPECT_EQ(ran, Backend::kReference);
  set_backend(Backend::kReference);
  kReferenceOnly.run({}, kHost, {&sum, nullptr}, {4});
  EXPECT_EQ(sum, 7);
}

TEST_F(KernelTableTest, AMissingKernelIsOneUniformError) {
  const std::string text = "[add] no cpu kernel in this build; available: reference";
  EXPECT_EQ(error_of<Unsupported>(kReferenceOnly, {}, kHost), text);
  EXPECT_EQ(error_of<Unsupported>(kReferenceOnly, {.backend = Backend::kCpu}, kHost), text);
  EXPECT_EQ(error_of<Unsupported>(kReferenceOnly, {}, kGpu),
            "[add] no cuda kernel in this build; available: reference");
}

TEST_F(KernelTableTest, AForcedBackendMustComputeOnTheTensorsMemory) {
  EXPECT_EQ(error_of<std::invalid_argument>(kReferenceOnly, {.backend = Backend::kCuda}, kHost),
            "[add] backend must be one that computes on cpu memory, got cuda");
  EXPECT_EQ(error_of<std::invalid_argument>(kReferenceOnly, {.backend = Backend::kCpu}, kGpu),
            "[add] backend must be one that computes on cuda:0 memory, got cpu");
}

TEST_F(KernelTableTest, TheMachineModelComputesOnHostMemoryAndAnNpuOnItsOwn) {
  const KernelTable<Args, Shape> table = {.op = "add", .reference = add, .ascend = add};
  int sum = 0;
  Backend ran = Backend::kReference;
  table.run({.backend = Backend::kAscend, .ran = &ran}, kHost, {&sum, nullptr}, {3});
  EXPECT_EQ(sum, 3);
  EXPECT_EQ(ran, Backend::kAscend);
  setenv("TILEKERNELS_ASCENDCL_LIBRARY", "/nowhere/libascendcl.so", 1);
  ascend::npu::forget_acl();
  EXPECT_EQ(error_of<BackendError>(table, {}, {DeviceType::kAscend, 0}),
            "[add] the NPU's runtime is missing: /nowhere/libascendcl.so: cannot open shared "
            "object file: No such file or directory");
  unsetenv("TILEKERNELS_ASCENDCL_LIBRARY");
  ascend::npu::forget_acl();
}

TEST_F(KernelTableTest, TheLowestFaultyRowIsReported) {
  try {
    kFaulty.run({.backend = Backend::kReference}, kHost, {nullptr, nullptr}, {0});
    FAIL() << "nothing thrown";
  } catch (const DataError& error) {
    EXPECT_EQ(error.row(), 3);
    EXPECT_STREQ(error.what(),
                 "[look_up] indices must name an element, got an index out of range at row 3");
  }
  set_check_data(false);
  EXPECT_NO_THROW(kFaulty.run({.backend = Backend::kReference}, kHost, {nullptr, nullptr}, {0}));
}

}  // namespace
}  // namespace tilekernels
