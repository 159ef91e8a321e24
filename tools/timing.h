// Medians and spread of samples.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

namespace tilekernels::tool {

/// A median with the 10th and 90th percentile.
struct Timing {
  double us;
  double p10;
  double p90;
};

inline double quantile(std::vector<double> values, double q) {
  std::sort(values.begin(), values.end());
  const double at = q * static_cast<double>(values.size() - 1);
  const auto low = static_cast<size_t>(at);
  const size_t high = std::min(low + 1, values.size() - 1);
  return values[low] + (at - std::floor(at)) * (values[high] - values[low]);
}

inline Timing timing(const std::vector<double>& samples) {
  return {quantile(samples, 0.5), quantile(samples, 0.1), quantile(samples, 0.9)};
}

}  // namespace tilekernels::tool
