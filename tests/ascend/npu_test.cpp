// A call's way to an NPU, with libraries that stand in for the NPU's runtime and compiler: what is
// missing, the caches, launches, the current device, faults and memory.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <functional>
#include <limits>
#include <thread>

#include "ascend/fakes/fake.h"
#include "ascend/primitives.h"
#include "cases/verify.h"
#include "core/kernel_table.h"
#include "cuda/children.h"
#include "errors.h"
#include "ops/moe/topk_gate/ascend.h"
#include "runtime/ascend/launch.h"
#include "runtime/ascend/npu/acl.h"
#include "runtime/ascend/npu/compile.h"
#include "runtime/ascend/npu/device.h"
#include "runtime/ascend/npu/questions.h"
#include "runtime/ascend/runtime.h"
#include "tilekernels/ascend.h"
#include "tilekernels/cache.h"
#include "tilekernels/config.h"
#include "tilekernels/error.h"
#include "tilekernels/moe.h"

namespace tilekernels::ascend {
namespace {

// An op with an ascend kernel, as an op's folder would hold it.
constexpr int32 kSortId = 201;
struct SortArgs {
  int64 num_rows;
  uint64* fault;
};
struct SortShape {
  int32 hidden;
  int32 dtype;
};
struct SortTile {
  int32 stages;
};

Text text{"sort", "d1", "kernel text"};

void run(const SortArgs&, const SortShape&, const SortTile&) {}

void sort_ascend(const SortArgs& args, const SortShape& shape, const Launch& where) {
  launch<run>(text, args.num_rows, args, shape, SortTile{3}, where);
}

constexpr KernelTable<SortArgs, SortShape> kSort = {
    .op = "sort",
    .ascend = sort_ascend,
    .faults = {.op_id = kSortId, .index_out_of_range = "indices"},
};

void sort(int device = 0, void* stream = nullptr, int64 num_rows = 10, int32 hidden = 64) {
  kSort.run({.stream = {stream}}, {DeviceType::kAscend, device}, {num_rows, nullptr}, {hidden, 2});
}

const std::string kRuntime = std::string(TILEKERNELS_FAKES) + "/fake_ascendcl.so";
const std::string kCompiler = std::string(TILEKERNELS_FAKES) + "/fake_acl_rtc.so";

// A function of a stand-in, whose handle the library shares.
template <class Function>
Function* symbol(const std::string& library, const char* name) {
  void* const handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  EXPECT_NE(handle, nullptr) << dlerror();
  return reinterpret_cast<Function*>(dlsym(handle, name));
}
fake::Npu& npu_state() { return *symbol<fake::Npu*()>(kRuntime, "fake_npu")(); }
fake::Rtc& rtc_state() { return *symbol<fake::Rtc*()>(kCompiler, "fake_rtc")(); }

void forget_all() {
  jit::forget_kernels();
  npu::forget_devices();
  npu::forget_aclrtc();
  npu::forget_acl();
}

void name_libraries(const std::string& runtime, const std::string& compiler) {
  setenv("TILEKERNELS_ASCENDCL_LIBRARY", runtime.c_str(), 1);
  setenv("TILEKERNELS_ACLRTC_LIBRARY", compiler.c_str(), 1);
  forget_all();
}

class NpuTest : public testing::Test {
 protected:
  void SetUp() override {
    before_ = cache_dir();
    set_cache_dir(folder_.path());
    name_libraries(kRuntime, kCompiler);
    fake::Npu& npu = npu_state();
    npu.num_devices = 2;
    npu.num_cores = 40;
    npu.soc_name = "Ascend950PR_9589";
    npu.init_result = npu.launch_result = npu.load_result = 0;
    npu.version[1] = 16;
    npu.kernel = nullptr;
    npu.inits = npu.loads = npu.launches = 0;
    rtc_state().compile_milliseconds = 0;
    rtc_state().compiles = 0;
    symbol<void()>(kRuntime, "fake_forget_thread")();
  }
  void TearDown() override {
    set_cache_dir(before_);
    unsetenv("TILEKERNELS_ASCENDCL_LIBRARY");
    unsetenv("TILEKERNELS_ACLRTC_LIBRARY");
    forget_all();
    reset_runtime_config();
  }
  int32 current_device() {
    int32_t device = -1;
    symbol<int(int32_t*)>(kRuntime, "aclrtGetDevice")(&device);
    return device;
  }
  void* current_context() {
    void* context = nullptr;
    symbol<int(void**)>(kRuntime, "aclrtGetCurrentContext")(&context);
    return context;
  }

  cuda::Folder folder_;
  std::string before_;
};

TEST_F(NpuTest, WhatIsMissingIsOneSentence) {
  const std::string no_runtime =
      "the NPU's runtime is missing: /nowhere/a.so: cannot open shared object file: No such file "
      "or directory";
  name_libraries("/nowhere/a.so", kCompiler);
  EXPECT_EQ(npu_problem(), no_runtime);
  EXPECT_TRUE(status().available) << "the machine model needs no NPU";
  EXPECT_NE(status().detail.find("; no NPU: " + no_runtime), std::string::npos) << status().detail;
  EXPECT_EQ(error_of<BackendError>([] { sort(); }), "[sort] " + no_runtime);
  EXPECT_EQ(error_of<BackendError>([] {
              Tensor(TensorSpec({3}, DType::kF32, {DeviceType::kAscend, 0}));
            }),
            "[ascend] " + no_runtime);
  name_libraries(kRuntime, "/nowhere/b.so");
  EXPECT_EQ(error_of<BackendError>([] { sort(); }),
            "[sort] the NPU's run-time compiler is missing: /nowhere/b.so: cannot open shared "
            "object file: No such file or directory");
}

TEST_F(NpuTest, AnotherLibraryIsOneSentence) {
  name_libraries("libm.so.6", kCompiler);
  EXPECT_EQ(npu_problem(), "the NPU's runtime is too old: libm.so.6 has no aclInit");
  name_libraries(kRuntime, "libm.so.6");
  EXPECT_EQ(npu_problem(),
            "the NPU's run-time compiler is too old: libm.so.6 has no aclrtcCreateProg");
}

TEST_F(NpuTest, ARuntimeThatCannotStartIsOneSentence) {
  npu_state().init_result = 507008;
  EXPECT_EQ(npu_problem(), "the NPU's runtime cannot start: error 507008 (the fake says no)");
  name_libraries(kRuntime, kCompiler);
  npu_state().init_result = 0;
  npu_state().num_devices = 0;
  EXPECT_EQ(npu_problem(), "the NPU's runtime finds no device");
}

TEST_F(NpuTest, StatusNamesProcessorAndLibraries) {
  const std::string detail = status().detail;
  EXPECT_NE(detail.find("; NPUs: 2 of Ascend950PR_9589 (dav-3510), acl 1.16.0, aclrtc of acl "
                        "1.16.0, "),
            std::string::npos)
      << detail;
}

TEST_F(NpuTest, CallsOnHostMemoryStartNothing) {
  int64 rows = 0;
  const KernelTable<SortArgs, SortShape> host = {.op = "sort", .ascend = sort_ascend};
  uint64 word = 0;
  host.run({.backend = Backend::kAscend}, {}, {rows, &word}, {1, 1});
  check_errors();
  EXPECT_EQ(npu_state().inits, 0);
}

TEST_F(NpuTest, CompilesAndLoadsOnceAndLaunchesEachTime) {
  for (int i = 0; i < 3; ++i) sort();
  EXPECT_EQ(rtc_state().compiles, 1);
  EXPECT_EQ(rtc_state().programs, 0);
  EXPECT_EQ(npu_state().loads, 1);
  EXPECT_EQ(npu_state().launches, 3);
  EXPECT_EQ(rtc_state().last_name, "sort.asc");
  EXPECT_EQ(rtc_state().last_options,
            "--npu-arch=dav-3510\n-O3\n--cce-auto-sync=off\n-ffp-contract=off\n"
            "-DTILEKERNELS_SHAPE={64,2}\n-DTILEKERNELS_TILE={3}\n");
  sort(0, nullptr, 500);  // another number of rows is the same kernel
  EXPECT_EQ(rtc_state().compiles, 1);
  sort(0, nullptr, 10, 128);
  EXPECT_EQ(rtc_state().compiles, 2);
  const std::vector<CompiledKernel> kept = list_cache();
  ASSERT_EQ(kept.size(), 2u);
  EXPECT_EQ(kept[0].op, "sort");
  EXPECT_EQ(kept[0].arch, "dav-3510");
}

TEST_F(NpuTest, ASecondProcessTakesTheKernelFromDisk) {
  sort();
  jit::forget_kernels();
  sort();
  EXPECT_EQ(rtc_state().compiles, 1);
  EXPECT_EQ(npu_state().loads, 2);
}

TEST_F(NpuTest, AnotherTextOrToolkitIsAnotherKernel) {
  sort();
  const Text before = text;
  text = {"sort", "d2", "kernel text, changed"};
  jit::forget_kernels();
  sort();
  EXPECT_EQ(rtc_state().compiles, 2);
  text = before;
  npu_state().version[1] = 17;
  forget_all();
  sort();
  EXPECT_EQ(rtc_state().compiles, 3);
  EXPECT_EQ(list_cache().size(), 3u);
}

TEST_F(NpuTest, ACompilersErrorIsWholeAndIsNotKept) {
  const Text before = text;
  text = {"sort", "d3", "#error"};
  const std::string error = error_of<BackendError>([] { sort(); });
  text = before;
  EXPECT_EQ(error.find("[sort] aclrtc of acl 1.16.0, "), 0u) << error;
  EXPECT_NE(error.find(" cannot compile the kernel for dav-3510: error 176003\n"),
            std::string::npos)
      << error;
  EXPECT_NE(error.find("-DTILEKERNELS_SHAPE={64,2}"), std::string::npos) << error;
  EXPECT_NE(error.find("first line of the log\nlast line of the log\n"), std::string::npos)
      << error;
  EXPECT_TRUE(list_cache().empty());
  EXPECT_EQ(rtc_state().programs, 0);
}

TEST_F(NpuTest, ArgumentsCoresAndStreamArrive) {
  int stream;
  sort(1, &stream, 7);
  const fake::LaunchRecord& last = npu_state().last;
  EXPECT_EQ(last.function, "sort_kernel");
  EXPECT_EQ(last.device, 1);
  EXPECT_EQ(last.num_blocks, 7u);
  EXPECT_EQ(last.stream, &stream);
  SortArgs args;
  ASSERT_EQ(last.args.size(), sizeof(args));
  std::memcpy(&args, last.args.data(), sizeof(args));
  EXPECT_EQ(args.num_rows, 7);
  for (int64 core = 0; core < 40; ++core) {
    EXPECT_EQ(args.fault[core * kFaultPitch], numerics::kNoFault);
  }
  sort(0, nullptr, 7000);
  EXPECT_EQ(last.num_blocks, 40u);
}

TEST_F(NpuTest, ErrorsAreTyped) {
  EXPECT_EQ(error_of<std::invalid_argument>([] { sort(2); }),
            "[sort] device must be one of ascend:0..ascend:1, got ascend:2");
  npu_state().launch_result = 507015;
  EXPECT_EQ(error_of<BackendError>([] { sort(); }),
            "[sort] aclrtLaunchKernelWithHostArgs failed: error 507015 (the fake says no)");
  npu_state().launch_result = 0;
  npu_state().load_result = 107012;
  EXPECT_EQ(error_of<BackendError>([] { sort(0, nullptr, 10, 65); }),
            "[sort] aclrtBinaryLoadFromData failed: error 107012 (the fake says no)");
  npu_state().soc_name = "Ascend910B1";
  npu::forget_devices();
  EXPECT_EQ(error_of<Unsupported>([] { sort(); }),
            "[sort] no kernels for Ascend910B1 of ascend:0; available: Ascend950");
}

TEST_F(NpuTest, TheTensorsDeviceDecidesAndTheCallersContextComesBack) {
  auto* const make_context = symbol<void*(int32_t)>(kRuntime, "fake_context");
  auto* const set_context = symbol<int(void*)>(kRuntime, "aclrtSetCurrentContext");
  void* const callers = make_context(0);
  set_context(callers);
  sort(1);
  EXPECT_EQ(npu_state().last.device, 1);
  EXPECT_EQ(current_context(), callers);
  sort(0);  // the caller's own context of that device serves
  EXPECT_EQ(npu_state().last.device, 0);
  EXPECT_EQ(current_context(), callers);
  npu_state().launch_result = 1;
  EXPECT_THROW(sort(1), BackendError);
  EXPECT_EQ(current_context(), callers);
  EXPECT_EQ(rtc_state().compiles, 1) << "one architecture on two devices";
  EXPECT_EQ(npu_state().loads, 2);
  std::thread([&] {
    npu_state().launch_result = 0;
    sort(1);  // a thread without any
    EXPECT_EQ(current_device(), 1);
  }).join();
}

TEST_F(NpuTest, SixteenThreadsCompileAndLoadOnce) {
  rtc_state().compile_milliseconds = 30;
  set_cache_dir("");  // threads must not need the disk for it
  std::vector<std::thread> threads;
  for (int i = 0; i < 16; ++i) {
    threads.emplace_back([i] {
      for (int hidden = 1; hidden <= 8; ++hidden) sort(0, nullptr, 1, (hidden + i) % 8 + 1);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(rtc_state().compiles, 8);
  EXPECT_EQ(npu_state().loads, 8);
  EXPECT_EQ(npu_state().launches, 128);
}

TEST_F(NpuTest, AForkAfterACallIsAClearError) {
  sort();
  EXPECT_TRUE(cuda::runs_well([] {
    alarm(20);
    return error_of<BackendError>([] {
             sort();
           }).find("[sort] this process was forked after the NPU was used") == 0;
  }));
  sort();
}

// Cores of one launch, and launches of one stream, each lower their own word.
TEST_F(NpuTest, FaultsAreReportedAtCheckErrorsOnce) {
  int stream;
  sort(0, &stream);
  check_errors({&stream});
  npu_state().kernel = [](const fake::LaunchRecord& launch) {
    SortArgs args;
    std::memcpy(&args, launch.args.data(), sizeof(args));
    const int64 rows[] = {90, 12, int64{1} << 40};
    for (int64 core = 0; core < 3; ++core) {
      uint64& word = args.fault[core * kFaultPitch];
      word = numerics::min_of(
          word, numerics::fault_word(rows[core], kSortId, numerics::kFaultIndexOutOfRange));
    }
  };
  sort(0, &stream);
  npu_state().kernel = nullptr;
  sort(0, &stream);
  check_errors();  // another stream
  EXPECT_EQ(error_of<DataError>([&] { check_errors({&stream}); }),
            "[sort] indices must name an element, got an index out of range at row 12");
  check_errors({&stream});
}

TEST_F(NpuTest, MemoryGoesThereAndBack) {
  const Device device{DeviceType::kAscend, 1};
  const int before = npu_state().blocks;
  {
    const Tensor tensor(TensorSpec({3, 5}, DType::kF32, device));
    EXPECT_EQ(npu_state().blocks, before + 1);
    float from[15];
    float back[15] = {};
    for (int i = 0; i < 15; ++i) from[i] = static_cast<float>(i);
    const TensorSpec host({3, 5}, DType::kF32);
    copy(tensor, {from, host});
    const Tensor second(TensorSpec({3, 5}, DType::kF32, device));
    copy(second, tensor);
    copy({back, host}, second);
    EXPECT_EQ(back[14], 14.0f);
  }
  EXPECT_EQ(npu_state().blocks, before);
}

// The stand-in "runs" topk_gate on the machine model, from the arguments that arrived.
void run_topk_gate(const fake::LaunchRecord& record) {
  TopkGateArgs args;
  ASSERT_EQ(record.args.size(), sizeof(args));
  std::memcpy(&args, record.args.data(), sizeof(args));
  launch_on_model("topk_gate", record.num_blocks, args, [](const TopkGateArgs& mine) {
    topk_gate_kernel::run(mine, {.num_experts = 72, .num_topk = 6}, {.stages = 6});
  });
}

TEST_F(NpuTest, AnOpsWholeWayGivesTheBytesOfTheReference) {
  const Device device{DeviceType::kAscend, 0};
  std::vector<float> scores(9 * 72);
  for (size_t i = 0; i < scores.size(); ++i) scores[i] = static_cast<float>(i * 7919 % 1009);
  const TensorView host(scores.data(), TensorSpec({9, 72}, DType::kF32));
  const Tensor on_npu(TensorSpec({9, 72}, DType::kF32, device));
  copy(on_npu, host);
  npu_state().kernel = run_topk_gate;
  Backend ran = Backend::kReference;
  const Tensor got = topk_gate(on_npu, 6, {.ran = &ran});
  EXPECT_EQ(ran, Backend::kAscend);
  EXPECT_EQ(got.view().device, device);
  EXPECT_EQ(npu_state().last.function, "topk_gate_kernel");
  const Tensor want = topk_gate(host, 6, {.backend = Backend::kReference});
  std::vector<int64_t> back(9 * 6);
  copy({back.data(), TensorSpec({9, 6}, DType::kI64)}, got);
  EXPECT_EQ(std::memcmp(back.data(), want.data(), back.size() * 8), 0);
  // A fault of the data arrives too.
  scores[4 * 72 + 3] = std::numeric_limits<float>::infinity();
  copy(on_npu, host);
  topk_gate(on_npu, 6);
  EXPECT_EQ(error_of<DataError>([] { check_errors(); }),
            "[topk_gate] scores must be finite, got NaN or Inf at row 4");
}

// Answers the questions of the self-test that a host can: division, square root, the copy; a -0
// that loses its sign.
void answer_questions(const fake::LaunchRecord& record) {
  selftest_kernel::Args args;
  ASSERT_EQ(record.args.size(), sizeof(args));
  std::memcpy(&args, record.args.data(), sizeof(args));
  const std::string options = rtc_state().last_options;
  const auto asks = [&](int32 question) {
    return options.find("SHAPE={" + std::to_string(question) + "}") != std::string::npos;
  };
  const bool is_copy = asks(selftest_kernel::kCopy);
  const int64 words =
      args.rows * (is_copy ? selftest_kernel::kPieceWords : selftest_kernel::kWords);
  for (int64 i = 0; i < (is_copy ? 1 : words); ++i) {
    const auto a = numerics::bit_cast<float>(args.a[i]);
    const auto b = numerics::bit_cast<float>(args.b[i]);
    if (is_copy) args.out[i] = args.a[i];
    if (asks(selftest_kernel::kDivision)) args.out[i] = numerics::bit_cast<uint32>(a / b);
    if (asks(selftest_kernel::kSquareRoot)) args.out[i] = 0;
    if (asks(selftest_kernel::kNegativeZeroToE2m1)) args.out[i] = 0;
  }
}

TEST_F(NpuTest, TheSelfTestTellsWhatAnNpuAnswers) {
  set_cache_dir("");
  npu_state().kernel = answer_questions;
  const std::vector<AscendAnswer> answers = ascend_selftest(1);
  ASSERT_EQ(answers.size(), 16u);
  EXPECT_EQ(rtc_state().compiles, selftest_kernel::kNumQuestions);
  EXPECT_EQ(npu_state().last.function, "selftest_kernel");
  EXPECT_EQ(npu_state().last.device, 1);
  const auto answer_to = [&](const std::string& question) {
    for (const AscendAnswer& answer : answers) {
      if (answer.question.find(question) == 0) return answer;
    }
    return AscendAnswer{};
  };
  EXPECT_EQ(answer_to("vector cores").answer, "40");
  EXPECT_EQ(answer_to("division").answer, "equal to IEEE on all 1296");
  EXPECT_TRUE(answer_to("division").agrees);
  EXPECT_NE(answer_to("square root").answer.find(" of 1296 differ, first of "), std::string::npos)
      << answer_to("square root").answer;
  EXPECT_FALSE(answer_to("square root").agrees);
  EXPECT_EQ(answer_to("bf16 -0").answer, "loses its sign");
  EXPECT_FALSE(answer_to("bf16 -0").agrees);
  EXPECT_EQ(answer_to("the even element").answer, "none: the kernel wrote nothing");
  EXPECT_TRUE(answer_to("inactive lanes").agrees) << "no kernel relies on it";
  EXPECT_NE(answer_to("copy").answer.find(" GB/s"), std::string::npos);
  name_libraries("/nowhere/a.so", kCompiler);
  EXPECT_THROW(ascend_selftest(), BackendError);
}

}  // namespace
}  // namespace tilekernels::ascend
