// Random numbers by position: Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as
// 1, 2, 3", 2011). The same key and counter give the same words on every machine.
#pragma once

#include "numerics/types.h"

namespace tilekernels::numerics {

/// Four words of 32 bits: a counter, lowest word first, and what becomes of it.
struct PhiloxWords {
  uint32 word[4];
};

/// The ten rounds under a key of 64 bits.
constexpr PhiloxWords philox(uint64 key, uint64 counter_low, uint64 counter_high) {
  constexpr uint64 kMultiplier0 = 0xD2511F53;
  constexpr uint64 kMultiplier1 = 0xCD9E8D57;
  constexpr uint32 kWeyl0 = 0x9E3779B9;
  constexpr uint32 kWeyl1 = 0xBB67AE85;
  PhiloxWords c{{static_cast<uint32>(counter_low), static_cast<uint32>(counter_low >> 32),
                 static_cast<uint32>(counter_high), static_cast<uint32>(counter_high >> 32)}};
  uint32 key0 = static_cast<uint32>(key);
  uint32 key1 = static_cast<uint32>(key >> 32);
  for (int32 round = 0; round < 10; ++round) {
    const uint64 product0 = kMultiplier0 * c.word[0];
    const uint64 product1 = kMultiplier1 * c.word[2];
    c = {{static_cast<uint32>(product1 >> 32) ^ c.word[1] ^ key0, static_cast<uint32>(product1),
          static_cast<uint32>(product0 >> 32) ^ c.word[3] ^ key1, static_cast<uint32>(product0)}};
    key0 += kWeyl0;
    key1 += kWeyl1;
  }
  return c;
}

/// A word as a number in (0, 1].
constexpr float uniform(uint32 word) { return static_cast<float>(word) * pow2(-32) + pow2(-33); }

}  // namespace tilekernels::numerics
