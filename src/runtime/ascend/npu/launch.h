// Launching an op's kernel on an NPU. Never run on one so far.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/launch.h"
#include "numerics/types.h"
#include "runtime/ascend/text.h"
#include "runtime/jit/kernel_cache.h"

namespace tilekernels::ascend::npu {

/// Compiles the kernel of `id`'s constants unless it is loaded, and queues it on the caller's
/// stream, on as many vector cores as there are items. `args`: the Args, which the runtime copies.
/// `fault`: the pointer in them that takes the address of the stream's error words, or null.
/// Errors: BackendError; as `device_state`.
void launch_raw(const Text& text, int64_t num_items, jit::KernelId& id, void* args,
                size_t args_bytes, uint64** fault, const Launch& where);

}  // namespace tilekernels::ascend::npu
