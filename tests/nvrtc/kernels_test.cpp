// Every kernel path of every op through the real compiler, without a device: all cases for sm_90a,
// one kernel of each op for the other architectures. None may spill.
#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <set>
#include <string>

#include "cases/case.h"
#include "cases/compile.h"
#include "paths.h"
#include "runtime/cuda/compile.h"
#include "tilekernels/cache.h"
#include "tilekernels/error.h"

namespace tilekernels::cases {
namespace {

// The ops whose folder has a cuda.cuh.
std::set<std::string> ops_with_kernel() {
  namespace fs = std::filesystem;
  std::set<std::string> ops;
  for (const auto& entry : fs::recursive_directory_iterator(paths::kSource + "/src/ops")) {
    if (entry.path().filename() == "cuda.cuh") {
      ops.insert(entry.path().parent_path().filename().string());
    }
  }
  return ops;
}

// Compiles the cases of every op for `arch`; with `one_each`, up to the first kernel of each.
void compile_all(const char* arch, bool one_each) {
  if (!cuda::nvrtc_problem().empty()) GTEST_SKIP() << "absent: " << cuda::nvrtc_problem();
  const CompileOnly compile_only(arch);
  const std::set<std::string> expected = ops_with_kernel();
  std::set<std::string> compiled;
  for (const OpCases& op : all_ops()) {
    const size_t before = compile_only.kernels().size();
    const auto has_kernel = [&] { return compile_only.kernels().size() > before; };
    try {
      for (const Case& test : op.cases) {
        if (!test.error.empty() || (one_each && has_kernel())) continue;
        SCOPED_TRACE(test.id);
        compile_case(test);
      }
    } catch (const Unsupported& error) {
      EXPECT_EQ(expected.count(std::string(op.op)), 0u) << error.what();
    }
    if (has_kernel()) compiled.insert(std::string(op.op));
  }
  EXPECT_EQ(compiled, expected);
  for (const CompiledKernel& kernel : compile_only.kernels()) {
    std::printf("%s %s %s: %d registers, %d bytes shared, %lld bytes\n", kernel.op.c_str(),
                kernel.arch.c_str(), kernel.constants.c_str(), kernel.registers,
                kernel.shared_bytes, static_cast<long long>(kernel.size_bytes));
    EXPECT_EQ(kernel.spill_bytes, 0) << kernel.op << " " << kernel.constants;
  }
}

TEST(Kernels, EveryCaseForSm90a) { compile_all("sm_90a", false); }
TEST(Kernels, OneOfEachOpForSm100a) { compile_all("sm_100a", true); }
TEST(Kernels, OneOfEachOpForSm103a) { compile_all("sm_103a", true); }

}  // namespace
}  // namespace tilekernels::cases
