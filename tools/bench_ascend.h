// bench on the machine model of the Ascend vector core: what a kernel costs, by estimate.
#pragma once

#include <string>
#include <vector>

#include "select.h"

namespace tilekernels::tool {

struct AscendBench {
  std::vector<Selection> selections;
  bool json;
  std::string record;  ///< a file, or empty
  std::string plot;    ///< a file for the timeline of the first case, or empty
};

/// Prints a line a case; the exit status.
int bench_ascend(const AscendBench& bench);

}  // namespace tilekernels::tool
