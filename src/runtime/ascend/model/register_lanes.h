// What the instructions of the machine model share: lanes of registers, masks and undefined bytes.
#pragma once

#include <cstring>
#include <string>

#include "runtime/ascend/model/core.h"

namespace tilekernels::ascend::model {

constexpr int32 kWords = kVectorBytes / 64;

constexpr uint64 lane_pattern(int32 lane_bytes) {
  return lane_bytes == 1 ? ~uint64{0} : lane_bytes == 2 ? 0x5555555555555555 : 0x1111111111111111;
}
// One bit a lane, at its lowest byte, to all bytes of the lane.
inline uint64 widen_bits(uint64 bits, int32 lane_bytes) {
  return (bits & lane_pattern(lane_bytes)) * ((uint64{1} << lane_bytes) - 1);
}
// A lane with any undefined byte is undefined.
inline uint64 spread(uint64 poison, int32 lane_bytes) {
  if (lane_bytes >= 2) poison |= poison >> 1;
  if (lane_bytes == 4) poison |= poison >> 2;
  return widen_bits(poison, lane_bytes);
}

inline bool bit(const uint64* bits, int32 i) { return (bits[i / 64] >> (i % 64) & 1) != 0; }
inline void set_bit(uint64* bits, int32 i) { bits[i / 64] |= uint64{1} << (i % 64); }

inline bool is_full(const Mask& m, int32 lane_bytes) {
  const uint64 pattern = lane_pattern(lane_bytes);
  for (uint64 word : m.bits) {
    if ((word & pattern) != pattern) return false;
  }
  return true;
}

// A mask must have been made for lanes of that width, or be all ones.
inline void check_mask(const Mask& m, int32 lane_bytes) {
  if (m.lane_bytes == 0) core().fail(HazardKind::kUndefined, "a mask is used before it is written");
  if (m.lane_bytes == lane_bytes || is_full(m, 1)) return;
  core().fail(HazardKind::kWrongMask, "a mask made for lanes of " + std::to_string(m.lane_bytes) +
                                          " bytes is used on lanes of " +
                                          std::to_string(lane_bytes));
}

inline void count(Inst inst, Lane lane = Lane::kF32) {
  core().require_vf(name(inst));
  core().add_cost(inst, cycles_of(inst, lane));
}

inline bool any_poison(const RegBits& r) {
  return (r.poison[0] | r.poison[1] | r.poison[2] | r.poison[3]) != 0;
}

// Undefined bytes among the active lanes of an operand that decides about something.
inline void check_defined(const RegBits& r, const Mask& m, int32 lane_bytes, const char* what) {
  if (!any_poison(r)) return;
  for (int32 i = 0; i < kWords; ++i) {
    if ((spread(r.poison[i], lane_bytes) & m.bits[i] & lane_pattern(lane_bytes)) != 0) {
      core().fail(HazardKind::kUndefined, std::string(what) + " depends on undefined lanes");
    }
  }
}

// d's undefined bytes: where an active lane of an operand has one.
inline void merge_poison(RegBits& d, const RegBits& a, const RegBits& b, const Mask& m,
                         int32 lane_bytes) {
  for (int32 i = 0; i < kWords; ++i) {
    const uint64 either = a.poison[i] | b.poison[i];
    d.poison[i] = either == 0 ? 0 : spread(either, lane_bytes) & widen_bits(m.bits[i], lane_bytes);
  }
}

template <class T>
struct Lanes {
  static constexpr int32 kCount = kVectorBytes / static_cast<int32>(sizeof(T));
  T at[kCount];
  Lanes() = default;
  explicit Lanes(const RegBits& r) { std::memcpy(at, r.bytes, kVectorBytes); }
  explicit Lanes(T value) {
    for (T& lane : at) lane = value;
  }
};

// The second operand of an instruction that takes a register or, where that is null, a scalar.
template <class T>
Lanes<T> operand(const RegBits* b, const void* scalar) {
  if (b != nullptr) return Lanes<T>(*b);
  T value;
  std::memcpy(&value, scalar, sizeof(T));
  return Lanes<T>(value);
}

// Writes lanes under a mask; others become 0.
template <class T>
void put(RegBits& d, Lanes<T>& result, const Mask& m) {
  if (!is_full(m, sizeof(T))) {
    for (int32 i = 0; i < Lanes<T>::kCount; ++i) {
      if (!bit(m.bits, i * static_cast<int32>(sizeof(T)))) result.at[i] = T{};
    }
  }
  std::memcpy(d.bytes, result.at, kVectorBytes);
}

template <class T, class F>
void map2(RegBits& d, const RegBits& a, const Lanes<T>& y, const Mask& m, const F& f) {
  const Lanes<T> x(a);
  Lanes<T> r;
  for (int32 i = 0; i < Lanes<T>::kCount; ++i) r.at[i] = f(x.at[i], y.at[i]);
  put(d, r, m);
}

// Calls visit with a zero of the lane's C++ type.
template <class Visit>
void visit_lane(Lane lane, const Visit& visit) {
  switch (lane) {
    case Lane::kU16:
      return visit(uint16{});
    case Lane::kU32:
      return visit(uint32{});
    case Lane::kI32:
      return visit(int32{});
    default:
      return visit(float{});
  }
}

inline void put_bytes(RegBits& d, const uint8* bytes, const uint64* poison) {
  std::memcpy(d.bytes, bytes, kVectorBytes);
  std::memcpy(d.poison, poison, sizeof(d.poison));
}

// Moves single lanes with their undefined bytes from one register to another.
struct Mover {
  uint8 bytes[2 * kVectorBytes] = {};
  uint64 poison[2 * kWords] = {};
  void take(const RegBits& s, int32 from, int32 to, int32 width) {
    std::memcpy(bytes + to, s.bytes + from, static_cast<size_t>(width));
    if (s.poison[from / 64] == 0) return;
    for (int32 i = 0; i < width; ++i) {
      if (bit(s.poison, from + i)) set_bit(poison, to + i);
    }
  }
};

}  // namespace tilekernels::ascend::model
