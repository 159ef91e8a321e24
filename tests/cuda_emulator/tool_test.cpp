// What the command says about the emulator, so that nobody takes it for a GPU.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "paths.h"
#include "tool/run_tool.h"

namespace tilekernels::tool {
namespace {

ToolRun run_emulated(const std::string& arguments, const std::string& environment = "") {
  return run_tool(arguments, "TILEKERNELS_CUDA_LIBRARY='" + paths::kEmulator +
                                 "' TILEKERNELS_NVRTC_LIBRARY='" + paths::kEmulator +
                                 "' TILEKERNELS_CACHE_DIR= HOME= " + environment);
}

TEST(EmulatorTool, InfoNamesTheEmulator) {
  const ToolRun run = run_emulated("info");
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_NE(run.out.find("cuda      yes CUDA emulator (host) (sm_90a)"), std::string::npos)
      << run.out;
}

TEST(EmulatorTool, NothingIsRecorded) {
  const std::string file = test_path("record.json");
  const ToolRun verify = run_emulated("verify topk_gate --backend cuda --record '" + file + "'");
  EXPECT_EQ(verify.status, 2);
  EXPECT_NE(verify.err.find("--record keeps runs on machines, and the device of cuda is the CUDA "
                            "emulator (host)"),
            std::string::npos)
      << verify.err;
  const ToolRun bench = run_emulated("bench topk_gate --backend cuda --record '" + file + "'");
  EXPECT_EQ(bench.status, 2);
  EXPECT_NE(bench.err.find("bench times machines, and the device of cuda is the CUDA emulator"),
            std::string::npos)
      << bench.err;
  EXPECT_FALSE(std::filesystem::exists(file));
}

// Before any kernel is compiled, and once, not at every case.
TEST(EmulatorTool, AWrongOrderIsToldAtOnce) {
  for (const std::string order : {"sideways", "random:", "random:x", "random:1x", "random:-1"}) {
    const ToolRun run = run_emulated("verify topk_gate --backend cuda --small",
                                     "CUDA_EMULATOR_ORDER='" + order + "'");
    EXPECT_EQ(run.status, 1);
    EXPECT_EQ(run.out, "");
    EXPECT_NE(
        run.err.find("CUDA_EMULATOR_ORDER must be forward, reverse or random:SEED, got " + order),
        std::string::npos)
        << run.err;
    EXPECT_EQ(std::count(run.err.begin(), run.err.end(), '\n'), 1) << run.err;
  }
  const ToolRun info = run_emulated("info", "CUDA_EMULATOR_ORDER=sideways");
  EXPECT_NE(info.out.find("cuda      no  "), std::string::npos) << info.out;
  EXPECT_NE(info.out.find("random:SEED, got sideways"), std::string::npos) << info.out;
}

}  // namespace
}  // namespace tilekernels::tool
