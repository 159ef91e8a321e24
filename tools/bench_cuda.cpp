// bench on a CUDA device: device time beside a copy kernel of as many bytes, and host costs.
#include "bench_cuda.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "cases/cuda/device_bench.h"
#include "cases/cuda/kernel_timer.h"
#include "cases/scope_exit.h"
#include "cases/verify.h"
#include "commands.h"
#include "machine.h"
#include "out_file.h"
#include "tilekernels/config.h"
#include "timing.h"

namespace tilekernels::tool {
namespace {

using Json = nlohmann::ordered_json;

constexpr Device kDevice{DeviceType::kCuda, 0};
// Above this many bytes moved the cpu backend judges: the reference takes too long.
constexpr int64_t kReferenceLimit = int64_t{8} << 20;
constexpr int kTileReps = 7;  // that choose the copy

std::vector<std::vector<uint8_t>> run(const cases::Case& test, const cases::Buffers& buffers,
                                      Backend backend) {
  test.out(buffers.outputs(), buffers.inputs(), Call{.backend = backend});
  check_errors();
  std::vector<std::vector<uint8_t>> outputs;
  for (size_t i = 0; i < buffers.outputs().size(); ++i) outputs.push_back(buffers.output_bytes(i));
  return outputs;
}

// Throws unless the device's bytes are right; returns what judged them.
std::string check_result(const cases::Case& test, const cases::Buffers& on_device) {
  const bool small = cases::bytes_moved(test) <= kReferenceLimit || cpu_targets().empty();
  const Backend judge = small ? Backend::kReference : Backend::kCpu;
  const auto want = run(test, cases::Buffers(test, 0xA5), judge);
  if (run(test, on_device, Backend::kCuda) != want || !on_device.damaged().empty()) {
    throw std::runtime_error(test.id + " on cuda: the result differs from that of " +
                             std::string(name(judge)) +
                             ", so it is not timed; see tilekernels verify");
  }
  return std::string(name(judge));
}

struct Row {
  std::string op;
  std::string id;
  bool pdl;
  int64_t bytes;
  std::string judge;
  size_t reps;
  Timing time;
  Timing copy;
  std::string copy_tile;

  double gbs() const { return static_cast<double>(bytes) / time.us * 1e-3; }
  double share() const { return copy.us / time.us; }
};

Json to_json(const Row& row, const std::string& timer) {
  Json json;
  json["op"] = row.op;
  json["case"] = row.id;
  json["backend"] = "cuda";
  json["pdl"] = row.pdl;
  json["caches"] = "cold";
  json["timer"] = timer;
  json["checked_by"] = row.judge;
  json["reps"] = row.reps;
  json["bytes"] = row.bytes;
  json["us"] = row.time.us;
  json["us_p10"] = row.time.p10;
  json["us_p90"] = row.time.p90;
  if (row.bytes == 0) return json;
  json["gbs"] = row.gbs();
  json["copy"] = row.copy_tile;
  json["copy_us"] = row.copy.us;
  json["copy_us_p10"] = row.copy.p10;
  json["copy_us_p90"] = row.copy.p90;
  json["share_of_copy"] = row.share();
  return json;
}

std::unique_ptr<cases::KernelTimer> make_timer(const std::string& cupti,
                                               const cases::DeviceBench& device) {
  std::string problem;
  if (auto timer = cases::cupti_timer(cupti, problem)) return timer;
  if (!cupti.empty()) throw std::runtime_error("CUPTI cannot be used: " + problem);
  return cases::event_timer([&] { device.empty(); });
}

// The fastest of the copies at this size.
cases::CopyTile fastest_copy(const cases::DeviceBench& device, cases::KernelTimer& timer,
                             int64_t bytes) {
  const std::vector<cases::CopyTile> tiles = cases::DeviceBench::tiles();
  std::vector<cases::KernelCall> calls;
  for (const cases::CopyTile& tile : tiles) {
    device.copy(bytes, tile);  // compiles it
    calls.push_back([&device, bytes, tile] { device.copy(bytes, tile); });
  }
  const auto samples = timer.sample(
      calls, [&] { device.flush(); }, kTileReps);
  const size_t best = least_median(samples);
  device.forget_copy(bytes);
  device.copy(bytes, tiles[best]);
  if (!device.has_copied(bytes)) throw std::runtime_error("the copy kernel does not copy");
  return tiles[best];
}

// Times a case, and where it is to be, once more as a dependent launch.
std::vector<Row> time_case(std::string_view op, const cases::Case& test, int reps,
                           const cases::DeviceBench& device, cases::KernelTimer& timer) {
  const int64_t bytes = cases::bytes_moved(test);
  const cases::Buffers buffers(test, 0x5A, kDevice);
  const std::string judge = check_result(test, buffers);
  const cases::CopyTile tile = fastest_copy(device, timer, bytes);
  const Call call{.backend = Backend::kCuda};
  const auto plain = [&] { test.out(buffers.outputs(), buffers.inputs(), call); };
  const auto dependent = [&] {
    const cases::ScopeExit back([] { set_pdl(false); });
    set_pdl(true);
    plain();
  };
  std::vector<cases::KernelCall> calls = {[&] { device.copy(bytes, tile); }, plain};
  if (test.bench_pdl) {
    dependent();
    calls.push_back(dependent);
  }
  const auto samples = timer.sample(
      calls,
      [&] {
        if (!test.starts_as.empty()) buffers.refill(0);
        device.flush();
      },
      reps);
  std::vector<Row> rows;
  for (size_t i = 1; i < calls.size(); ++i) {
    rows.push_back({.op = std::string(op),
                    .id = test.id,
                    .pdl = i == 2,
                    .bytes = bytes,
                    .judge = judge,
                    .reps = samples[i].size(),
                    .time = timing(samples[i]),
                    .copy = timing(samples[0]),
                    .copy_tile = text(tile)});
  }
  return rows;
}

Row time_empty(int reps, const cases::DeviceBench& device, cases::KernelTimer& timer) {
  device.empty();
  const auto samples = timer.sample(
      {[&] { device.empty(); }}, [&] { device.flush(); }, reps);
  return {.op = "empty",
          .id = "empty kernel",
          .pdl = false,
          .bytes = 0,
          .judge = "-",
          .reps = samples[0].size(),
          .time = timing(samples[0]),
          .copy = {},
          .copy_tile = ""};
}

void print_row(const Row& row, int width) {
  char spread[48];
  std::snprintf(spread, sizeof(spread), "%.2f..%.2f", row.time.p10, row.time.p90);
  std::printf("%-*s  %8.2f  %17s", width, (row.id + (row.pdl ? ", pdl" : "")).c_str(), row.time.us,
              spread);
  if (row.bytes > 0) {
    std::printf("  %7.0f  %5.0f %%  %8.2f  %-9s  %s", row.gbs(), 100 * row.share(), row.copy.us,
                row.judge.c_str(), row.copy_tile.c_str());
  }
  std::printf("\n");
  std::fflush(stdout);
}

int64_t most_bytes(const std::vector<Selection>& selections) {
  int64_t most = 0;
  for (const Selection& selection : selections) {
    for (const cases::Case* test : selection.cases) {
      most = std::max(most, cases::bytes_moved(*test));
    }
  }
  return most;
}

Json device_times(const CudaBench& bench, const std::vector<Selection>& selections) {
  int width = 12;
  for (const Selection& selection : selections) {
    for (const cases::Case* test : selection.cases) {
      width = std::max(width, static_cast<int>(test->id.size()) + 5);
    }
  }
  const cases::DeviceBench device(most_bytes(selections));
  device.flush();
  device.empty();
  const std::unique_ptr<cases::KernelTimer> timer = make_timer(bench.cupti, device);
  const std::string method = timer->method();
  if (!bench.json) {
    std::printf("cuda, cold L2, median of %d, kernel time by %s\n", bench.reps, method.c_str());
    std::printf("%-*s  %8s  %17s  %7s  %7s  %8s  %-9s  %s\n", width, "case", "us", "p10..p90",
                "GB/s", "of copy", "copy us", "checked", "copy");
  }
  Json results = Json::array();
  const auto report = [&](const Row& row) {
    results.push_back(to_json(row, method));
    if (bench.json) {
      std::printf("%s\n", results.back().dump().c_str());
      std::fflush(stdout);
    } else {
      print_row(row, width);
    }
  };
  report(time_empty(bench.reps, device, *timer));
  for (const Selection& selection : selections) {
    for (const cases::Case* test : selection.cases) {
      for (const Row& row : time_case(selection.op->op, *test, bench.reps, device, *timer)) {
        report(row);
      }
    }
  }
  if (!bench.json) {
    std::printf("\nof copy: the fastest of %zu copy kernels of the same bytes, read and written.\n",
                cases::DeviceBench::tiles().size());
  }
  return results;
}

// The case of an op that moves the least.
const cases::Case& smallest(const Selection& selection) {
  const auto less = [](const cases::Case* a, const cases::Case* b) {
    return cases::bytes_moved(*a) < cases::bytes_moved(*b);
  };
  return **std::min_element(selection.cases.begin(), selection.cases.end(), less);
}

Json host_times(const CudaBench& bench, const std::vector<Selection>& selections) {
  const std::string folder =
      (std::filesystem::temp_directory_path() / ("tilekernels-bench-" + std::to_string(getpid())))
          .string();
  Json results = Json::array();
  const double lookup = cases::lookup_ns();
  if (!bench.json) std::printf("look up a loaded kernel: %.0f ns\n", lookup);
  results.push_back({{"what", "lookup"}, {"ns", lookup}});
  if (bench.json) std::printf("%s\n", results.back().dump().c_str());
  for (const Selection& selection : selections) {
    const cases::Case& test = smallest(selection);
    const cases::Buffers buffers(test, 0x5A, kDevice);
    const cases::HostCost cost =
        cases::host_cost(test, buffers.outputs(), buffers.inputs(), bench.reps);
    const cases::JitTimes jit = cases::jit_times(test, buffers.outputs(), buffers.inputs(), folder);
    results.push_back({{"what", "call"},
                       {"op", selection.op->op},
                       {"case", test.id},
                       {"call_ns", cost.call},
                       {"raw_launch_ns", cost.raw_launch},
                       {"above_raw_launch_ns", cost.call - cost.raw_launch},
                       {"jit_cold_ms", jit.cold},
                       {"jit_disk_ms", jit.disk}});
    if (bench.json) {
      std::printf("%s\n", results.back().dump().c_str());
    } else {
      std::printf(
          "%s: call %.0f ns, raw empty launch %.0f ns, above it %.0f ns; first call %.1f ms "
          "compiled, %.2f ms from disk\n",
          test.id.c_str(), cost.call, cost.raw_launch, cost.call - cost.raw_launch, jit.cold,
          jit.disk);
    }
    std::fflush(stdout);
  }
  return results;
}

}  // namespace

int bench_cuda(const CudaBench& bench) {
  OutFile record(bench.record);
  std::vector<Selection> selections;
  for (const Selection& selection : bench.selections) {
    if (has_kernel(*selection.op, Backend::kCuda)) {
      selections.push_back(selection);
    } else if (!bench.json) {
      std::printf("%s: no kernel\n", std::string(selection.op->op).c_str());
    }
  }
  if (selections.empty()) {
    throw std::runtime_error("nothing was timed: no kernel for this selection");
  }
  const Json results =
      bench.host_cost ? host_times(bench, selections) : device_times(bench, selections);
  if (record.is_wanted()) {
    Json json = record_head(bench.host_cost ? "host cost" : "bench");
    json["results"] = results;
    record.write(json.dump(2) + "\n");
  }
  return kSuccess;
}

}  // namespace tilekernels::tool
