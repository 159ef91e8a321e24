// The command's subcommands: exit statuses, what they print, forced and bad settings.
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "cases/case.h"
#include "run_tool.h"
#include "tilekernels/config.h"
#include "tilekernels/device.h"
#include "tilekernels/version.h"

namespace tilekernels::tool {
namespace {

using nlohmann::json;

// Cases that run in no time, and how many there are.
constexpr char kFew[] = "topk_gate/tokens=5";

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// The text with every run of spaces as one.
std::string squeezed(const std::string& text) {
  std::string result;
  for (char c : text) {
    if (c != ' ' || result.empty() || result.back() != ' ') result += c;
  }
  return result;
}

bool is_available(Backend backend) { return backends()[static_cast<size_t>(backend)].available; }

std::string an_absent_backend() {
  for (const BackendStatus& status : backends()) {
    if (!status.available) return std::string(name(status.backend));
  }
  return "";
}

int count_cases(const std::string& prefix, bool bench) {
  int count = 0;
  for (const cases::OpCases& op : cases::all_ops()) {
    for (const cases::Case& test : op.cases) {
      count += test.bench == bench && test.id.rfind(prefix, 0) == 0 ? 1 : 0;
    }
  }
  return count;
}

std::vector<json> json_lines(const std::string& text) {
  std::vector<json> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(json::parse(line));
  return lines;
}

TEST(Tool, SaysItsVersionAndHelp) {
  EXPECT_EQ(run_tool("--version").out, std::string("tilekernels ") + version() + "\n");
  const ToolRun help = run_tool("--help");
  EXPECT_EQ(help.status, 0);
  for (const char* command : {"info", "verify", "bench"}) {
    EXPECT_TRUE(has(help.out, command)) << help.out;
    EXPECT_EQ(run_tool(std::string(command) + " --help").status, 0);
  }
}

TEST(Tool, UsageErrorsExitWith2) {
  for (const char* arguments : {"",
                                "nosuch",
                                "--nosuch",
                                "info extra",
                                "verify --nosuch",
                                "verify --backend",
                                "verify --backend gpu",
                                "verify nosuch",
                                "verify topk_gate/nosuch",
                                "verify --target NOSUCH",
                                "verify --all-targets --target NOSUCH",
                                "bench nosuch",
                                "bench --reps 0",
                                "bench --min-time -1",
                                "bench --reps x",
                                "bench --reps 3 --min-time 1",
                                "bench topk_gate/ties",
                                "bench --host-cost",
                                "bench --cupti /nosuch",
                                "cache warm --threads 0",
                                "cache warm --arch sm_80",
                                "cache warm --arch sm_90a absent_op"}) {
    const ToolRun run = run_tool(arguments);
    EXPECT_EQ(run.status, 2) << arguments << "\n" << run.out << run.err;
    EXPECT_FALSE(run.err.empty()) << arguments;
    EXPECT_EQ(run.out, "") << arguments;
  }
}

TEST(Tool, NamesTheOpsWhenNoCaseMatches) {
  const ToolRun run = run_tool("verify nosuch");
  EXPECT_TRUE(has(run.err, "no case matches \"nosuch\"")) << run.err;
  for (const cases::OpCases& op : cases::all_ops()) {
    EXPECT_TRUE(has(run.err, std::string(op.op))) << run.err;
  }
}

TEST(Tool, AnAbsentBackendFailsOnlyWhenAskedFor) {
  const std::string absent = an_absent_backend();
  if (absent.empty()) GTEST_SKIP() << "every backend is here";
  const ToolRun asked = run_tool("verify --backend " + absent);
  EXPECT_EQ(asked.status, 1);
  EXPECT_TRUE(has(asked.err, "backend " + absent + " is not available: ")) << asked.err;
  const ToolRun forced = run_tool("verify", "TILEKERNELS_BACKEND=" + absent);
  EXPECT_EQ(forced.status, 1);
  EXPECT_TRUE(has(forced.err, "backend " + absent + " is not available: ")) << forced.err;
  const ToolRun all = run_tool(std::string("verify ") + kFew);
  EXPECT_EQ(all.status, 0);
  EXPECT_TRUE(has(all.out, "absent: " + absent + " (")) << all.out;
}

TEST(Tool, BadSettingsAreUsageErrorsThatNameTheVariable) {
  for (const char* setting :
       {"TILEKERNELS_BACKEND=gpu", "TILEKERNELS_NUM_THREADS=many", "TILEKERNELS_NUM_THREADS=-1",
        "TILEKERNELS_CHECK_DATA=maybe", "TILEKERNELS_CPU_TARGET=NOSUCH"}) {
    const std::string variable = std::string(setting).substr(0, std::string(setting).find('='));
    const ToolRun run = run_tool("verify topk_gate", setting);
    EXPECT_EQ(run.status, 2) << setting;
    EXPECT_TRUE(has(run.err, variable)) << run.err;
  }
}

TEST(Info, ReportsWrongSettingsAndShowsTheRest) {
  const std::string wrong =
      "TILEKERNELS_CPU_TARGET=NO\x9b TILEKERNELS_BACKEND=gpu TILEKERNELS_NUM_THREADS=3";
  const ToolRun run = run_tool("info", wrong);
  EXPECT_EQ(run.status, 2);
  EXPECT_TRUE(has(run.out, "TILEKERNELS_BACKEND must be reference, cpu, cuda or ascend, got gpu"))
      << run.out;
  EXPECT_TRUE(has(run.out, "TILEKERNELS_CPU_TARGET must be ")) << run.out;
  EXPECT_TRUE(has(run.out, ", got NO\\x9b")) << run.out;
  EXPECT_TRUE(has(squeezed(run.out), "TILEKERNELS_NUM_THREADS 3 ")) << run.out;
  EXPECT_TRUE(has(run.out, "Backends")) << run.out;
  const ToolRun as_json = run_tool("info --json", wrong);
  EXPECT_EQ(as_json.status, 2);
  EXPECT_EQ(json::parse(as_json.out)["errors"].size(), 2u);
}

TEST(Info, ShowsEveryBackendAndSettingOnOneScreen) {
  const ToolRun run = run_tool("info", "TILEKERNELS_NUM_THREADS=3 TILEKERNELS_BACKND=cpu");
  EXPECT_EQ(run.status, 0);
  EXPECT_TRUE(has(run.out, version()));
  for (const BackendStatus& status : backends()) {
    EXPECT_TRUE(has(run.out, std::string(name(status.backend)))) << run.out;
    if (status.available) continue;
    EXPECT_TRUE(has(run.out, status.detail)) << run.out;
  }
  EXPECT_TRUE(has(squeezed(run.out), "TILEKERNELS_NUM_THREADS 3 ")) << run.out;
  EXPECT_TRUE(has(squeezed(run.out), "TILEKERNELS_BACKND ignored ")) << run.out;
  EXPECT_LE(std::count(run.out.begin(), run.out.end(), '\n'), 40);
}

TEST(Info, CountsOneThreadInTheSingular) {
  const ToolRun run = run_tool("info", "TILEKERNELS_NUM_THREADS=1");
  EXPECT_TRUE(has(run.out, ", 1 thread\n")) << run.out;
}

TEST(Info, PrintsJson) {
  const ToolRun run = run_tool("info --json", "TILEKERNELS_BACKEND=reference");
  ASSERT_EQ(run.status, 0);
  const json info = json::parse(run.out);
  EXPECT_EQ(info["version"], version());
  EXPECT_EQ(info["backends"].size(), kNumBackends);
  EXPECT_EQ(info["cpu_targets"], json(cpu_targets()));
  EXPECT_EQ(info["settings"][0]["in_force"], "reference");
  EXPECT_EQ(info["settings"][0]["set"], true);
  EXPECT_FALSE(info["machine"]["cpu"].get<std::string>().empty());
}

TEST(Verify, CountsEveryCaseOnEveryBackendHere) {
  const ToolRun run = run_tool(std::string("verify ") + kFew);
  EXPECT_EQ(run.status, 0) << run.out;
  const std::string n = std::to_string(count_cases(kFew, false));
  int rows = 0;
  std::istringstream stream(run.out);
  for (std::string line; std::getline(stream, line);) {
    if (line.rfind("topk_gate", 0) != 0) continue;
    EXPECT_TRUE(has(line, n + "/" + n)) << line;
    ++rows;
  }
  int available = 0;
  for (const BackendStatus& status : backends()) available += status.available ? 1 : 0;
  EXPECT_EQ(rows, available) << run.out;
  EXPECT_TRUE(has(run.out, "All ")) << run.out;
}

TEST(Verify, RunsOnlyTheForcedBackend) {
  for (const bool by_variable : {false, true}) {
    const ToolRun run =
        by_variable ? run_tool(std::string("verify ") + kFew, "TILEKERNELS_BACKEND=reference")
                    : run_tool(std::string("verify --backend reference ") + kFew);
    EXPECT_EQ(run.status, 0) << run.err;
    EXPECT_TRUE(has(run.out, "topk_gate  reference")) << run.out;
    EXPECT_FALSE(has(run.out, "topk_gate  cpu")) << run.out;
    EXPECT_FALSE(has(run.out, "absent")) << run.out;
  }
}

TEST(Verify, RunsEveryTarget) {
  if (!is_available(Backend::kCpu)) GTEST_SKIP() << "absent: cpu";
  const std::string path = test_path("verify.json");
  const ToolRun run =
      run_tool(std::string("verify --all-targets --backend cpu ") + kFew + " --record " + path);
  EXPECT_EQ(run.status, 0) << run.out;
  std::vector<std::string> targets;
  const json record = json::parse(read_text(path));
  unlink(path.c_str());
  for (const json& result : record["results"]) targets.push_back(result["target"]);
  EXPECT_EQ(targets, cpu_targets());
  const ToolRun one =
      run_tool(std::string("verify --backend cpu --target ") + cpu_targets().back() + " " + kFew);
  EXPECT_EQ(one.status, 0);
  EXPECT_TRUE(has(one.out, cpu_targets().back()));
}

TEST(Verify, TakesAFewSmallCases) {
  const ToolRun run = run_tool("verify topk_gate per_block_cast --small --backend cpu");
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_TRUE(has(run.out, "All 60 cases passed")) << run.out;
}

TEST(Verify, CountsOneCaseInTheSingular) {
  const std::string one = cases::all_ops().front().cases.front().id;
  const ToolRun run = run_tool("verify --backend reference '" + one + "'");
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_TRUE(has(run.out, "The one case passed")) << run.out;
}

TEST(Verify, Records) {
  const std::string path = test_path("verify.json");
  const ToolRun run =
      run_tool(std::string("verify --backend reference ") + kFew + " --record '" + path + "'");
  ASSERT_EQ(run.status, 0) << run.err;
  const json record = json::parse(read_text(path));
  unlink(path.c_str());
  EXPECT_EQ(record["kind"], "verify");
  EXPECT_EQ(record["version"], version());
  EXPECT_EQ(record["date"].get<std::string>().size(), 20);
  ASSERT_EQ(record["results"].size(), 1);
  const json& result = record["results"][0];
  EXPECT_EQ(result["op"], "topk_gate");
  EXPECT_EQ(result["backend"], "reference");
  EXPECT_EQ(result["cases"], count_cases(kFew, false));
  EXPECT_EQ(result["passed"], result["cases"]);
  EXPECT_GT(result["elements"], 0);
  EXPECT_EQ(result["mismatches"], 0);
}

TEST(Verify, FindsWhatIsWrong) {
  // With the check of the data off no fault is reported, and the cases that expect one say so.
  const ToolRun run = run_tool("verify topk_gate/all-nan", "TILEKERNELS_CHECK_DATA=0");
  EXPECT_EQ(run.status, 1);
  EXPECT_TRUE(has(run.out, "FAILED topk_gate/all-nan on reference")) << run.out;
  EXPECT_TRUE(has(run.out, "again: tilekernels verify topk_gate/all-nan --backend reference"));
  EXPECT_TRUE(has(run.out, "0/1")) << run.out;
}

TEST(Verify, RefusesARecordThatCannotBeWritten) {
  const ToolRun run = run_tool(std::string("verify ") + kFew + " --record /nosuch/record.json");
  EXPECT_EQ(run.status, 1);
  EXPECT_EQ(run.err, "tilekernels: cannot write /nosuch/record.json\n");
  EXPECT_EQ(run.out, "");
}

constexpr char kBench[] = "topk_gate/tokens=1,";

TEST(Bench, PrintsJsonLines) {
  for (const char* mode : {"", " --cold"}) {
    const ToolRun run =
        run_tool(std::string("bench --backend reference --json --reps 3 ") + kBench + mode);
    ASSERT_EQ(run.status, 0) << run.err;
    const std::vector<json> lines = json_lines(run.out);
    ASSERT_EQ(static_cast<int>(lines.size()), count_cases(kBench, true));
    for (const json& line : lines) {
      EXPECT_EQ(line["op"], "topk_gate");
      EXPECT_EQ(line["backend"], "reference");
      EXPECT_EQ(line["caches"], *mode ? "cold" : "warm");
      EXPECT_EQ(line["checked_by"], "reference");
      EXPECT_EQ(line["reps"], 3);
      EXPECT_GT(line["bytes"], 0);
      for (const char* field : {"us", "us_p10", "us_p90", "gbs", "memcpy_us", "copy_us",
                                "share_of_memcpy", "share_of_copy"}) {
        EXPECT_GT(line[field], 0) << field;
      }
      EXPECT_LE(line["us_p10"], line["us"]);
      EXPECT_LE(line["us"], line["us_p90"]);
      EXPECT_NEAR(line["gbs"].get<double>(),
                  line["bytes"].get<double>() / line["us"].get<double>() * 1e-3, 1e-6);
      EXPECT_LE(line["copy_us"], line["memcpy_us"]);
    }
  }
}

TEST(Bench, TimesCpuUnlessToldOtherwise) {
  if (!is_available(Backend::kCpu)) GTEST_SKIP() << "absent: cpu";
  const ToolRun run = run_tool(std::string("bench --json --reps 2 ") + kBench);
  ASSERT_EQ(run.status, 0) << run.err;
  for (const json& line : json_lines(run.out)) {
    EXPECT_EQ(line["backend"], "cpu");
    EXPECT_EQ(line["target"], get_cpu_target());
  }
  const ToolRun forced =
      run_tool(std::string("bench --json --reps 2 ") + kBench, "TILEKERNELS_BACKEND=reference");
  ASSERT_EQ(forced.status, 0) << forced.err;
  EXPECT_EQ(json_lines(forced.out).at(0)["backend"], "reference");
}

TEST(Bench, RecordsAndDraws) {
  const std::string record_path = test_path("bench.json");
  const std::string plot_path = test_path("bench.svg");
  const ToolRun run =
      run_tool("bench topk_gate/tokens=4096,experts=256 --min-time 0.01 --record '" + record_path +
               "' --plot '" + plot_path + "'");
  ASSERT_EQ(run.status, 0) << run.err;
  EXPECT_TRUE(has(run.out, "GB/s")) << run.out;
  const json record = json::parse(read_text(record_path));
  EXPECT_EQ(record["kind"], "bench");
  EXPECT_EQ(record["results"].size(), 1);
  const std::string svg = read_text(plot_path);
  EXPECT_EQ(svg.rfind("<svg ", 0), 0) << svg;
  EXPECT_TRUE(has(svg, "tokens=4096")) << svg;
  EXPECT_TRUE(has(svg, "</svg>\n"));
  unlink(record_path.c_str());
  unlink(plot_path.c_str());
}

TEST(Output, ThatIsLostIsAFailure) {
  const std::string command = "'" + paths::kTool + "' info >/dev/full 2>/dev/null";
  const int status = std::system(command.c_str());
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 1);
}

}  // namespace
}  // namespace tilekernels::tool
