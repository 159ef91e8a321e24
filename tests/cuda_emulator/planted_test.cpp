// The emulator tells kernels with planted faults from right ones, and says where the fault is.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <numeric>

#include "cuda/children.h"
#include "errors.h"
#include "paths.h"
#include "runtime/cuda/compile.h"
#include "runtime/cuda/driver.h"
#include "runtime/cuda/launch.h"
#include "tilekernels/cache.h"
#include "tilekernels/config.h"
#include "tilekernels/error.h"
#include "tilekernels/moe.h"
#include "tilekernels/tensor.h"

namespace tilekernels {
namespace cuda {
extern const Text planted_text;
}
namespace {

struct PlantedArgs {
  const uint32_t* x;
  uint32_t* out;
  int64_t count;
};
struct PlantedShape {
  int32_t kernel;
};

struct PlantedTile {
  int32_t unused;
};
constexpr int32_t kUnknownInstruction = 19;  // in the text only when there is a Tile

constexpr Device kDevice{DeviceType::kCuda, 0};

class Emulator : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    // One folder for all: kernels are compiled once.
    folder = new cuda::Folder;
    set_cache_dir(folder->path());
    static cuda::Driver driver;
    static cuda::Nvrtc nvrtc;
    ASSERT_EQ(cuda::open_driver(paths::kEmulator.c_str(), driver), "");
    ASSERT_EQ(cuda::open_nvrtc(paths::kEmulator, nvrtc), "");
    cuda::replace_driver(&driver);
    cuda::replace_nvrtc(&nvrtc);
  }
  static void TearDownTestSuite() {
    cuda::replace_driver(nullptr);
    cuda::replace_nvrtc(nullptr);
    delete folder;
  }
  void TearDown() override {
    unsetenv("CUDA_EMULATOR_ORDER");
    set_pdl(false);
  }

  static void order(const char* text) { setenv("CUDA_EMULATOR_ORDER", text, 1); }

  // Runs a kernel on `threads` times `blocks` elements 100, 101, …; what it wrote into as many.
  static std::vector<uint32_t> run(int32_t kernel, int64_t threads = 64, int64_t blocks = 1,
                                   int64_t outputs = 0, int64_t shared_bytes = 0,
                                   int64_t count = 0) {
    const int64_t size = threads * blocks;
    std::vector<uint32_t> host(static_cast<size_t>(size));
    std::iota(host.begin(), host.end(), 100u);
    const Tensor x(TensorSpec({size}, DType::kU32, kDevice));
    copy(x, {host.data(), TensorSpec({size}, DType::kU32)});
    host.assign(static_cast<size_t>(outputs == 0 ? size : outputs), 0);
    const TensorSpec spec({static_cast<int64_t>(host.size())}, DType::kU32);
    const Tensor out(TensorSpec({spec.size(0)}, DType::kU32, kDevice));
    copy(out, {host.data(), spec});
    const PlantedArgs args{static_cast<const uint32_t*>(x.data()),
                           static_cast<uint32_t*>(out.data()), count};
    if (kernel == kUnknownInstruction) {
      cuda::launch(cuda::planted_text, {.grid = {blocks}, .block = {threads}}, args,
                   PlantedShape{kernel}, PlantedTile{1}, {.device = kDevice, .stream = {}});
    }
    cuda::launch(cuda::planted_text,
                 {.grid = {blocks}, .block = {threads}, .shared_bytes = shared_bytes}, args,
                 PlantedShape{kernel}, {.device = kDevice, .stream = {}});
    copy({host.data(), spec}, out);
    return host;
  }

  // What the launch of a wrong kernel says.
  static std::string fault(int32_t kernel, int64_t threads = 64, int64_t blocks = 1,
                           int64_t shared_bytes = 0, int64_t count = 0) {
    return error_of<BackendError>([&] { run(kernel, threads, blocks, 0, shared_bytes, count); });
  }

  static void expect_fault(const std::string& text, const std::string& part) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  }

  static cuda::Folder* folder;
};
cuda::Folder* Emulator::folder = nullptr;

TEST_F(Emulator, RunsRightKernelsInEveryOrder) {
  for (const char* text : {"forward", "reverse", "random:1", "random:2"}) {
    order(text);
    const std::vector<uint32_t> reversed = run(0, 96);
    for (uint32_t i = 0; i < 96; ++i) EXPECT_EQ(reversed[i], 195 - i) << text;
    const std::vector<uint32_t> neighbours = run(10);
    for (uint32_t i = 0; i < 64; ++i) EXPECT_EQ(neighbours[i], 100 + (i ^ 1)) << text;
    const std::vector<uint32_t> counts = run(15, 128, 1);
    EXPECT_EQ(std::vector<uint32_t>(counts.begin(), counts.begin() + 8),
              std::vector<uint32_t>(8, 16))
        << text;
  }
}

TEST_F(Emulator, FindsAMissingBarrier) {
  for (const char* text : {"forward", "reverse", "random:1"}) {
    order(text);
    expect_fault(fault(1), "reads shared memory that nobody wrote at tests/cuda_emulator/planted");
  }
}

TEST_F(Emulator, FindsLanesThatNothingOrders) {
  for (const char* text : {"forward", "reverse", "random:1"}) {
    order(text);
    expect_fault(fault(9), "of the block ");
    expect_fault(fault(9), "with nothing that orders the two at tests/cuda_emulator/planted");
  }
}

TEST_F(Emulator, FindsBarriersThatNotAllThreadsReach) {
  expect_fault(fault(2),
               "[planted] cuLaunchKernelEx failed: CUDA emulator (host): planted_kernel, block "
               "(0, 0, 0), thread (");
  expect_fault(fault(2), "barrier");
  expect_fault(fault(3), "waits at the barrier of tests/cuda_emulator/planted.cuh:");
  expect_fault(fault(3), ", but thread (");
}

TEST_F(Emulator, FindsAccessesOutsideOfMemory) {
  expect_fault(fault(4), "thread (63, 0, 0) writes 4 bytes at 0x");
  expect_fault(fault(4), "0 bytes behind the end of a block of 256 bytes at tests/cuda_emulator/");
  expect_fault(fault(20), "thread (0, 0, 0) reads 4 bytes at a null pointer");
}

TEST_F(Emulator, FindsMisalignedAccesses) {
  expect_fault(fault(5), "thread (0, 0, 0) reads 16 bytes at 0x");
  expect_fault(fault(5), ", which is no multiple of 16 at runtime/cuda/device/memory.cuh:");
}

TEST_F(Emulator, FindsWrongLaneMasks) {
  expect_fault(fault(6),
               "waits at __shfl_xor_sync with the mask 0xffffffff for lane 16, which waits at "
               "__syncwarp with the mask 0xffffffff");
  expect_fault(fault(7),
               "thread (16, 0, 0) calls __ballot_sync with the mask 0x0000ffff, which "
               "does not name its own lane");
  expect_fault(fault(8), "names lane 3 that has left the kernel");
  expect_fault(fault(22), "reads lane 20 in __shfl_sync, which the mask 0x0000ffff does not name");
}

TEST_F(Emulator, FindsReadsOfWhatNobodyWrote) {
  expect_fault(fault(11), "thread (0, 0, 0) reads shared memory that nobody wrote");
}

TEST_F(Emulator, OrdersShowWhatDependsOnThem) {
  order("forward");
  EXPECT_EQ(run(12)[0], 63u);
  order("reverse");
  EXPECT_EQ(run(12)[0], 0u);
}

TEST_F(Emulator, BlocksMayWaitForEachOther) {
  for (const char* text : {"forward", "reverse", "random:3"}) {
    order(text);
    const std::vector<uint32_t> flags = run(13, 32, 5);
    EXPECT_EQ(std::vector<uint32_t>(flags.begin(), flags.begin() + 5),
              (std::vector<uint32_t>{1, 2, 3, 4, 5}));
  }
  expect_fault(fault(14, 32), "for a flag that nobody sets");
}

TEST_F(Emulator, GivesDynamicSharedMemoryAsFarAsItGoes) {
  const std::vector<uint32_t> reversed = run(16, 64, 1, 0, 256);
  for (uint32_t i = 0; i < 64; ++i) EXPECT_EQ(reversed[i], 163 - i);
  expect_fault(fault(17, 64, 1, 256),
               "thread (63, 0, 0) writes 4 bytes at byte 256 of dynamic shared memory, which has "
               "256");
}

TEST_F(Emulator, LanesGiveEachOtherWhatTheyShould) {
  const std::vector<uint32_t> out = run(18, 64, 1, 12 * 64);
  for (uint32_t i = 0; i < 64; ++i) {
    const uint32_t lane = i % 32;
    const uint32_t* mine = &out[12 * i];
    EXPECT_EQ(mine[0], i / 8 * 8 + 5);
    EXPECT_EQ(mine[1], i % 16 >= 3 ? i - 3 : i);
    EXPECT_EQ(mine[2], i % 16 < 13 ? i + 3 : i);
    EXPECT_EQ(mine[3], i ^ 9);
    EXPECT_EQ(mine[4], 0x49249249u);
    EXPECT_EQ(mine[5], 1u);
    uint32_t same = 0;
    for (uint32_t other = 0; other < 32; ++other) same |= (other % 5 == lane % 5) << other;
    EXPECT_EQ(mine[6], same);
    EXPECT_EQ(mine[7], 496u);
    EXPECT_EQ(mine[8], static_cast<uint32_t>(-9));
    uint32_t upper = 0;
    for (uint32_t other = 8; other < 32; ++other) upper ^= other;
    EXPECT_EQ(mine[9], lane < 8 ? 7u : upper);
    EXPECT_EQ(mine[10], 32u);
    EXPECT_EQ(mine[11], (1u << lane) - 1);
  }
}

TEST_F(Emulator, NamesAnInstructionThatItDoesNotHave) {
  expect_fault(fault(kUnknownInstruction), "bfind_u32");
}

TEST_F(Emulator, FindsMemoryTouchedBeforeTheWaitOfADependentLaunch) {
  set_pdl(true);
  expect_fault(fault(0), "thread (0, 0, 0) touches memory before it waited for the kernel before");
  const std::vector<uint32_t> waited = run(0, 96, 1, 0, 0, -1);
  for (uint32_t i = 0; i < 96; ++i) EXPECT_EQ(waited[i], 195 - i);
}

TEST_F(Emulator, FindsLaunchesBeyondTheBounds) {
  expect_fault(fault(0, 512), "is launched with 512 threads a block, at most 256");
}

// Two forms of one kernel, of which a stream may have run both since it was asked.
TEST_F(Emulator, FaultsNameTheOpThatFoundThem) {
  const auto filled = [](const TensorSpec& spec, int32_t value) {
    Tensor made(spec);
    std::vector<int32_t> words(static_cast<size_t>(spec.numel()), value);
    copy(made, {words.data(), TensorSpec(spec.shape, spec.dtype)});
    return made;
  };
  const Tensor right = filled({{1, 1}, DType::kI32, kDevice}, 0);
  const Tensor wrong = filled({{1, 1}, DType::kI32, kDevice}, 2);
  const Tensor experts = filled({{2}, DType::kI32, kDevice}, 0);
  const Tensor x = filled({{1, 64}, DType::kE4M3, kDevice}, 0);
  const Tensor sf = filled({{1, 2}, DType::kF32, kDevice}, 0);
  const auto fault_of = [&](const Tensor& plain, const Tensor& with_sf) {
    expand_to_fused(x, plain, experts);
    expand_to_fused_with_sf({x, sf}, 32, with_sf, experts);
    return error_of<DataError>([] { check_errors(); });
  };
  EXPECT_EQ(fault_of(wrong, right).rfind("[expand_to_fused] ", 0), 0u) << fault_of(wrong, right);
  EXPECT_EQ(fault_of(right, wrong).rfind("[expand_to_fused_with_sf] ", 0), 0u);
}

TEST_F(Emulator, SaysWhatItIs) {
  EXPECT_NE(backends()[static_cast<size_t>(Backend::kCuda)].detail.find("CUDA emulator (host)"),
            std::string::npos);
}

}  // namespace
}  // namespace tilekernels
