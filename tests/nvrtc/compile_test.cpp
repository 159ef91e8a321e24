// The real compiler, without a device: a sample kernel for every architecture.
#include "runtime/cuda/compile.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>

#include "errors.h"
#include "runtime/cuda/launch.h"
#include "tilekernels/error.h"

namespace tilekernels::cuda {

extern const Text sample_text;

namespace {

CompileJob job(std::string_view arch, bool pdl = false) {
  return {&sample_text, {7168, 3}, {128}, arch, pdl};
}

TEST(Nvrtc, CompilesForEveryArchitectureWithoutSpills) {
  if (!nvrtc_problem().empty()) GTEST_SKIP() << "absent: " << nvrtc_problem();
  std::printf("%s\n", nvrtc().identity.c_str());
  for (const char* arch : {"sm_90a", "sm_100a", "sm_103a"}) {
    for (const bool pdl : {false, true}) {
      const auto begin = std::chrono::steady_clock::now();
      const Compiled compiled = compile(job(arch, pdl), nvrtc());
      const std::chrono::duration<double, std::milli> time =
          std::chrono::steady_clock::now() - begin;
      std::printf("sample %s pdl %d: %.0f ms, %zu bytes, %d registers, %d bytes shared\n", arch,
                  pdl, time.count(), compiled.binary.size(), compiled.resources.registers,
                  compiled.resources.shared_bytes);
      EXPECT_EQ(compiled.binary.compare(0, 4, "\177ELF"), 0);
      EXPECT_NE(compiled.binary.find("sample_kernel"), std::string::npos);
      EXPECT_GT(compiled.resources.registers, 0);
      EXPECT_EQ(compiled.resources.shared_bytes, 512);
      EXPECT_EQ(compiled.resources.spill_bytes, 0);
      EXPECT_EQ(compiled.resources.stack_bytes, 0);
    }
  }
}

TEST(Nvrtc, EqualJobsGiveEqualBytes) {
  if (!nvrtc_problem().empty()) GTEST_SKIP() << "absent: " << nvrtc_problem();
  EXPECT_EQ(compile(job("sm_90a"), nvrtc()).binary, compile(job("sm_90a"), nvrtc()).binary);
}

TEST(Nvrtc, AnErrorNamesTheLine) {
  if (!nvrtc_problem().empty()) GTEST_SKIP() << "absent: " << nvrtc_problem();
  CompileJob broken = job("sm_90a");
  broken.tile = {128, 1};  // one value more than the Tile has
  const std::string text = error_of<BackendError>([&] { compile(broken, nvrtc()); });
  EXPECT_EQ(text.find("[sample] nvrtc "), 0u) << text;
  // The line of kTile in sample.cuh, whatever was included before it.
  EXPECT_NE(text.find("tests/nvrtc/sample.cuh(27): error: too many initializer values"),
            std::string::npos)
      << text;
}

// The binary of a kernel that stores `expression` of x[0], a and b.
std::string binary_of(const std::string& expression) {
  const std::string source =
      "extern \"C\" __global__ void bits_kernel(float* x, float a, float b) { float y; " +
      expression + " x[0] = y; }\n";
  const Text text{"bits", "1", source.c_str()};
  return compile({&text, {1}, {}, "sm_90a", false}, nvrtc()).binary;
}

TEST(Nvrtc, ContractsNothingFlushesNothingDividesExactly) {
  if (!nvrtc_problem().empty()) GTEST_SKIP() << "absent: " << nvrtc_problem();
  const std::string plain = binary_of("y = a * x[0] + b;");
  EXPECT_EQ(plain, binary_of("y = __fadd_rn(__fmul_rn(a, x[0]), b);"));
  EXPECT_EQ(plain, binary_of("asm(\"{ .reg .f32 p; mul.rn.f32 p, %1, %2; add.rn.f32 %0, p, %3; }\""
                             " : \"=f\"(y) : \"f\"(a), \"f\"(x[0]), \"f\"(b));"));
  EXPECT_NE(plain, binary_of("y = __fmaf_rn(a, x[0], b);"));
  EXPECT_EQ(binary_of("y = x[0] / a;"), binary_of("y = __fdiv_rn(x[0], a);"));
  EXPECT_NE(binary_of("y = x[0] / a;"), binary_of("y = __fdividef(x[0], a);"));
}

}  // namespace
}  // namespace tilekernels::cuda
