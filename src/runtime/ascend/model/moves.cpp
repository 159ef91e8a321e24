// Moves between and within registers of the machine model.
#include <cstring>
#include <string>

#include "runtime/ascend/model/register_lanes.h"

namespace tilekernels::ascend::model {

void duplicate(int32 width, RegBits& d, const void* value, const Mask& m) {
  count(Inst::kVdup);
  check_mask(m, width);
  std::memset(d.poison, 0, sizeof(d.poison));
  for (int32 at = 0; at < kVectorBytes; at += width) {
    if (bit(m.bits, at)) {
      std::memcpy(d.bytes + at, value, static_cast<size_t>(width));
    } else {
      std::memset(d.bytes + at, 0, static_cast<size_t>(width));
    }
  }
}

void duplicate_lane0(int32 width, RegBits& d, const RegBits& s, const Mask& m) {
  uint8 value[4];
  std::memcpy(value, s.bytes, static_cast<size_t>(width));
  const bool undefined = (s.poison[0] & ((uint64{1} << width) - 1)) != 0;
  duplicate(width, d, value, m);
  if (!undefined) return;
  for (int32 i = 0; i < kWords; ++i) d.poison[i] = widen_bits(m.bits[i], width);
}

void move(RegBits& d, const RegBits& s) {
  count(Inst::kVmov);
  put_bytes(d, s.bytes, s.poison);
}

void arange(Lane lane, RegBits& d, const void* start) {
  count(Inst::kVci);
  std::memset(d.poison, 0, sizeof(d.poison));
  for (int32 i = 0; i < kF32Lanes; ++i) {
    if (lane == Lane::kF32) {
      float first;
      std::memcpy(&first, start, 4);
      const float value = first + static_cast<float>(i);
      std::memcpy(d.bytes + 4 * i, &value, 4);
    } else {
      uint32 first;
      std::memcpy(&first, start, 4);
      const uint32 value = first + static_cast<uint32>(i);
      std::memcpy(d.bytes + 4 * i, &value, 4);
    }
  }
}

void interleave(int32 width, RegBits& d0, RegBits& d1, const RegBits& a, const RegBits& b) {
  count(Inst::kVintlv);
  Mover all;
  for (int32 at = 0; at < kVectorBytes; at += width) {
    all.take(a, at, 2 * at, width);
    all.take(b, at, 2 * at + width, width);
  }
  put_bytes(d0, all.bytes, all.poison);
  put_bytes(d1, all.bytes + kVectorBytes, all.poison + kWords);
}

void deinterleave(int32 width, RegBits& d0, RegBits& d1, const RegBits& a, const RegBits& b) {
  count(Inst::kVdintlv);
  Mover even;
  Mover odd;
  for (int32 at = 0; at < kVectorBytes; at += 2 * width) {
    even.take(a, at, at / 2, width);
    even.take(b, at, kVectorBytes / 2 + at / 2, width);
    odd.take(a, at + width, at / 2, width);
    odd.take(b, at + width, kVectorBytes / 2 + at / 2, width);
  }
  put_bytes(d0, even.bytes, even.poison);
  put_bytes(d1, odd.bytes, odd.poison);
}

void permute(int32 width, RegBits& d, const RegBits& s, const RegBits& idx) {
  count(Inst::kVselr);
  if (any_poison(idx)) core().fail(HazardKind::kUndefined, "an address depends on undefined lanes");
  Mover moved_lanes;
  for (int32 at = 0; at < kVectorBytes; at += width) {
    uint32 index = 0;
    std::memcpy(&index, idx.bytes + at, static_cast<size_t>(width));
    if (index >= static_cast<uint32>(kVectorBytes / width)) {
      core().fail(HazardKind::kBadIndex, "lane " + std::to_string(at / width) +
                                             " of a register gather has the index " +
                                             std::to_string(index) + ", beyond the register");
    }
    moved_lanes.take(s, static_cast<int32>(index) * width, at, width);
  }
  put_bytes(d, moved_lanes.bytes, moved_lanes.poison);
}

void clear_ar() {
  core().require_vf("clear_ar");
  core().ar = Core::Ar::kClear;
}

void squeeze(int32 width, RegBits& d, const RegBits& s, const Mask& m, bool count_bytes) {
  count(Inst::kVsqz);
  check_mask(m, width);
  Mover down;
  int32 to = 0;
  for (int32 at = 0; at < kVectorBytes; at += width) {
    if (!bit(m.bits, at)) continue;
    down.take(s, at, to, width);
    to += width;
  }
  put_bytes(d, down.bytes, down.poison);
  if (!count_bytes) return;
  if (core().ar == Core::Ar::kUnknown) {
    core().fail(HazardKind::kStreamMisuse, "vsqz_count without clear_ar: the count is undefined");
  }
  if (core().ar == Core::Ar::kFilled) {
    core().fail(HazardKind::kStreamMisuse,
                "two vsqz_count in a row: a vstur must take the count of the first");
  }
  core().ar = Core::Ar::kFilled;
  core().ar_bytes = to;
}

}  // namespace tilekernels::ascend::model
