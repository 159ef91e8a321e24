// What a kernel costs, by the nominal figures of docs/ascend.md.
#include "runtime/ascend/model/cost.h"

#include <algorithm>

namespace tilekernels::ascend::model {

const char* name(Inst inst) {
  static constexpr const char* kNames[] = {
      "pset",      "plt",       "plogic", "vlds",     "vld_deintlv", "vldu",    "vgather", "vsts",
      "vst_first", "vst_intlv", "vstu",   "vscatter", "vstur",       "mem_bar", "vadd",    "vsub",
      "vmul",      "vmax",      "vmin",   "vmula",    "vmull",       "vabs",    "vneg",    "vdiv",
      "vsqrt",     "vexp",      "vln",    "vand",     "vor",         "vxor",    "vnot",    "vshl",
      "vshr",      "vcmp",      "vsel",   "vdup",     "vmov",        "vci",     "vcadd",   "vcmax",
      "vcmin",     "vcgmax",    "vintlv", "vdintlv",  "vselr",       "vsqz",    "vhist",   "vcvt"};
  static_assert(sizeof(kNames) / sizeof(kNames[0]) == kNumInsts);
  return kNames[static_cast<int32>(inst)];
}

const char* name(Pipe pipe) {
  static constexpr const char* kNames[] = {"S", "V", "MTE2", "MTE3"};
  return kNames[static_cast<int32>(pipe)];
}

Cycles cycles_of(Inst inst, Lane lane) {
  const bool is_half_rate = is_integer(lane);
  switch (inst) {
    case Inst::kVadd:
    case Inst::kVsub:
    case Inst::kVmul:
    case Inst::kVmula:
    case Inst::kVneg:
      return {0.5, is_half_rate ? 2.0 : 1.0};
    case Inst::kVmax:
    case Inst::kVmin:
    case Inst::kVabs:
    case Inst::kVand:
    case Inst::kVor:
    case Inst::kVxor:
    case Inst::kVnot:
    case Inst::kVshl:
    case Inst::kVshr:
    case Inst::kVcmp:
    case Inst::kVsel:
      return {0.5, 1.0};
    case Inst::kVdiv:
    case Inst::kVsqrt:
    case Inst::kVexp:
    case Inst::kVln:
      return {0.5, 4.0};  // 16 lanes a cycle
    case Inst::kVcadd:
    case Inst::kVcmax:
    case Inst::kVcmin:
    case Inst::kVcgmax:
    case Inst::kVintlv:
    case Inst::kVdintlv:
      return {1.0, 1.0};
    case Inst::kVstIntlv:
      return {2.0, 0.0};  // 512 bytes, 256 a cycle
    case Inst::kVgather:
    case Inst::kVscatter:
      return {2.0, 0.0};  // 32 lanes of 4 bytes a cycle, 64 of 2
    case Inst::kVselr:
      return {4.0, 4.0};  // 16 lanes of 4 bytes, 32 of 2
    case Inst::kVmull:
      return {1.0, 4.0};  // two products of half rate
    case Inst::kVhist:
      return {8.0, 8.0};  // 32 bytes a cycle
    case Inst::kVsqz:
      return {5.0, 5.0};  // 12.8 lanes of 4 bytes, 25.6 of 2
    case Inst::kVldDeintlv:
    case Inst::kVldu:
    case Inst::kVsts:
    case Inst::kVstFirst:
    case Inst::kVstu:
    case Inst::kVstur:
    case Inst::kMemBar:
    case Inst::kPlogic:
      return {1.0, 0.0};
    default:  // single loads, duplicates, arange, masks
      return {0.5, 0.0};
  }
}

Cycles cycles_of_cast(Lane to, Lane from) {
  const auto is = [&](Lane a, Lane b) { return (to == a && from == b) || (to == b && from == a); };
  const bool is_slow =
      is(Lane::kF32, Lane::kE4M3) || is(Lane::kF32, Lane::kI32) || is(Lane::kBF16, Lane::kE2M1x2);
  return {0.5, is_slow ? 2.0 : 1.0};  // 32 lanes of fp32 a cycle, 64 of 128 lanes of bf16
}

namespace {

struct Queues {
  std::vector<size_t> steps[kNumPipes];  // indices of events
  size_t at[kNumPipes] = {};
  double time[kNumPipes] = {};
};

}  // namespace

void estimate(const std::vector<Event>& events, double port_bytes_per_cycle, Cost& cost) {
  Queues queues;
  std::vector<size_t> scalar_before(events.size());  // scalar steps issued before each event
  size_t scalar = 0;
  for (size_t i = 0; i < events.size(); ++i) {
    scalar_before[i] = scalar;
    if (events[i].pipe == Pipe::kS) ++scalar;
    queues.steps[static_cast<int32>(events[i].pipe)].push_back(i);
  }
  std::vector<double> scalar_done(scalar + 1, 0.0);
  double flags[kNumPipes][kNumPipes][8];
  bool raised[kNumPipes][kNumPipes][8] = {};
  std::vector<std::vector<double>> unlocks(64);
  double port_free = 0;
  while (true) {
    int32 best = -1;
    double best_start = 0;
    for (int32 pipe = 0; pipe < kNumPipes; ++pipe) {
      if (queues.at[pipe] == queues.steps[pipe].size()) continue;
      const size_t index = queues.steps[pipe][queues.at[pipe]];
      const Event& event = events[index];
      // The scalar unit issues it after what it has waited for.
      if (scalar_before[index] > queues.at[0]) continue;
      double start = std::max(queues.time[pipe], scalar_done[scalar_before[index]]);
      const auto from = static_cast<int32>(event.from);
      const auto to = static_cast<int32>(event.to);
      if (event.kind == Event::Kind::kWait) {
        if (!raised[from][to][event.id]) continue;
        start = std::max(start, flags[from][to][event.id]);
      } else if (event.kind == Event::Kind::kLock) {
        const auto& done = unlocks[static_cast<size_t>(event.id)];
        if (static_cast<int64>(done.size()) < event.required) continue;
        if (event.required > 0)
          start = std::max(start, done[static_cast<size_t>(event.required) - 1]);
      } else if (event.port_bytes > 0) {
        start = std::max(start, port_free);
      }
      if (best < 0 || start < best_start) {
        best = pipe;
        best_start = start;
      }
    }
    if (best < 0) break;
    const size_t index = queues.steps[best][queues.at[best]++];
    const Event& event = events[index];
    double end = best_start;
    if (event.kind == Event::Kind::kWork) {
      const bool copies = event.port_bytes > 0;
      const double length =
          copies ? static_cast<double>(event.port_bytes) / port_bytes_per_cycle : event.cycles;
      end += length;
      (copies ? cost.port_cycles : cost.vector_cycles) += length;
      if (copies) port_free = end;
      cost.spans.push_back({event.pipe, best_start, end, event.name});
    } else if (event.kind == Event::Kind::kSet) {
      raised[static_cast<int32>(event.from)][static_cast<int32>(event.to)][event.id] = true;
      flags[static_cast<int32>(event.from)][static_cast<int32>(event.to)][event.id] = end;
    } else if (event.kind == Event::Kind::kWait) {
      raised[static_cast<int32>(event.from)][static_cast<int32>(event.to)][event.id] = false;
    } else if (event.kind == Event::Kind::kUnlock) {
      unlocks[static_cast<size_t>(event.id)].push_back(end);
    }
    queues.time[best] = end;
    if (event.pipe == Pipe::kS) scalar_done[queues.at[0]] = end;
    cost.cycles = std::max(cost.cycles, end);
  }
}

}  // namespace tilekernels::ascend::model
