// bench on a CUDA device: device time beside a copy kernel of as many bytes, and host costs.
#pragma once

#include <string>
#include <vector>

#include "select.h"

namespace tilekernels::tool {

struct CudaBench {
  std::vector<Selection> selections;
  int reps;
  bool json;
  bool host_cost;      ///< what calls and first calls cost the host, instead of device time
  std::string cupti;   ///< the library; empty: searched
  std::string record;  ///< a file, or empty
};

/// Prints a line a case; the exit status.
int bench_cuda(const CudaBench& bench);

}  // namespace tilekernels::tool
