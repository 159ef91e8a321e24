// The SIMD targets that this binary holds and this machine runs, best first.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tilekernels::cpu {

/// Whether any kernel of the cpu backend can run: false on an x86 processor without AVX2, where
/// dispatching would be an illegal instruction.
bool has_simd();

/// Names of the targets, best first.
std::vector<std::string> targets();

/// Makes kernels dispatch to the named target, or to the best one for an empty name.
/// Returns false, with nothing changed, when the name is not in `targets()`.
bool force_target(std::string_view name);

/// The name of the target that kernels dispatch to; empty when there is none.
std::string target();

}  // namespace tilekernels::cpu
