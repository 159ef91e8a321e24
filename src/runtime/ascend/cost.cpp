// The public side of the machine model's cost estimate.
#include <algorithm>
#include <cstdio>

#include "core/check.h"
#include "runtime/ascend/model/core.h"
#include "tilekernels/ascend.h"

namespace tilekernels {

AscendCost ascend_cost(const std::function<void()>& call, double port_bytes_per_cycle,
                       int64_t num_cores) {
  const Check check("ascend_cost");
  check.require(port_bytes_per_cycle > 0, "port_bytes_per_cycle", "must be positive",
                std::to_string(port_bytes_per_cycle));
  check.require(num_cores > 0, "num_cores", "must be positive", num_cores);
  namespace model = ascend::model;
  model::Cost of;
  model::Options options = model::options();
  options.num_cores = num_cores;
  options.first_core_only = true;
  options.port_bytes_per_cycle = port_bytes_per_cycle;
  options.cost = &of;
  {
    const model::ScopedOptions scope(options);
    call();
  }
  AscendCost cost;
  cost.kernel = of.kernel;
  cost.num_cores = of.num_cores;
  cost.cycles = of.cycles;
  cost.vector_cycles = of.vector_cycles;
  cost.port_cycles = of.port_cycles;
  cost.bytes_in = of.bytes_in;
  cost.bytes_out = of.bytes_out;
  cost.ub_bytes = of.ub_bytes;
  cost.registers = of.most_registers;
  cost.masks = of.most_masks;
  for (int i = 0; i < ascend::kNumInsts; ++i) {
    if (of.counts[i] == 0) continue;
    cost.instructions.emplace_back(model::name(static_cast<ascend::Inst>(i)), of.counts[i]);
  }
  for (const model::Span& span : of.spans) {
    cost.spans.push_back({model::name(span.pipe), span.name, span.begin, span.end});
  }
  return cost;
}

std::string ascend_timeline(const AscendCost& cost, double max_cycles) {
  constexpr double kLeft = 70, kWidth = 1100, kRow = 34, kTop = 44;
  const double end = std::max(1.0, std::min(max_cycles, cost.cycles));
  const double scale = kWidth / end;
  const char* const rows[] = {"MTE2", "V", "MTE3"};
  const char* const fills[] = {"#4C78A8", "#F58518", "#54A24B"};
  char line[512];
  std::string svg;
  const auto add = [&](auto... args) {
    std::snprintf(line, sizeof(line), args...);
    svg += line;
  };
  add("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\" "
      "font-family=\"sans-serif\" font-size=\"12\">\n",
      kLeft + kWidth + 20, kTop + 3 * kRow + 40);
  svg += "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n";
  add("<text x=\"8\" y=\"18\" font-size=\"14\">%s, core 0 of %lld: %.0f cycles, %s busy %.0f %%"
      "</text>\n",
      cost.kernel.c_str(), static_cast<long long>(cost.num_cores), cost.cycles,
      cost.binding().c_str(), 100 * cost.binding_share());
  for (int row = 0; row < 3; ++row) {
    const double y = kTop + row * kRow;
    add("<text x=\"8\" y=\"%.0f\">%s</text>\n", y + 16, rows[row]);
    for (const AscendSpan& span : cost.spans) {
      if (span.queue != rows[row] || span.begin_cycle >= end) continue;
      const double width = (std::min(span.end_cycle, end) - span.begin_cycle) * scale;
      add("<rect x=\"%.2f\" y=\"%.0f\" width=\"%.2f\" height=\"24\" fill=\"%s\" stroke=\"white\" "
          "stroke-width=\"0.5\"><title>%s: %.0f to %.0f</title></rect>\n",
          kLeft + span.begin_cycle * scale, y, std::max(width, 0.5), fills[row], span.name.c_str(),
          span.begin_cycle, span.end_cycle);
    }
  }
  for (int tick = 0; tick <= 5; ++tick) {
    const double x = kLeft + kWidth * tick / 5;
    add("<line x1=\"%.1f\" y1=\"%.0f\" x2=\"%.1f\" y2=\"%.0f\" stroke=\"#999\"/>\n", x,
        kTop + 3 * kRow, x, kTop + 3 * kRow + 6);
    add("<text x=\"%.1f\" y=\"%.0f\" text-anchor=\"middle\">%.0f</text>\n", x, kTop + 3 * kRow + 20,
        end * tick / 5);
  }
  add("<text x=\"%.0f\" y=\"%.0f\" text-anchor=\"end\">cycles</text>\n</svg>\n", kLeft + kWidth,
      kTop + 3 * kRow + 36);
  return svg;
}

}  // namespace tilekernels
