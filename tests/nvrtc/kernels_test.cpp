// Every kernel path of every op through the real compiler, without a device: all cases for sm_90a,
// one kernel of each op for the other architectures. None may spill.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "cases/case.h"
#include "cases/compile.h"
#include "paths.h"
#include "runtime/cuda/compile.h"
#include "tilekernels/cache.h"
#include "tilekernels/config.h"

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

bool is_kernel_call(const Case& test) {
  return test.error.empty() && std::none_of(test.inputs.begin(), test.inputs.end(),
                                            [](const Input& x) { return x.spec.numel() == 0; });
}

// Every kernel that these cases need for `arch`, none of which may use the stack; the ops that
// have one.
std::set<std::string> compile_all(const char* arch, const std::vector<const Case*>& tests) {
  const CompiledCases compiled = compile_cases(arch, tests, 2);
  std::set<std::string> ops;
  int most_registers = 0;
  for (const CompiledKernel& kernel : compiled.kernels) {
    ops.insert(kernel.op);
    most_registers = std::max(most_registers, kernel.registers);
    EXPECT_GT(kernel.registers, 0) << kernel.op << " " << kernel.constants;
    EXPECT_EQ(kernel.spill_bytes, 0) << kernel.op << " " << kernel.constants;
    EXPECT_EQ(kernel.stack_bytes, 0) << kernel.op << " " << kernel.constants;
  }
  std::printf("%s: %zu kernels, at most %d registers\n", arch, compiled.kernels.size(),
              most_registers);
  return ops;
}

TEST(Kernels, EveryCaseForSm90a) {
  if (!cuda::nvrtc_problem().empty()) GTEST_SKIP() << "absent: " << cuda::nvrtc_problem();
  std::vector<const Case*> tests;
  for (const OpCases& op : all_ops()) {
    for (const Case& test : op.cases) tests.push_back(&test);
  }
  EXPECT_EQ(compile_all("sm_90a", tests), ops_with_kernel());
}

TEST(Kernels, AreNotKeptAmongTheUsers) {
  const char* const folder = std::getenv("TILEKERNELS_CACHE_DIR");  // set by paths.cpp
  ASSERT_NE(folder, nullptr);
  EXPECT_EQ(cache_dir(), folder);
}

// One of each op, with the dependent launch on one of the architectures.
void compile_one_each(const char* arch, bool pdl) {
  if (!cuda::nvrtc_problem().empty()) GTEST_SKIP() << "absent: " << cuda::nvrtc_problem();
  std::vector<const Case*> tests;
  for (const OpCases& op : all_ops()) {
    const auto test = std::find_if(op.cases.begin(), op.cases.end(), is_kernel_call);
    ASSERT_NE(test, op.cases.end()) << op.op;
    tests.push_back(&*test);
  }
  set_pdl(pdl);
  EXPECT_EQ(compile_all(arch, tests), ops_with_kernel());
  reset_runtime_config();
}

TEST(Kernels, OneOfEachOpForSm100a) { compile_one_each("sm_100a", false); }
TEST(Kernels, OneOfEachOpForSm103a) { compile_one_each("sm_103a", false); }
TEST(Kernels, OneOfEachOpWithPdl) { compile_one_each("sm_90a", true); }

}  // namespace
}  // namespace tilekernels::cases
