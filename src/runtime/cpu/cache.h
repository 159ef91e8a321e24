// The size of the last-level cache, and what it decides.
#pragma once

#include <cstdint>

namespace tilekernels::cpu {

/// Bytes of the last-level cache that one core shares in.
int64_t last_level_cache_bytes();

/// Whether an output of that size should bypass the cache (`store-inl.h`): it would not stay
/// there for its reader, and plain stores read each line from memory before they write it. To be
/// asked once per call, for the whole output, so that all threads agree.
bool should_stream(int64_t output_bytes);

}  // namespace tilekernels::cpu
