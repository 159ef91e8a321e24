// bench on the machine model of the Ascend vector core: what a kernel costs, by estimate.
#include "bench_ascend.h"

#include <cstdio>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "cases/verify.h"
#include "commands.h"
#include "machine.h"
#include "out_file.h"
#include "tilekernels/ascend.h"

namespace tilekernels::tool {
namespace {

using Json = nlohmann::ordered_json;

constexpr double kPorts[] = {32, 16, 64};  // bytes a cycle; the first is the assumption
constexpr double kTimelineCycles = 6000;

struct Result {
  std::string op;
  std::string id;
  AscendCost costs[3];  // by port
};

Result run_case(const std::string& op, const cases::Case& test) {
  const cases::Buffers buffers(test, 0);
  Result result{op, test.id, {}};
  for (size_t i = 0; i < 3; ++i) {
    result.costs[i] = ascend_cost(
        [&] { test.out(buffers.outputs(), buffers.inputs(), Call{.backend = Backend::kAscend}); },
        kPorts[i]);
  }
  return result;
}

Json to_json(const Result& result) {
  const AscendCost& cost = result.costs[0];
  Json json;
  json["op"] = result.op;
  json["case"] = result.id;
  json["backend"] = "ascend";
  json["cores"] = cost.num_cores;
  json["ub_bytes"] = cost.ub_bytes;
  json["registers"] = cost.registers;
  json["masks"] = cost.masks;
  json["bytes_in"] = cost.bytes_in;
  json["bytes_out"] = cost.bytes_out;
  for (size_t i = 0; i < 3; ++i) {
    const AscendCost& of = result.costs[i];
    json["at"].push_back({{"port_bytes_per_cycle", kPorts[i]},
                          {"cycles", of.cycles},
                          {"vector_cycles", of.vector_cycles},
                          {"port_cycles", of.port_cycles},
                          {"binding", of.binding()},
                          {"binding_share", of.binding_share()}});
  }
  for (const auto& [name, count] : cost.instructions) json["instructions"][name] = count;
  return json;
}

void print(const Result& result, int width) {
  const AscendCost& cost = result.costs[0];
  std::printf("%-*s  %5lld  %10.0f  %6.1f %%  %6.1f %%  %-11s  %7.1f  %9.0f  %9.0f\n", width,
              result.id.c_str(), static_cast<long long>(cost.num_cores), cost.cycles,
              100 * cost.port_cycles / cost.cycles, 100 * cost.vector_cycles / cost.cycles,
              cost.binding().c_str(), static_cast<double>(cost.ub_bytes) / 1024,
              result.costs[1].cycles, result.costs[2].cycles);
}

}  // namespace

int bench_ascend(const AscendBench& bench) {
  OutFile record(bench.record);
  OutFile picture(bench.plot);
  int width = 4;
  for (const Selection& selection : bench.selections) {
    for (const cases::Case* test : selection.cases) {
      width = std::max(width, static_cast<int>(test->id.size()));
    }
  }
  if (!bench.json) {
    std::printf("ascend machine model: estimated cycles of core 0, nothing is run on an NPU\n");
    std::printf("%-*s  %5s  %10s  %8s  %8s  %-11s  %7s  %9s  %9s\n", width, "case", "cores",
                "cycles", "port", "vector", "bound by", "UB KiB", "16 B/c", "64 B/c");
  }
  std::vector<Result> results;
  for (const Selection& selection : bench.selections) {
    if (!has_kernel(*selection.op, Backend::kAscend)) {
      if (!bench.json) std::printf("%s: no kernel\n", std::string(selection.op->op).c_str());
      continue;
    }
    for (const cases::Case* test : selection.cases) {
      results.push_back(run_case(std::string(selection.op->op), *test));
      if (bench.json) {
        std::printf("%s\n", to_json(results.back()).dump().c_str());
      } else {
        print(results.back(), width);
      }
      std::fflush(stdout);
    }
  }
  if (results.empty()) throw std::runtime_error("nothing was run: no kernel for this selection");
  if (!bench.json) {
    std::printf(
        "\nport:   share of the cycles in which copies keep the core's port to memory busy, at 32 "
        "bytes a\n        cycle (an assumption); 16 B/c and 64 B/c are the cycles at other rates.\n"
        "vector: the same of the vector unit.\n");
  }
  if (record.is_wanted()) {
    Json json = record_head("bench");
    json["results"] = Json::array();
    for (const Result& result : results) json["results"].push_back(to_json(result));
    record.write(json.dump(2) + "\n");
  }
  if (picture.is_wanted()) {
    picture.write(ascend_timeline(results.front().costs[0], kTimelineCycles));
  }
  return kSuccess;
}

}  // namespace tilekernels::tool
