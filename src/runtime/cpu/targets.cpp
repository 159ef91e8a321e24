// Highway's target detection, asked once, and its forcing of one target.
#include "runtime/cpu/targets.h"

#include <atomic>
#include <cstdint>

#include "hwy/targets.h"

namespace tilekernels::cpu {
namespace {

// All that the machine runs. hwy::SupportedTargets executes CPUID at every call, and forgets the
// truth once a target is forced.
int64_t supported() {
  static const int64_t targets = hwy::SupportedTargets();
  return targets;
}

int64_t usable() { return supported() & HWY_TARGETS; }

// Highway numbers better targets lower.
int64_t best_of(int64_t targets) { return targets & -targets; }

std::atomic<int64_t> forced_target{0};

}  // namespace

bool has_simd() { return usable() != 0; }

std::vector<std::string> targets() {
  std::vector<std::string> names;
  for (int64_t left = usable(); left != 0; left &= left - 1) {
    names.emplace_back(hwy::TargetName(best_of(left)));
  }
  return names;
}

bool force_target(std::string_view name) {
  const int64_t all = supported();
  int64_t forced = 0;
  if (!name.empty()) {
    forced = usable();
    while (forced != 0 && name != hwy::TargetName(best_of(forced))) forced &= forced - 1;
    if (forced == 0) return false;
    forced = best_of(forced);
  }
  hwy::SetSupportedTargetsForTest(forced);
  hwy::GetChosenTarget().Update(forced != 0 ? forced : all);
  forced_target = forced;
  return true;
}

std::string target() {
  const int64_t forced = forced_target;
  const int64_t in_force = forced != 0 ? forced : best_of(usable());
  return in_force == 0 ? "" : hwy::TargetName(in_force);
}

}  // namespace tilekernels::cpu
