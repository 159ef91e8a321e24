// Runs the built command as a user does.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>

#include "gtest/gtest.h"
#include "paths.h"

namespace tilekernels::tool {

struct ToolRun {
  int status;  ///< -1 when it did not exit by itself
  std::string out;
  std::string err;
};

inline std::string read_text(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

/// A path of this test's own.
inline std::string test_path(const std::string& file) {
  return testing::TempDir() + "tilekernels-" + std::to_string(getpid()) + "-" + file;
}

/// `arguments` and `environment` are shell text; no setting of ours is inherited.
inline ToolRun run_tool(const std::string& arguments, const std::string& environment = "") {
  const std::string out = test_path("out");
  const std::string err = test_path("err");
  const std::string command =
      "env -u TILEKERNELS_BACKEND -u TILEKERNELS_NUM_THREADS -u TILEKERNELS_CPU_TARGET "
      "-u TILEKERNELS_CHECK_DATA " +
      environment + " '" + paths::kTool + "' " + arguments + " >'" + out + "' 2>'" + err + "'";
  const int status = std::system(command.c_str());
  ToolRun run{WIFEXITED(status) ? WEXITSTATUS(status) : -1, read_text(out), read_text(err)};
  unlink(out.c_str());
  unlink(err.c_str());
  return run;
}

}  // namespace tilekernels::tool
