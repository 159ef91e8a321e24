// docs/support.md says what is true here: no kernel and no type has vanished, or come unrecorded.
#include <gtest/gtest.h>

#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "paths.h"
#include "run_tool.h"
#include "sanitized.h"

namespace tilekernels::tool {
namespace {

constexpr char kNotRunHere[] = "not run here";
constexpr char kRun[] = "yes";
constexpr char kEmulated[] = "on the emulator";
constexpr char kNoKernel[] = "–";
constexpr char kAgain[] =
    "\nupdate the table: tilekernels verify --support > docs/support.md, without a GPU "
    "scripts/emulate.sh verify --support";

using Cells = std::vector<std::string>;

// The table's lines, cut at the bars.
std::vector<Cells> table(const std::string& page) {
  std::vector<Cells> rows;
  std::istringstream lines(page);
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind("| ", 0) != 0) continue;
    Cells cells;
    for (size_t begin = 2; begin < line.size();) {
      const size_t end = line.find(" |", begin);
      if (end == std::string::npos) break;
      cells.push_back(line.substr(begin, end - begin));
      begin = end + 3;
    }
    rows.push_back(cells);
  }
  return rows;
}

// What a machine that cannot run the backend knows: only whether there is a kernel. A machine with
// a GPU and one with the emulator run the same kernels.
bool agrees(std::string here, std::string recorded) {
  if (here == kNotRunHere) return recorded != kNoKernel;
  for (std::string* cell : {&here, &recorded}) {
    if (*cell == kEmulated) *cell = kRun;
  }
  return here == recorded;
}

void compare(const std::vector<Cells>& here, const std::vector<Cells>& recorded) {
  ASSERT_GT(here.size(), 1);
  ASSERT_EQ(here[0], recorded.at(0));
  std::map<std::string, Cells> rows;
  for (const Cells& row : recorded) rows[row.at(0) + " of " + row.at(1)] = row;
  for (const Cells& row : here) {
    const std::string key = row.at(0) + " of " + row.at(1);
    ASSERT_TRUE(rows.contains(key)) << key << " is not in the table" << kAgain;
    const Cells& want = rows[key];
    ASSERT_EQ(row.size(), want.size()) << key;
    EXPECT_EQ(row[2], want[2]) << key << ": outputs" << kAgain;
    for (size_t i = 3; i < row.size(); ++i) {
      EXPECT_TRUE(agrees(row[i], want[i])) << key << " on " << here[0][i] << ": here " << row[i]
                                           << ", recorded " << want[i] << kAgain;
    }
    rows.erase(key);
  }
  for (const auto& [key, row] : rows) ADD_FAILURE() << key << " is recorded but gone" << kAgain;
}

TEST(Support, TableIsTrue) {
  if (kSanitized) {
    GTEST_SKIP() << "slow here, and the cases run under sanitizers in a test of their own";
  }
  const ToolRun run = run_tool("verify --support");
  ASSERT_EQ(run.status, 0) << run.err;
  compare(table(run.out), table(read_text(paths::kSource + "/docs/support.md")));
}

TEST(Support, AVanishedKernelIsNoticed) {
  EXPECT_TRUE(agrees(kRun, kRun));
  EXPECT_TRUE(agrees(kNotRunHere, kRun));
  EXPECT_TRUE(agrees(kNotRunHere, kNotRunHere));
  EXPECT_TRUE(agrees(kRun, kEmulated));
  EXPECT_TRUE(agrees(kEmulated, kRun));
  EXPECT_FALSE(agrees(kNoKernel, kEmulated));
  EXPECT_FALSE(agrees(kEmulated, kNotRunHere));
  EXPECT_FALSE(agrees(kNoKernel, kRun));
  EXPECT_FALSE(agrees(kNoKernel, kNotRunHere));
  EXPECT_FALSE(agrees("e4m3", kRun));
  EXPECT_FALSE(agrees(kNotRunHere, kNoKernel));
  EXPECT_FALSE(agrees(kRun, kNotRunHere));
}

}  // namespace
}  // namespace tilekernels::tool
