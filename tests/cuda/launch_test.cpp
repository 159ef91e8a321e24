// A call's way through the runtime on a machine that is not there: kernels, contexts, captures,
// faults and memory.
#include "runtime/cuda/launch.h"

#include <gtest/gtest.h>

#include <limits>
#include <thread>

#include "core/kernel_table.h"
#include "cuda/children.h"
#include "cuda/fake.h"
#include "errors.h"
#include "runtime/cuda/runtime.h"
#include "tilekernels/cache.h"
#include "tilekernels/config.h"
#include "tilekernels/error.h"

namespace tilekernels {
namespace {

// An op with a CUDA kernel, as an op's folder would hold it.
constexpr int32 kGatherId = 200;
struct GatherArgs {
  int64 num_rows;
  int64 shared_bytes;
  uint64* fault;
};
struct GatherShape {
  int32 hidden;
  int32 dtype;
};
struct GatherTile {
  int32 rows;
};

cuda::Text text{"gather", "d1", "kernel text"};

void gather_cuda(const GatherArgs& args, const GatherShape& shape, const Launch& where) {
  constexpr GatherTile kTile{.rows = 4};
  const cuda::Plan plan{.grid = {numerics::ceil_div(args.num_rows, kTile.rows)},
                        .block = {128},
                        .shared_bytes = args.shared_bytes};
  cuda::launch(text, plan, args, shape, kTile, where);
}

constexpr KernelTable<GatherArgs, GatherShape> kGather = {
    .op = "gather",
    .cuda = gather_cuda,
    .faults = {.op_id = kGatherId, .index_out_of_range = "indices"},
};

void gather(int device = 0, void* stream = nullptr, int64 num_rows = 10, int32 hidden = 64,
            int64 shared_bytes = 0) {
  if (num_rows == 0) return;  // as every front
  kGather.run({.stream = {stream}}, {DeviceType::kCuda, device}, {num_rows, shared_bytes, nullptr},
              {hidden, 2});
}

class LaunchTest : public testing::Test {
 protected:
  void SetUp() override {
    before_ = cache_dir();
    set_cache_dir(folder_.path());
  }
  void TearDown() override {
    set_cache_dir(before_);
    reset_runtime_config();
  }
  const cuda::fake::Counts& counts() const { return *machine_.counts; }
  const cuda::fake::LaunchRecord& last() const { return machine_.launches.back(); }

  cuda::Folder folder_;
  std::string before_;
  cuda::fake::Machine machine_{.capabilities = {{9, 0}, {10, 0}, {8, 6}}};
  cuda::fake::Install install_{machine_};
  cuda::fake::FakeStream stream_{&machine_.contexts[0]};
};

TEST_F(LaunchTest, CompilesAndLoadsOnceAndLaunchesEachTime) {
  for (int i = 0; i < 3; ++i) gather();
  EXPECT_EQ(counts().compiles, 1);
  EXPECT_EQ(counts().loads, 1);
  EXPECT_EQ(counts().launches, 3);
  EXPECT_EQ(last().name, "gather_kernel");
  EXPECT_EQ(last().config.grid[0], 3u);
  EXPECT_EQ(last().config.grid[1], 1u);
  EXPECT_EQ(last().config.block[0], 128u);
  EXPECT_FALSE(last().pdl);
  gather(0, nullptr, 100);  // another number of rows is the same kernel
  EXPECT_EQ(counts().compiles, 1);
  gather(0, nullptr, 10, 128);
  EXPECT_EQ(counts().compiles, 2);
  const std::vector<CompiledKernel> kept = list_cache();
  ASSERT_EQ(kept.size(), 2u);
  EXPECT_EQ(kept[0].registers, 40);
}

TEST_F(LaunchTest, FactsAreTheDevicesAndALimitHolds) {
  const Launch where{{DeviceType::kCuda, 0}, {}};
  EXPECT_EQ(get_device_num_sms(Device{DeviceType::kCuda, 1}), 100);
  EXPECT_EQ(get_device_num_sms(Device{DeviceType::kCuda, 2}), 100);  // no kernels, but facts
  EXPECT_EQ(get_max_smem_per_sm(Device{DeviceType::kCuda, 0}), 100);
  EXPECT_EQ(error_of<std::invalid_argument>([] {
              get_num_sms(Device{DeviceType::kCuda, 3});
            }),
            "[get_num_sms] device must be one of cuda:0..cuda:2, got cuda:3");
  EXPECT_EQ(cuda::num_sms(text, where), 100);
  set_num_sms(7);
  EXPECT_EQ(cuda::num_sms(text, where), 7);
  EXPECT_EQ(get_num_sms(), 7);
  EXPECT_EQ(get_num_vec_cores(), 14);
  EXPECT_EQ(get_device_num_sms(), 100);
  for (int bad : {0, -1, 101}) {
    EXPECT_EQ(error_of<std::invalid_argument>([&] { set_num_sms(bad); }),
              "[set_num_sms] num_sms must be in 1..100, got " + std::to_string(bad));
  }
  reset_runtime_config();
  EXPECT_EQ(get_num_sms(), 100);
}

TEST_F(LaunchTest, TheArgumentsArriveAndTheFaultWordIsTheDevices) {
  bool seen = false;
  machine_.kernel = [&](const cuda::fake::LaunchRecord& launch) {
    const auto* args = static_cast<const GatherArgs*>(launch.args);
    seen = args->num_rows == 10 && *args->fault == numerics::kNoFault &&
           machine_.blocks.count(reinterpret_cast<uint64_t>(args->fault)) == 1;
  };
  gather();
  EXPECT_TRUE(seen);
}

TEST_F(LaunchTest, ASecondProcessTakesTheKernelFromDisk) {
  gather();
  cuda::forget_kernels();
  gather();
  EXPECT_EQ(counts().compiles, 1);
  EXPECT_EQ(counts().loads, 2);
}

TEST_F(LaunchTest, ManyKernelsAreFoundAgain) {
  for (int round = 0; round < 2; ++round) {
    for (int hidden = 1; hidden <= 700; ++hidden) gather(0, nullptr, 1, hidden);
    EXPECT_EQ(counts().loads, 700);
  }
}

TEST_F(LaunchTest, AnotherTextOrCompilerIsAnotherKernel) {
  gather();
  const cuda::Text before = text;
  text = {"gather", "d2", "kernel text, changed"};
  cuda::forget_kernels();
  gather();
  EXPECT_EQ(counts().compiles, 2);
  text = before;
  cuda::forget_kernels();
  const cuda::Nvrtc newer = cuda::fake::make_nvrtc("13.1");
  cuda::replace_nvrtc(&newer);
  gather();
  EXPECT_EQ(counts().compiles, 3);
  cuda::forget_kernels();
  gather();
  EXPECT_EQ(counts().compiles, 3);
  EXPECT_EQ(list_cache().size(), 3u);
}

TEST_F(LaunchTest, PdlIsAnAttributeAndPartOfTheKey) {
  gather();
  set_pdl(true);
  gather();
  EXPECT_TRUE(last().pdl);
  EXPECT_EQ(counts().compiles, 2);
  set_pdl(false);
  gather();
  EXPECT_FALSE(last().pdl);
  EXPECT_EQ(counts().compiles, 2);
}

TEST_F(LaunchTest, TheTensorsDeviceDecidesAndTheCallersContextComesBack) {
  int other_framework;
  auto* const callers = reinterpret_cast<cuda::fake::FakeContext*>(&other_framework);
  cuda::fake::context_stack = {callers};
  gather(1);
  EXPECT_EQ(last().device, 1);
  EXPECT_EQ(list_cache()[0].arch, "sm_100a");
  EXPECT_EQ(cuda::fake::context_stack, std::vector{callers});
  gather(0);
  EXPECT_EQ(last().device, 0);
  EXPECT_EQ(counts().compiles, 2);
  EXPECT_EQ(cuda::fake::context_stack, std::vector{callers});

  machine_.launch_result = cuda::fake::kLaunchFailed;
  EXPECT_EQ(error_of<BackendError>([] { gather(1); }),
            "[gather] cuLaunchKernelEx failed: fake error 719 (CUDA_ERROR_FAKE)");
  machine_.launch_result = 0;
  EXPECT_EQ(cuda::fake::context_stack, std::vector{callers});

  machine_.load_result = cuda::fake::kInvalidImage;
  EXPECT_EQ(error_of<BackendError>([] { gather(1, nullptr, 10, 32); }),
            "[gather] cuModuleLoadData failed: fake error 200 (CUDA_ERROR_FAKE)");
  machine_.load_result = 0;
  EXPECT_EQ(cuda::fake::context_stack, std::vector{callers});

  EXPECT_EQ(error_of<BackendError>([this] { gather(1, &stream_); }),
            "[gather] cuLaunchKernelEx failed: fake error 201 (CUDA_ERROR_FAKE)");
  EXPECT_EQ(cuda::fake::context_stack, std::vector{callers});
}

TEST_F(LaunchTest, OneArchitectureOnTwoDevicesIsOneCompilation) {
  machine_.capabilities = {{9, 0}, {9, 0}};
  gather(0);
  gather(1);
  EXPECT_EQ(counts().compiles, 1);
  EXPECT_EQ(counts().loads, 2);
}

TEST_F(LaunchTest, ADeviceThatCannotServeIsNamed) {
  EXPECT_EQ(error_of<std::invalid_argument>([] { gather(3); }),
            "[gather] device must be one of cuda:0..cuda:2, got cuda:3");
  EXPECT_EQ(error_of<std::invalid_argument>([] { gather(-1); }),
            "[gather] device must be one of cuda:0..cuda:2, got cuda:-1");
  EXPECT_EQ(error_of<Unsupported>([] { gather(2); }),
            "[gather] no kernels for compute capability 8.6 of cuda:2; available: 9.0, 10.0, 10.3");
}

TEST_F(LaunchTest, AFirstCallInACaptureIsRefusedAndLeavesItAlone) {
  stream_.capturing = true;
  const std::string refusal =
      "[gather] must be called once with this shape, these options and memory aligned like this "
      "before the capture: its kernel is not loaded yet, and loading breaks a capture";
  EXPECT_EQ(error_of<BackendError>([this] { gather(0, &stream_); }), refusal);
  EXPECT_EQ(counts().compiles, 0);
  EXPECT_EQ(counts().loads, 0);
  EXPECT_EQ(counts().allocations, 0);
  EXPECT_EQ(counts().launches, 0);
  stream_.capturing = false;
  gather(0, &stream_);
  stream_.capturing = true;
  const int allocations = counts().allocations;
  gather(0, &stream_);
  EXPECT_EQ(counts().launches, 2);
  EXPECT_EQ(counts().allocations, allocations);
  EXPECT_EQ(error_of<BackendError>([this] { gather(0, &stream_, 10, 65); }), refusal);
  // The legacy stream must not be touched while another one is captured.
  machine_.legacy_stream_blocked = true;
  EXPECT_EQ(error_of<BackendError>([] { gather(0, nullptr, 10, 65); }), refusal);
  EXPECT_EQ(counts().compiles, 1);
}

TEST_F(LaunchTest, EmptyInputNeitherCompilesNorLaunches) {
  gather(0, nullptr, 0);
  EXPECT_EQ(counts().inits, 0);
  EXPECT_EQ(counts().compiles, 0);
  EXPECT_EQ(counts().launches, 0);
}

TEST_F(LaunchTest, HostCallsDoNotStartCuda) {
  const KernelTable<GatherArgs, GatherShape> host = {
      .op = "host",
      .reference = [](const GatherArgs&, const GatherShape&, const Launch&) {},
      .cuda = gather_cuda,
  };
  host.run({.backend = Backend::kReference}, {}, {1, 0, nullptr}, {1, 1});
  check_errors();
  EXPECT_EQ(counts().inits, 0);
}

TEST_F(LaunchTest, DynamicSharedMemoryIsAllowedAsItIsNeeded) {
  gather(0, nullptr, 10, 64, 1024);
  gather(0, nullptr, 10, 64, 200 * 1024);
  EXPECT_EQ(last().config.shared_bytes, 200u * 1024u);
  gather(0, nullptr, 10, 64, 60 * 1024);
  EXPECT_EQ(error_of<BackendError>([] { gather(0, nullptr, 10, 64, 300 * 1024); }),
            "[gather] cuFuncSetAttribute(MAX_DYNAMIC_SHARED_SIZE_BYTES) failed: fake error 1 "
            "(CUDA_ERROR_FAKE)");
}

TEST_F(LaunchTest, AGridBeyondTheDeviceIsRefusedNotWrapped) {
  gather(0, nullptr, (int64{1} << 33) - 4);
  EXPECT_EQ(last().config.grid[0], 2147483647u);
  EXPECT_EQ(error_of<Unsupported>([] { gather(0, nullptr, (int64{1} << 34) + 8); }),
            "[gather] grid must be within (2147483647, 65535, 65535) blocks, got (4294967298, 1, "
            "1)");
}

TEST_F(LaunchTest, ACompilersErrorIsWholeAndIsNotKept) {
  const cuda::Text before = text;
  text = {"gather", "d3", "#error"};
  EXPECT_NE(error_of<BackendError>([] { gather(); }).find("last line of the log"),
            std::string::npos);
  EXPECT_NE(error_of<BackendError>([] { gather(); }).find("last line of the log"),
            std::string::npos);
  EXPECT_EQ(counts().compiles, 2);
  EXPECT_TRUE(list_cache().empty());
  text = before;
}

TEST_F(LaunchTest, SixteenThreadsCompileAndLoadOnce) {
  machine_.compile_milliseconds = 30;
  set_cache_dir("");  // threads must not need the disk for it
  std::vector<std::thread> threads;
  for (int i = 0; i < 16; ++i) {
    threads.emplace_back([i] {
      for (int hidden = 1; hidden <= 8; ++hidden) gather(0, nullptr, 1, (hidden + i) % 8 + 1);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(counts().compiles, 8);
  EXPECT_EQ(counts().loads, 8);
  EXPECT_EQ(counts().launches, 128);
}

TEST_F(LaunchTest, SixteenProcessesCompileOnce) {
  machine_.compile_milliseconds = 50;
  std::atomic<int>& waiting = *cuda::fake::make_shared_memory<std::atomic<int>>();
  const int good = cuda::run_children(16, waiting, [this] {
    gather();
    return machine_.launches.size() == 1;
  });
  EXPECT_EQ(good, 16);
  EXPECT_EQ(counts().compiles, 1);
  EXPECT_EQ(counts().loads, 16);
}

TEST_F(LaunchTest, AForkAfterACallIsAClearError) {
  gather();
  EXPECT_TRUE(cuda::runs_well([] {
    alarm(20);
    return error_of<BackendError>([] {
             gather();
           }).find("[gather] this process was forked after CUDA was used") == 0;
  }));
  gather();
}

TEST_F(LaunchTest, FaultsAreReportedAtCheckErrorsOnce) {
  gather();
  check_errors();
  machine_.kernel = [](const cuda::fake::LaunchRecord& launch) {
    uint64* word = static_cast<const GatherArgs*>(launch.args)->fault;
    for (const int64 row : {int64{1} << 40, int64{12}, int64{90}}) {
      const uint64 found = numerics::fault_word(row, kGatherId, numerics::kFaultIndexOutOfRange);
      *word = numerics::min_of(*word, found);
    }
  };
  gather();
  gather(1);
  machine_.kernel = {};
  // Device 0's stream knows nothing of device 1.
  for (void* stream : {static_cast<void*>(&stream_), static_cast<void*>(nullptr)}) {
    try {
      check_errors({stream});
      FAIL() << "nothing thrown";
    } catch (const DataError& error) {
      EXPECT_EQ(error.row(), 12);
      EXPECT_STREQ(error.what(),
                   "[gather] indices must name an element, got an index out of range at row 12");
    }
  }
  check_errors();
  gather();
  check_errors({&stream_});
}

// Kernels of other streams go on while the error word is read and cleared.
TEST_F(LaunchTest, AFaultDuringACheckIsNotLost) {
  uint64* word = nullptr;
  const auto raise = [&](int64 row) {
    const uint64 found = numerics::fault_word(row, kGatherId, numerics::kFaultIndexOutOfRange);
    *word = numerics::min_of(*word, found);
  };
  machine_.kernel = [&](const cuda::fake::LaunchRecord& launch) {
    word = static_cast<const GatherArgs*>(launch.args)->fault;
    raise(12);
  };
  gather();
  int copies = 0;
  machine_.after_copy = [&] {
    ++copies;
    if (copies <= 2) raise(copies == 1 ? 5 : 90);
  };
  const auto row_of_check = [&] {
    try {
      check_errors({&stream_});
      return int64{-1};
    } catch (const DataError& error) {
      return error.row();
    }
  };
  EXPECT_EQ(row_of_check(), 5);
  EXPECT_EQ(row_of_check(), 90);
  EXPECT_EQ(row_of_check(), -1);
}

TEST_F(LaunchTest, FaultsAreReportedWhereTheDriverCompilesNothing) {
  machine_.compiles_ptx = false;
  gather();
  machine_.kernel = [](const cuda::fake::LaunchRecord& launch) {
    *static_cast<const GatherArgs*>(launch.args)->fault =
        numerics::fault_word(3, kGatherId, numerics::kFaultIndexOutOfRange);
  };
  gather();
  EXPECT_THROW(check_errors({&stream_}), DataError);
  check_errors({&stream_});
}

TEST_F(LaunchTest, CheckErrorsIsRefusedInACapture) {
  gather();
  stream_.capturing = true;
  EXPECT_EQ(error_of<BackendError>([this] { check_errors({&stream_}); }),
            "[check_errors] waits for the stream, which cannot be done in a capture");
}

TEST_F(LaunchTest, ACopyIsRefusedInACapture) {
  const Tensor tensor(TensorSpec({3}, DType::kF32, {DeviceType::kCuda, 0}));
  float host[3] = {};
  stream_.capturing = true;
  const auto copy_in_capture = [&] {
    copy({host, TensorSpec({3}, DType::kF32)}, tensor, {&stream_});
  };
  EXPECT_EQ(error_of<BackendError>(copy_in_capture),
            "[copy] waits for the stream, which cannot be done in a capture");
}

TEST_F(LaunchTest, MemoryComesFromThePoolAndGoesBack) {
  const Device device{DeviceType::kCuda, 1};
  const TensorSpec spec({3, 5}, DType::kF32, device);
  {
    const Tensor tensor(spec);
    EXPECT_EQ(machine_.blocks.size(), 1u);
    EXPECT_EQ(machine_.blocks.begin()->second, 256u);
    float from[15];
    float back[15] = {};
    for (int i = 0; i < 15; ++i) from[i] = static_cast<float>(i);
    const TensorSpec host({3, 5}, DType::kF32);
    copy(tensor, {from, host});
    copy({back, host}, tensor);
    EXPECT_EQ(back[14], 14.0f);
    EXPECT_THROW(copy({back, TensorSpec({15}, DType::kF32)}, tensor), std::invalid_argument);
  }
  EXPECT_TRUE(machine_.blocks.empty());
  EXPECT_TRUE(cuda::fake::context_stack.empty());
}

TEST_F(LaunchTest, SizesHave64Bits) {
  const Device device{DeviceType::kCuda, 0};
  const Tensor tensor(TensorSpec({int64_t{1} << 20, int64_t{1} << 13}, DType::kBF16, device));
  EXPECT_EQ(machine_.blocks.begin()->second, size_t{1} << 34);
  const std::vector<Tensor> two =
      Call{}.allocate({TensorSpec({(int64_t{1} << 32) + 1}, DType::kU8, device),
                       TensorSpec({16}, DType::kU8, device)});
  EXPECT_EQ(static_cast<char*>(two[1].data()) - static_cast<char*>(two[0].data()),
            (int64_t{1} << 32) + 256);
}

TEST_F(LaunchTest, MemoryThatIsNotThereIsAnError) {
  machine_.alloc_result = cuda::fake::kOutOfMemory;
  EXPECT_EQ(error_of<BackendError>([] {
              Tensor(TensorSpec({3}, DType::kF32, {DeviceType::kCuda, 0}));
            }),
            "[allocate] cuMemAllocFromPoolAsync failed: fake error 2 (CUDA_ERROR_FAKE)");
}

TEST_F(LaunchTest, CompileOnlyNeedsNoDevice) {
  {
    const CompileOnly compile_only("sm_103a");
    EXPECT_EQ(cuda::num_sms(text, {}), 132);
    for (int i = 0; i < 2; ++i) gather();
    gather(0, nullptr, 10, 128);
    ASSERT_EQ(compile_only.kernels().size(), 2u);
    const CompiledKernel& kernel = compile_only.kernels()[0];
    EXPECT_EQ(kernel.op, "gather");
    EXPECT_EQ(kernel.arch, "sm_103a");
    EXPECT_EQ(kernel.constants, "PDL=0 SHAPE={64,2} TILE={4}");
    EXPECT_EQ(kernel.registers, 40);
    EXPECT_EQ(kernel.path.find(folder_.path()), 0u);
    EXPECT_EQ(error_of<BackendError>([] { CompileOnly second("sm_90a"); }),
              "[CompileOnly] this thread has one already");
    std::thread([] { CompileOnly another_thread("sm_90a"); }).join();
    EXPECT_EQ(counts().inits, 0);
    EXPECT_EQ(counts().compiles, 2);
  }
  EXPECT_EQ(error_of<std::invalid_argument>([] { CompileOnly wrong("sm_80"); }),
            "[CompileOnly] arch must be sm_90a, sm_100a or sm_103a, got sm_80");
  gather();
  EXPECT_EQ(counts().launches, 1);
  EXPECT_EQ(cuda::num_sms(text, {{DeviceType::kCuda, 0}, {}}), 100);
}

}  // namespace
}  // namespace tilekernels
