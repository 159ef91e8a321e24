// The judge on device memory: a made-up op whose kernel runs on the fake machine.
#include "cases/verify.h"

#include <gtest/gtest.h>

#include "cases/compile.h"
#include "core/kernel_table.h"
#include "cuda/children.h"
#include "cuda/fake.h"
#include "errors.h"
#include "runtime/cuda/launch.h"
#include "tilekernels/cache.h"
#include "tilekernels/error.h"

namespace tilekernels::cases {
namespace {

constexpr int32 kInvertId = 201;
struct InvertArgs {
  const uint8* x;
  uint8* out;
  int64 count;
  uint64* fault;
};
struct InvertShape {
  int32 unused;
};

void invert_bytes(const InvertArgs& args) {
  for (int64 i = 0; i < args.count; ++i) {
    args.out[i] = static_cast<uint8>(~args.x[i]);
    const uint64 word = numerics::fault_word(i, kInvertId, numerics::kFaultIndexOutOfRange);
    if (args.x[i] == 77) *args.fault = numerics::min_of(*args.fault, word);
  }
}

void invert_reference(const InvertArgs& args, const InvertShape&, const Launch&) {
  invert_bytes(args);
}

const cuda::Text text{"invert", "d1", "kernel text"};
void invert_cuda(const InvertArgs& args, const InvertShape& shape, const Launch& where) {
  // A misaligned output takes another kernel, as a narrow path would.
  InvertShape path = shape;
  path.unused = reinterpret_cast<uintptr_t>(args.out) % 2 == 0 ? 16 : 1;
  cuda::launch(text, {.grid = {args.count}}, args, path, where);
}

constexpr KernelTable<InvertArgs, InvertShape> kInvert = {
    .op = "invert",
    .reference = invert_reference,
    .cuda = invert_cuda,
    .faults = {.op_id = kInvertId, .index_out_of_range = "x"},
};

void invert_out(const TensorView& out, const TensorView& x, const Call& call) {
  kInvert.run(
      call, x.device,
      {static_cast<const uint8*>(x.data), static_cast<uint8*>(out.data), x.numel(), nullptr}, {16});
}

Case make(std::vector<uint8_t> x, const std::string& fault = "") {
  const TensorSpec spec({static_cast<int64_t>(x.size())}, DType::kU8);
  Case test{
      .id = "invert/bytes",
      .inputs = {{"x", spec, Fill::kGiven, std::move(x)}},
      .outputs = {"out"},
      .spec = [](const Specs& in) { return Specs{in[0]}; },
      .out = [](const Views& out, const Views& in,
                const Call& call) { invert_out(out[0], in[0], call); },
      .alloc =
          [](const Views& in, const Call& call) {
            std::vector<Tensor> out{call.allocate(in[0])};
            invert_out(out[0], in[0], call);
            return out;
          },
  };
  test.fault = fault;
  return test;
}

class CudaVerifyTest : public testing::Test {
 protected:
  void SetUp() override {
    before_ = cache_dir();
    set_cache_dir(folder_.path());
    run_kernel([](const InvertArgs& args) { invert_bytes(args); });
  }
  void TearDown() override { set_cache_dir(before_); }

  void run_kernel(const std::function<void(const InvertArgs&)>& kernel) {
    machine_.kernel = [kernel](const cuda::fake::LaunchRecord& launch) {
      kernel(*static_cast<const InvertArgs*>(launch.args));
    };
  }

  cuda::Folder folder_;
  std::string before_;
  cuda::fake::Machine machine_;
  cuda::fake::Install install_{machine_};
};

TEST_F(CudaVerifyTest, PassesARightKernelOnDeviceMemory) {
  const Verdict verdict = verify(make({1, 2, 250}), Backend::kCuda);
  EXPECT_TRUE(verdict.passed) << verdict.failure;
  EXPECT_EQ(verdict.elements, 6);
  EXPECT_EQ(machine_.counts->launches, 3);
  // The error word is all that is left.
  EXPECT_EQ(machine_.blocks.size(), 1u);
}

TEST_F(CudaVerifyTest, FindsAWrongByte) {
  run_kernel([](const InvertArgs& args) {
    invert_bytes(args);
    args.out[1] ^= 1;
  });
  const Verdict verdict = verify(make({1, 2, 250}), Backend::kCuda);
  EXPECT_FALSE(verdict.passed);
  EXPECT_NE(verdict.failure.find("out u8 (3) on cuda:0: 1 of 3 elements differ"), std::string::npos)
      << verdict.failure;
}

TEST_F(CudaVerifyTest, FindsWhatIsWrongOnlyWithMisalignedTensors) {
  run_kernel([](const InvertArgs& args) {
    invert_bytes(args);
    if (reinterpret_cast<uintptr_t>(args.out) % 2 != 0) args.out[2] ^= 1;
  });
  const Verdict verdict = verify(make({1, 2, 250}), Backend::kCuda);
  EXPECT_FALSE(verdict.passed);
  EXPECT_EQ(verdict.elements, 3) << "the aligned pass is right";
}

TEST_F(CudaVerifyTest, FindsAByteThatNobodyWrites) {
  run_kernel([](InvertArgs args) {
    --args.count;
    invert_bytes(args);
  });
  EXPECT_FALSE(verify(make({1, 2, 250}), Backend::kCuda).passed);
}

TEST_F(CudaVerifyTest, FindsAWriteBesideAnOutput) {
  run_kernel([](const InvertArgs& args) {
    invert_bytes(args);
    args.out[args.count] = 0;
  });
  const Verdict verdict = verify(make({1, 2, 250}), Backend::kCuda);
  EXPECT_NE(verdict.failure.find("out was written outside its bytes"), std::string::npos)
      << verdict.failure;
}

TEST_F(CudaVerifyTest, ExpectsTheFaultAtTheSynchronisation) {
  const char fault[] = "[invert] x must name an element, got an index out of range at row 1";
  const Verdict right = verify(make({1, 77, 77}, fault), Backend::kCuda);
  EXPECT_TRUE(right.passed) << right.failure;
  run_kernel([](const InvertArgs& args) {
    uint64 unused = 0;
    InvertArgs silent = args;
    silent.fault = &unused;
    invert_bytes(silent);
  });
  EXPECT_FALSE(verify(make({1, 77, 77}, fault), Backend::kCuda).passed);
}

TEST_F(CudaVerifyTest, CompilesACaseOnBothPathsWithoutADevice) {
  const CompileOnly compile_only("sm_90a");
  compile_case(make({1, 2, 250}));
  ASSERT_EQ(compile_only.kernels().size(), 2u);
  EXPECT_EQ(compile_only.kernels()[0].constants, "PDL=0 SHAPE={16}");
  EXPECT_EQ(compile_only.kernels()[1].constants, "PDL=0 SHAPE={1}");
  EXPECT_EQ(machine_.counts->inits, 0);
}

TEST_F(CudaVerifyTest, CompilesCasesByThreadsAndKeepsEachKernelOnce) {
  const Case first = make({1, 2, 250});
  const Case second = make({3, 4});
  Case bad = make({});
  bad.error = "a bad call";
  const CompiledCases compiled = compile_cases("sm_90a", {&first, &bad, &second, &first}, 3);
  ASSERT_EQ(compiled.kernels.size(), 2u);
  EXPECT_EQ(compiled.kernels[0].constants, "PDL=0 SHAPE={16}");
  EXPECT_EQ(compiled.kernels[1].constants, "PDL=0 SHAPE={1}");
  EXPECT_EQ(compiled.kernels[0].cubin.compare(0, 4, "FAKE"), 0);
  EXPECT_TRUE(compiled.unsupported.empty());
}

TEST_F(CudaVerifyTest, NamesTheCaseThatDoesNotCompile) {
  Case broken = make({1});
  broken.out = [](const Views&, const Views&, const Call&) { throw BackendError("no room"); };
  EXPECT_EQ(error_of<BackendError>([&] { compile_cases("sm_90a", {&broken}, 2); }),
            broken.id + ": no room");
}

}  // namespace
}  // namespace tilekernels::cases
