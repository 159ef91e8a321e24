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

/// Which of the samples have the least median. One quick call says little: threads that happened
/// to be awake make a call fast that is slow as a rule.
inline size_t least_median(const std::vector<std::vector<double>>& samples) {
  size_t best = 0;
  for (size_t i = 1; i < samples.size(); ++i) {
    if (quantile(samples[i], 0.5) < quantile(samples[best], 0.5)) best = i;
  }
  return best;
}

}  // namespace tilekernels::tool
