// Kernel text for the NPU's run-time compiler.
#pragma once

#include "runtime/jit/text.h"

namespace tilekernels::ascend {

/// An op's `ascend.h` with everything of ours that it includes, the entry that a launch starts
/// behind it. An op's launch.cpp declares its own: `extern const Text topk_gate_text;`.
struct Text : jit::Text {};

/// The texts of all ops, then null; made by the build.
extern const Text* const all_texts[];

}  // namespace tilekernels::ascend
