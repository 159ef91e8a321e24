// What the command says about the emulator, so that nobody takes it for a GPU.
#include <gtest/gtest.h>

#include <filesystem>

#include "paths.h"
#include "tool/run_tool.h"

namespace tilekernels::tool {
namespace {

ToolRun run_emulated(const std::string& arguments) {
  return run_tool(arguments, "TILEKERNELS_CUDA_LIBRARY='" + paths::kEmulator +
                                 "' TILEKERNELS_NVRTC_LIBRARY='" + paths::kEmulator +
                                 "' TILEKERNELS_CACHE_DIR= HOME= ");
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

}  // namespace
}  // namespace tilekernels::tool
