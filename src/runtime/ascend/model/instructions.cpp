// The vector instructions of the machine model, lane by lane, with their checks.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <type_traits>

#include "numerics/formats.h"
#include "runtime/ascend/model/core.h"

namespace tilekernels::ascend::model {
namespace {

using numerics::bit_cast;

constexpr int32 kWords = kVectorBytes / 64;

constexpr uint64 lane_pattern(int32 lane_bytes) {
  return lane_bytes == 1 ? ~uint64{0} : lane_bytes == 2 ? 0x5555555555555555 : 0x1111111111111111;
}
// One bit a lane, at its lowest byte, to all bytes of the lane.
uint64 widen_bits(uint64 bits, int32 lane_bytes) {
  return (bits & lane_pattern(lane_bytes)) * ((uint64{1} << lane_bytes) - 1);
}
// A lane with any undefined byte is undefined.
uint64 spread(uint64 poison, int32 lane_bytes) {
  if (lane_bytes >= 2) poison |= poison >> 1;
  if (lane_bytes == 4) poison |= poison >> 2;
  return widen_bits(poison, lane_bytes);
}

bool bit(const uint64* bits, int32 i) { return (bits[i / 64] >> (i % 64) & 1) != 0; }
void set_bit(uint64* bits, int32 i) { bits[i / 64] |= uint64{1} << (i % 64); }

bool is_full(const Mask& m, int32 lane_bytes) {
  const uint64 pattern = lane_pattern(lane_bytes);
  for (uint64 word : m.bits) {
    if ((word & pattern) != pattern) return false;
  }
  return true;
}

// A mask must have been made for lanes of that width, or be all ones.
void check_mask(const Mask& m, int32 lane_bytes) {
  if (m.lane_bytes == 0) core().fail(HazardKind::kUndefined, "a mask is used before it is written");
  if (m.lane_bytes == lane_bytes || is_full(m, 1)) return;
  core().fail(HazardKind::kWrongMask, "a mask made for lanes of " + std::to_string(m.lane_bytes) +
                                          " bytes is used on lanes of " +
                                          std::to_string(lane_bytes));
}

void count(Inst inst, Lane lane = Lane::kF32) {
  core().require_vf(name(inst));
  core().add_cost(inst, cycles_of(inst, lane));
}

bool any_poison(const RegBits& r) {
  return (r.poison[0] | r.poison[1] | r.poison[2] | r.poison[3]) != 0;
}

// Undefined bytes among the active lanes of an operand that decides about something.
void check_defined(const RegBits& r, const Mask& m, int32 lane_bytes, const char* what) {
  if (!any_poison(r)) return;
  for (int32 i = 0; i < kWords; ++i) {
    if ((spread(r.poison[i], lane_bytes) & m.bits[i] & lane_pattern(lane_bytes)) != 0) {
      core().fail(HazardKind::kUndefined, std::string(what) + " depends on undefined lanes");
    }
  }
}

// d's undefined bytes: where an active lane of an operand has one.
void merge_poison(RegBits& d, const RegBits& a, const RegBits& b, const Mask& m, int32 lane_bytes) {
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

float max_f32(float a, float b) {
  if (numerics::is_nan(a) || numerics::is_nan(b)) return bit_cast<float>(0x7FC00000u);
  if (a == b) return bit_cast<float>(bit_cast<uint32>(a) & bit_cast<uint32>(b));
  return a > b ? a : b;
}
float min_f32(float a, float b) {
  if (numerics::is_nan(a) || numerics::is_nan(b)) return bit_cast<float>(0x7FC00000u);
  if (a == b) return bit_cast<float>(bit_cast<uint32>(a) | bit_cast<uint32>(b));
  return a < b ? a : b;
}

template <class T>
void integer_binary(Inst inst, RegBits& d, const RegBits& a, const Lanes<T>& y, const Mask& m) {
  // Arithmetic wraps, in a type without overflow.
  const auto wide = [](T v) { return static_cast<uint32>(v); };
  switch (inst) {
    case Inst::kVadd:
      return map2<T>(d, a, y, m, [&](T p, T q) { return static_cast<T>(wide(p) + wide(q)); });
    case Inst::kVsub:
      return map2<T>(d, a, y, m, [&](T p, T q) { return static_cast<T>(wide(p) - wide(q)); });
    case Inst::kVmul:
      return map2<T>(d, a, y, m, [&](T p, T q) { return static_cast<T>(wide(p) * wide(q)); });
    case Inst::kVmax:
      return map2<T>(d, a, y, m, [](T p, T q) { return p < q ? q : p; });
    case Inst::kVmin:
      return map2<T>(d, a, y, m, [](T p, T q) { return q < p ? q : p; });
    case Inst::kVand:
      return map2<T>(d, a, y, m, [&](T p, T q) { return static_cast<T>(wide(p) & wide(q)); });
    case Inst::kVor:
      return map2<T>(d, a, y, m, [&](T p, T q) { return static_cast<T>(wide(p) | wide(q)); });
    default:
      return map2<T>(d, a, y, m, [&](T p, T q) { return static_cast<T>(wide(p) ^ wide(q)); });
  }
}

template <class T, class Load, class Store>
void float_binary(Inst inst, RegBits& d, const RegBits& a, const Lanes<T>& y, const Mask& m,
                  const Load& value, const Store& back) {
  switch (inst) {
    case Inst::kVadd:
      return map2<T>(d, a, y, m, [&](T p, T q) { return back(value(p) + value(q)); });
    case Inst::kVsub:
      return map2<T>(d, a, y, m, [&](T p, T q) { return back(value(p) - value(q)); });
    case Inst::kVmul:
      return map2<T>(d, a, y, m, [&](T p, T q) { return back(value(p) * value(q)); });
    case Inst::kVmax:
      return map2<T>(d, a, y, m, [&](T p, T q) { return back(max_f32(value(p), value(q))); });
    default:
      return map2<T>(d, a, y, m, [&](T p, T q) { return back(min_f32(value(p), value(q))); });
  }
}

void binary_lanes(Inst inst, Lane lane, RegBits& d, const RegBits& a, const RegBits* b,
                  const void* scalar, const Mask& m) {
  const auto second = [&](auto zero) {
    using T = decltype(zero);
    if (b != nullptr) return Lanes<T>(*b);
    T value;
    std::memcpy(&value, scalar, sizeof(T));
    return Lanes<T>(value);
  };
  switch (lane) {
    case Lane::kU8:
      return integer_binary<uint8>(inst, d, a, second(uint8{}), m);
    case Lane::kU16:
      return integer_binary<uint16>(inst, d, a, second(uint16{}), m);
    case Lane::kU32:
      return integer_binary<uint32>(inst, d, a, second(uint32{}), m);
    case Lane::kI32:
      return integer_binary<int32>(inst, d, a, second(int32{}), m);
    case Lane::kF32: {
      const auto same = [](float v) { return v; };
      return float_binary<float>(inst, d, a, second(float{}), m, same, same);
    }
    case Lane::kF16:
      return float_binary<uint16>(inst, d, a, second(uint16{}), m, numerics::load_f16,
                                  numerics::f32_to_f16);
    default:
      return float_binary<uint16>(inst, d, a, second(uint16{}), m, numerics::load_bf16,
                                  numerics::f32_to_bf16);
  }
}

float jittered(float value) {
  // Subnormals are flushed; the rest moves by the units in the last place that the test asks for.
  const uint32 bits = bit_cast<uint32>(value);
  const uint32 abs = bits & 0x7FFFFFFF;
  if (abs >= numerics::kInfBits) return value;
  if (abs < 0x00800000) return bit_cast<float>(bits & 0x80000000);
  const uint32 moved = abs + static_cast<uint32>(core().jitter_ulps());
  return bit_cast<float>((bits & 0x80000000) | (moved < 0x00800000 ? 0 : moved));
}
float flushed(float value) {
  const uint32 bits = bit_cast<uint32>(value);
  return (bits & 0x7FFFFFFF) < 0x00800000 ? bit_cast<float>(bits & 0x80000000) : value;
}

template <class T>
bool holds(int32 cmp, T a, T b) {
  switch (cmp) {
    case 0:
      return a == b;
    case 1:
      return !(a == b);
    case 2:
      return a < b;
    case 3:
      return a <= b;
    case 4:
      return a > b;
    default:
      return a >= b;
  }
}

template <class T, class Load>
void compare_lanes(int32 cmp, Mask& d, const RegBits& a, const Lanes<T>& y, const Mask& m,
                   const Load& value) {
  const Lanes<T> x(a);
  Mask result;
  result.lane_bytes = sizeof(T);
  for (int32 i = 0; i < Lanes<T>::kCount; ++i) {
    const int32 at = i * static_cast<int32>(sizeof(T));
    if (bit(m.bits, at) && holds(cmp, value(x.at[i]), value(y.at[i]))) set_bit(result.bits, at);
  }
  d = result;
}

void compare_any(int32 cmp, Lane lane, Mask& d, const RegBits& a, const RegBits* b,
                 const void* scalar, const Mask& m) {
  const int32 width = lane_bytes(lane);
  count(Inst::kVcmp);
  check_mask(m, width);
  check_defined(a, m, width, "a comparison");
  if (b != nullptr) check_defined(*b, m, width, "a comparison");
  const auto second = [&](auto zero) {
    using T = decltype(zero);
    if (b != nullptr) return Lanes<T>(*b);
    T value;
    std::memcpy(&value, scalar, sizeof(T));
    return Lanes<T>(value);
  };
  const auto same = [](auto v) { return v; };
  switch (lane) {
    case Lane::kU8:
      return compare_lanes(cmp, d, a, second(uint8{}), m, same);
    case Lane::kU16:
      return compare_lanes(cmp, d, a, second(uint16{}), m, same);
    case Lane::kU32:
      return compare_lanes(cmp, d, a, second(uint32{}), m, same);
    case Lane::kI32:
      return compare_lanes(cmp, d, a, second(int32{}), m, same);
    case Lane::kF32:
      return compare_lanes(cmp, d, a, second(float{}), m, same);
    case Lane::kF16:
      return compare_lanes(cmp, d, a, second(uint16{}), m, numerics::load_f16);
    default:
      return compare_lanes(cmp, d, a, second(uint16{}), m, numerics::load_bf16);
  }
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

int32 num_active(const Mask& m, int32 lane_bytes) {
  int32 total = 0;
  for (uint64 word : m.bits) total += __builtin_popcountll(word & lane_pattern(lane_bytes));
  return total;
}

void put_bytes(RegBits& d, const uint8* bytes, const uint64* poison) {
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

}  // namespace

// ------------------------------ registers and masks

RegBits::RegBits() {
  core().require_vf("a vector register");
  core().add_register(1);
  std::memset(bytes, 0xCD, sizeof(bytes));
  std::memset(poison, 0xFF, sizeof(poison));
}
RegBits::~RegBits() { core().add_register(-1); }

Mask::Mask() { core().add_mask(1); }
Mask::~Mask() { core().add_mask(-1); }
Mask::Mask(const Mask& other) : lane_bytes(other.lane_bytes) {
  core().add_mask(1);
  std::memcpy(bits, other.bits, sizeof(bits));
}

Stream::Stream() { core().add_stream(1); }
Stream::~Stream() {
  core().add_stream(-1);
  if (count > 0) core().stream_lost = true;
}

Mask pset(int32 lane_bytes, int32 lanes) {
  count(Inst::kPset);
  Mask m;
  m.lane_bytes = lane_bytes;
  for (int32 i = 0; i < lanes && i * lane_bytes < kVectorBytes; ++i)
    set_bit(m.bits, i * lane_bytes);
  return m;
}

Mask plt(int32 lane_bytes, uint32& lanes) {
  count(Inst::kPlt);
  Mask m;
  m.lane_bytes = lane_bytes;
  const auto all = static_cast<uint32>(kVectorBytes / lane_bytes);
  const uint32 active = lanes < all ? lanes : all;
  for (uint32 i = 0; i < active; ++i) set_bit(m.bits, static_cast<int32>(i) * lane_bytes);
  lanes -= active;
  return m;
}

namespace {
template <class F>
void mask_logic(Mask& d, const Mask& a, const Mask& b, const Mask& m, const F& f) {
  count(Inst::kPlogic);
  check_mask(m, m.lane_bytes);
  check_mask(a, m.lane_bytes);
  check_mask(b, m.lane_bytes);
  for (int32 i = 0; i < kWords; ++i) d.bits[i] = f(a.bits[i], b.bits[i]) & m.bits[i];
  d.lane_bytes = m.lane_bytes;
}
}  // namespace

void mask_and(Mask& d, const Mask& a, const Mask& b, const Mask& m) {
  mask_logic(d, a, b, m, [](uint64 x, uint64 y) { return x & y; });
}
void mask_or(Mask& d, const Mask& a, const Mask& b, const Mask& m) {
  mask_logic(d, a, b, m, [](uint64 x, uint64 y) { return x | y; });
}
void mask_not(Mask& d, const Mask& a, const Mask& m) {
  mask_logic(d, a, a, m, [](uint64 x, uint64) { return ~x; });
}

// ------------------------------ loads and stores

void load(int32 dist, int32 width, RegBits& d, UbPlace ub) {
  count(Inst::kVlds);
  uint8 bytes[2 * kVectorBytes] = {};
  uint64 poison[2 * kWords] = {};
  const auto read = [&](int32 size, int32 align) {
    core().vector_read(ub, size, align, bytes, poison);
  };
  if (dist == 0) {
    read(kVectorBytes, kBlockBytes);
    return put_bytes(d, bytes, poison);
  }
  int32 factor = 1;  // register bytes that one byte in memory stands for
  switch (dist) {
    case 1:
      read(width, width);
      break;
    case 2:
      read(kBlockBytes, kBlockBytes);
      break;
    case 3:
      read(8 * width, 8 * width < kBlockBytes ? 8 * width : kBlockBytes);
      break;
    case 5:
      factor = 4;
      read(kVectorBytes / 4, kBlockBytes);
      break;
    default:
      factor = 2;
      read(kVectorBytes / 2, kBlockBytes);
  }
  uint8 out[kVectorBytes] = {};
  uint64 out_poison[kWords] = {};
  for (int32 at = 0; at < kVectorBytes; at += width) {
    int32 from = 0;
    bool used = true;
    if (dist == 2) {
      from = at % kBlockBytes;
    } else if (dist == 3) {
      from = at / kBlockBytes * width;
    } else if (dist == 4 || dist == 5) {
      used = at % (factor * width) == 0;
      from = at / factor;
    } else if (dist == 6) {
      from = at / width / 2 * width;
    }
    if (!used) continue;
    for (int32 i = 0; i < width; ++i) {
      out[at + i] = bytes[from + i];
      if (bit(poison, from + i)) set_bit(out_poison, at + i);
    }
  }
  put_bytes(d, out, out_poison);
}

void load_deintlv(int32 width, RegBits& d0, RegBits& d1, UbPlace ub) {
  count(Inst::kVldDeintlv);
  uint8 bytes[2 * kVectorBytes];
  uint64 poison[2 * kWords];
  core().vector_read(ub, 2 * kVectorBytes, kBlockBytes, bytes, poison);
  std::memset(d0.poison, 0, sizeof(d0.poison));
  std::memset(d1.poison, 0, sizeof(d1.poison));
  for (int32 at = 0; at < kVectorBytes; at += width) {
    for (int32 i = 0; i < width; ++i) {
      d0.bytes[at + i] = bytes[2 * at + i];
      d1.bytes[at + i] = bytes[2 * at + width + i];
      if (bit(poison, 2 * at + i)) set_bit(d0.poison, at + i);
      if (bit(poison, 2 * at + width + i)) set_bit(d1.poison, at + i);
    }
  }
}

void load_unaligned(int32 width, RegBits& d, UbPlace ub) {
  count(Inst::kVldu);
  // Whole blocks are read.
  const int32 skip = ub.offset % kBlockBytes;
  const auto size = static_cast<int32>(numerics::align_up(skip + kVectorBytes, kBlockBytes));
  if (ub.offset % width != 0)
    core().fail(HazardKind::kMisaligned, ub, "the address splits an element");
  uint8 bytes[2 * kVectorBytes];
  uint64 poison[2 * kWords];
  core().vector_read(moved(ub, -skip), size, kBlockBytes, bytes, poison);
  std::memcpy(d.bytes, bytes + skip, kVectorBytes);
  std::memset(d.poison, 0, sizeof(d.poison));
  for (int32 i = 0; i < kVectorBytes; ++i) {
    if (bit(poison, skip + i)) set_bit(d.poison, i);
  }
}

namespace {
// The place of an indexed element; fails where it lies outside of the buffer.
UbPlace indexed(UbPlace ub, const RegBits& idx, int32 i, int32 width) {
  uint32 index = 0;
  std::memcpy(&index, idx.bytes + i * width, static_cast<size_t>(width));
  const UbPlace place = moved(ub, static_cast<int64>(index) * width);
  if (!core().contains(place, width)) {
    core().fail(HazardKind::kBadIndex, ub,
                "lane " + std::to_string(i) + " has the index " + std::to_string(index) +
                    ", which lies outside of the buffer");
  }
  return place;
}
}  // namespace

void gather(int32 width, RegBits& d, UbPlace ub, const RegBits& idx, const Mask& m) {
  count(Inst::kVgather);
  check_mask(m, width);
  check_defined(idx, m, width, "an address");
  if (ub.offset % kBlockBytes != 0) {
    core().fail(HazardKind::kMisaligned, ub, "a gather starts at a multiple of 32 bytes");
  }
  uint8 out[kVectorBytes] = {};
  uint64 poison[kWords] = {};
  for (int32 i = 0; i < kVectorBytes / width; ++i) {
    if (!bit(m.bits, i * width)) continue;
    uint64 undefined[1];
    core().vector_read(indexed(ub, idx, i, width), width, width, out + i * width, undefined);
    for (int32 k = 0; k < width; ++k) {
      if ((undefined[0] >> k & 1) != 0) set_bit(poison, i * width + k);
    }
  }
  // What inactive lanes hold is not stated.
  for (int32 i = 0; i < kVectorBytes / width; ++i) {
    if (bit(m.bits, i * width)) continue;
    for (int32 k = 0; k < width; ++k) set_bit(poison, i * width + k);
  }
  put_bytes(d, out, poison);
}

void store(int32 dist, int32 width, UbPlace ub, const RegBits& s, const Mask& m) {
  count(Inst::kVsts);
  check_mask(m, width);
  const int32 kept = dist == 0 ? width : dist == 1 ? width / 2 : width / 4;
  uint8 value[kVectorBytes];
  uint8 active[kVectorBytes];
  bool seen_inactive = false;
  for (int32 i = 0; i < kVectorBytes / width; ++i) {
    const bool on = bit(m.bits, i * width);
    if (dist != 0 && on && seen_inactive) {
      core().fail(HazardKind::kIgnoredMask, ub,
                  "a packed store under a mask with holes: whether they close is not stated");
    }
    seen_inactive = seen_inactive || !on;
    for (int32 k = 0; k < kept; ++k) {
      value[i * kept + k] = s.bytes[i * width + k];
      active[i * kept + k] = on ? 1 : 0;
      if (on && bit(s.poison, i * width + k)) {
        core().fail(HazardKind::kUndefined, moved(ub, i * kept + k),
                    "a store of lanes that are undefined");
      }
    }
  }
  const bool all = !seen_inactive;
  core().vector_write(ub, kVectorBytes / width * kept, kBlockBytes, value, all ? nullptr : active);
}

void store_first(int32 width, UbPlace ub, const RegBits& s) {
  count(Inst::kVstFirst);
  for (int32 k = 0; k < width; ++k) {
    if (bit(s.poison, k)) {
      core().fail(HazardKind::kUndefined, ub, "a store of a lane that is undefined");
    }
  }
  core().vector_write(ub, width, width, s.bytes, nullptr);
}

void store_intlv(int32 width, UbPlace ub, const RegBits& a, const RegBits& b) {
  count(Inst::kVstIntlv);
  uint8 value[2 * kVectorBytes];
  for (int32 at = 0; at < kVectorBytes; at += width) {
    for (int32 k = 0; k < width; ++k) {
      if (bit(a.poison, at + k) || bit(b.poison, at + k)) {
        core().fail(HazardKind::kIgnoredMask, moved(ub, 2 * at),
                    "an interleaving store writes all lanes, undefined ones among them");
      }
      value[2 * at + k] = a.bytes[at + k];
      value[2 * at + width + k] = b.bytes[at + k];
    }
  }
  core().vector_write(ub, 2 * kVectorBytes, kBlockBytes, value, nullptr);
}

void store_unaligned(int32 width, UbPlace ub, const RegBits& s, uint32 lanes) {
  count(Inst::kVstu);
  if (int64{lanes} * width > kVectorBytes) {
    core().fail(HazardKind::kOutOfBounds, ub, "an unaligned store of more lanes than there are");
  }
  const auto bytes = static_cast<int32>(lanes) * width;
  for (int32 k = 0; k < bytes; ++k) {
    if (bit(s.poison, k)) {
      core().fail(HazardKind::kUndefined, moved(ub, k), "a store of lanes that are undefined");
    }
  }
  core().vector_write(ub, bytes, width, s.bytes, nullptr);
}

void scatter(int32 width, UbPlace ub, const RegBits& s, const RegBits& idx, const Mask& m) {
  count(Inst::kVscatter);
  check_mask(m, width);
  check_defined(idx, m, width, "an address");
  check_defined(s, m, width, "a scattered store");
  int32 places[kVectorBytes / 2];
  int32 num = 0;
  for (int32 i = 0; i < kVectorBytes / width; ++i) {
    if (!bit(m.bits, i * width)) continue;
    const UbPlace place = indexed(ub, idx, i, width);
    for (int32 k = 0; k < num; ++k) {
      if (places[k] == place.offset) {
        core().fail(HazardKind::kBadIndex, place,
                    "two lanes of a scatter have one index: which of them wins is not stated");
      }
    }
    places[num++] = place.offset;
    core().vector_write(place, width, width, s.bytes + i * width, nullptr);
  }
}

void mem_bar(Bar bar) {
  count(Inst::kMemBar);
  core().vector_bar(bar);
}

// ------------------------------ arithmetic

void binary(Inst inst, Lane lane, RegBits& d, const RegBits& a, const RegBits& b, const Mask& m) {
  const int32 width = lane_bytes(lane);
  count(inst, lane);
  check_mask(m, width);
  merge_poison(d, a, b, m, width);
  binary_lanes(inst, lane, d, a, &b, nullptr, m);
}

void binary_scalar(Inst inst, Lane lane, RegBits& d, const RegBits& a, const void* b,
                   const Mask& m) {
  const int32 width = lane_bytes(lane);
  count(inst, lane);
  check_mask(m, width);
  merge_poison(d, a, a, m, width);
  binary_lanes(inst, lane, d, a, nullptr, b, m);
}

void unary(Inst inst, Lane lane, RegBits& d, const RegBits& a, const Mask& m) {
  const int32 width = lane_bytes(lane);
  count(inst, lane);
  check_mask(m, width);
  merge_poison(d, a, a, m, width);
  const auto by_bits = [&](auto zero) {
    using T = decltype(zero);
    const auto sign = static_cast<T>(T{1} << (8 * sizeof(T) - 1));
    const Lanes<T> x(a);
    Lanes<T> r;
    for (int32 i = 0; i < Lanes<T>::kCount; ++i) {
      const T v = x.at[i];
      if (inst == Inst::kVnot) {
        r.at[i] = static_cast<T>(~v);
      } else if (lane == Lane::kI32) {
        const bool negative = (v & sign) != 0;
        r.at[i] = inst == Inst::kVneg || negative ? static_cast<T>(T{} - v) : v;
      } else {
        r.at[i] = static_cast<T>(inst == Inst::kVneg ? v ^ sign : v & ~sign);
      }
    }
    put(d, r, m);
  };
  if (width == 1) return by_bits(uint8{});
  if (width == 2) return by_bits(uint16{});
  by_bits(uint32{});
}

void multiply_add(Lane lane, RegBits& d, const RegBits& a, const RegBits& b, const Mask& m) {
  const int32 width = lane_bytes(lane);
  count(Inst::kVmula, lane);
  check_mask(m, width);
  uint64 undefined[kWords];
  for (int32 i = 0; i < kWords; ++i) undefined[i] = d.poison[i];
  merge_poison(d, a, b, m, width);
  for (int32 i = 0; i < kWords; ++i) {
    d.poison[i] |= spread(undefined[i], width) & widen_bits(m.bits[i], width);
  }
  const auto fused = [&](auto zero, auto value, auto back) {
    using T = decltype(zero);
    const Lanes<T> x(a);
    const Lanes<T> y(b);
    Lanes<T> r(d);
    for (int32 i = 0; i < Lanes<T>::kCount; ++i) {
      r.at[i] = back(numerics::fma_rn(value(x.at[i]), value(y.at[i]), value(r.at[i])));
    }
    put(d, r, m);
  };
  const auto wrapping = [&](auto zero) {
    using T = decltype(zero);
    const Lanes<T> x(a);
    const Lanes<T> y(b);
    Lanes<T> r(d);
    for (int32 i = 0; i < Lanes<T>::kCount; ++i) {
      r.at[i] = static_cast<T>(static_cast<uint32>(x.at[i]) * static_cast<uint32>(y.at[i]) +
                               static_cast<uint32>(r.at[i]));
    }
    put(d, r, m);
  };
  const auto same = [](float v) { return v; };
  switch (lane) {
    case Lane::kF32:
      return fused(float{}, same, same);
    case Lane::kF16:
      return fused(uint16{}, numerics::load_f16, numerics::f32_to_f16);
    case Lane::kBF16:
      return fused(uint16{}, numerics::load_bf16, numerics::f32_to_bf16);
    case Lane::kU16:
      return wrapping(uint16{});
    default:
      return wrapping(uint32{});
  }
}

void shift(Inst inst, Lane lane, RegBits& d, const RegBits& a, int32 by, const Mask& m) {
  const int32 width = lane_bytes(lane);
  count(inst, lane);
  check_mask(m, width);
  if (by < 0 || by >= 8 * width) {
    core().fail(HazardKind::kBadIndex, "a shift by " + std::to_string(by) + " of lanes of " +
                                           std::to_string(8 * width) + " bits");
  }
  merge_poison(d, a, a, m, width);
  const auto shifted = [&](auto zero) {
    using T = decltype(zero);
    const Lanes<T> x(a);
    Lanes<T> r;
    for (int32 i = 0; i < Lanes<T>::kCount; ++i) {
      r.at[i] = static_cast<T>(inst == Inst::kVshl ? x.at[i] << by : x.at[i] >> by);
    }
    put(d, r, m);
  };
  switch (lane) {
    case Lane::kU8:
      return shifted(uint8{});
    case Lane::kU16:
      return shifted(uint16{});
    case Lane::kI32:
      return shifted(int32{});
    default:
      return shifted(uint32{});
  }
}

void divide(bool fast, RegBits& d, const RegBits& a, const RegBits& b, const Mask& m) {
  count(Inst::kVdiv);
  check_mask(m, 4);
  merge_poison(d, a, b, m, 4);
  map2<float>(d, a, Lanes<float>(b), m,
              [&](float x, float y) { return fast ? jittered(flushed(x) / flushed(y)) : x / y; });
}

void square_root(bool fast, RegBits& d, const RegBits& a, const Mask& m) {
  count(Inst::kVsqrt);
  check_mask(m, 4);
  merge_poison(d, a, a, m, 4);
  map2<float>(d, a, Lanes<float>(a), m, [&](float x, float) {
    return fast ? jittered(std::sqrt(flushed(x))) : std::sqrt(x);
  });
}

void fast_function(Inst inst, RegBits& d, const RegBits& a, const Mask& m) {
  count(inst);
  check_mask(m, 4);
  merge_poison(d, a, a, m, 4);
  map2<float>(d, a, Lanes<float>(a), m, [&](float x, float) {
    const double exact = static_cast<double>(flushed(x));
    return jittered(static_cast<float>(inst == Inst::kVexp ? std::exp(exact) : std::log(exact)));
  });
}

// ------------------------------ comparison, selection, reduction

void compare(int32 cmp, Lane lane, Mask& d, const RegBits& a, const RegBits& b, const Mask& m) {
  compare_any(cmp, lane, d, a, &b, nullptr, m);
}
void compare_scalar(int32 cmp, Lane lane, Mask& d, const RegBits& a, const void* b, const Mask& m) {
  compare_any(cmp, lane, d, a, nullptr, b, m);
}

void select(int32 width, RegBits& d, const RegBits& a, const RegBits& b, const Mask& m) {
  count(Inst::kVsel);
  check_mask(m, width);
  for (int32 i = 0; i < kWords; ++i) {
    const uint64 on = widen_bits(m.bits[i], width);
    d.poison[i] = (a.poison[i] & on) | (b.poison[i] & ~on);
  }
  const Lanes<uint8> x(a);
  Lanes<uint8> r(b);
  for (int32 at = 0; at < kVectorBytes; at += width) {
    if (!bit(m.bits, at)) continue;
    for (int32 k = 0; k < width; ++k) r.at[at + k] = x.at[at + k];
  }
  std::memcpy(d.bytes, r.at, kVectorBytes);
}

void reduce(Inst inst, Lane lane, RegBits& d, const RegBits& a, const Mask& m) {
  const int32 width = lane_bytes(lane);
  count(inst, lane);
  check_mask(m, width);
  check_defined(a, m, width, "a reduction");
  if (num_active(m, width) == 0) {
    core().fail(HazardKind::kControlState,
                "a reduction under an empty mask: its value is not stated");
  }
  const auto run = [&](auto zero) {
    using T = decltype(zero);
    const Lanes<T> x(a);
    Lanes<T> r(T{});
    if (inst == Inst::kVcadd) {
      Lanes<T> tree;
      for (int32 i = 0; i < Lanes<T>::kCount; ++i) {
        tree.at[i] = bit(m.bits, i * width) ? x.at[i] : T{};
      }
      for (int32 n = Lanes<T>::kCount / 2; n >= 1; n /= 2) {
        for (int32 i = 0; i < n; ++i) {
          if constexpr (std::is_same_v<T, float>) {
            tree.at[i] = tree.at[2 * i] + tree.at[2 * i + 1];
          } else {
            tree.at[i] = static_cast<T>(static_cast<uint32>(tree.at[2 * i]) +
                                        static_cast<uint32>(tree.at[2 * i + 1]));
          }
        }
      }
      r.at[0] = tree.at[0];
    } else {
      int32 best = -1;
      for (int32 i = 0; i < Lanes<T>::kCount; ++i) {
        if (!bit(m.bits, i * width)) continue;
        const bool is_nan = x.at[i] != x.at[i];
        const bool better =
            best < 0 ||
            (x.at[best] == x.at[best] &&
             (is_nan || (inst == Inst::kVcmax ? x.at[best] < x.at[i] : x.at[i] < x.at[best])));
        if (better) best = i;
      }
      r.at[0] = x.at[best];
      std::memcpy(&r.at[1], &best, sizeof(T));
    }
    std::memset(d.poison, 0, sizeof(d.poison));
    std::memcpy(d.bytes, r.at, kVectorBytes);
  };
  visit_lane(lane, run);
}

void block_max(Lane lane, RegBits& d, const RegBits& a, const Mask& m) {
  const int32 width = lane_bytes(lane);
  count(Inst::kVcgmax);
  check_mask(m, width);
  check_defined(a, m, width, "a reduction");
  const auto run = [&](auto zero) {
    using T = decltype(zero);
    const Lanes<T> x(a);
    Lanes<T> r(T{});
    uint64 poison[kWords];
    std::memset(poison, 0xFF, sizeof(poison));
    const int32 lanes = kBlockBytes / width;
    for (int32 block = 0; block < kVectorBytes / kBlockBytes; ++block) {
      bool any = false;
      for (int32 i = block * lanes; i < (block + 1) * lanes; ++i) {
        if (!bit(m.bits, i * width)) continue;
        if (!any || r.at[block] < x.at[i] || x.at[i] != x.at[i]) r.at[block] = x.at[i];
        any = true;
      }
      if (!any) continue;
      for (int32 k = 0; k < width; ++k) poison[0] &= ~(uint64{1} << (block * width + k));
    }
    put_bytes(d, reinterpret_cast<const uint8*>(r.at), poison);
  };
  visit_lane(lane, run);
}

// ------------------------------ moves

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

void stream_store(UbPlace ub, const RegBits& s, Stream& stream) {
  count(Inst::kVstur);
  if (core().ar != Core::Ar::kFilled) {
    core().fail(HazardKind::kStreamMisuse, ub, "vstur without a vsqz_count before it");
  }
  core().ar = Core::Ar::kClear;
  const int32 bytes = core().ar_bytes;
  for (int32 k = 0; k < bytes; ++k) {
    if (bit(s.poison, k)) {
      core().fail(HazardKind::kUndefined, ub, "a store of lanes that are undefined");
    }
  }
  // A block that is not full stays in the stream.
  for (int32 k = 0; k < bytes; ++k) {
    stream.bytes[stream.count] = s.bytes[k];
    if (stream.count == 0) stream.place = moved(ub, k);
    ++stream.count;
    if ((ub.offset + k + 1) % kBlockBytes == 0) stream_flush(stream);
  }
}

void stream_flush(Stream& stream) {
  if (stream.count == 0) return;
  core().vector_write(stream.place, stream.count, 1, stream.bytes, nullptr);
  stream.count = 0;
}

// ------------------------------ conversion

namespace {

uint8 to_e4m3(float x) {
  if (numerics::is_nan(x) && !core().ctrl(50)) return 0;
  return numerics::f32_to_e4m3(x);
}
uint8 to_e2m1(float x) { return numerics::is_nan(x) ? uint8{0} : numerics::f32_to_e2m1(x); }

uint16 to_half(Lane to, bool saturate, float x) {
  if (numerics::is_nan(x)) {
    // The bits of a NaN are the hardware's own: its upper half, quiet.
    return saturate ? uint16{0}
                    : static_cast<uint16>((bit_cast<uint32>(x) >> 16 & 0x8000) |
                                          (to == Lane::kBF16 ? 0x7FC1 : 0x7E01));
  }
  const uint16 code = to == Lane::kBF16 ? numerics::f32_to_bf16(x) : numerics::f32_to_f16(x);
  const uint16 inf = to == Lane::kBF16 ? 0x7F80 : 0x7C00;
  return saturate && (code & 0x7FFF) == inf ? static_cast<uint16>(code - 1) : code;
}

int32 to_i32(Round round, bool saturate, float x) {
  double v = static_cast<double>(x);
  if (numerics::is_nan(x)) return 0;
  switch (round) {
    case Round::kRint:
      v = std::nearbyint(v);
      break;
    case Round::kRound:
      v = std::round(v);
      break;
    case Round::kFloor:
      v = std::floor(v);
      break;
    case Round::kCeil:
      v = std::ceil(v);
      break;
    default:
      v = std::trunc(v);
  }
  const bool inf = !numerics::is_finite(x);
  if (v >= 2147483648.0 && (saturate || inf)) return 2147483647;
  if (v < -2147483648.0 && (saturate || inf)) return -2147483647 - 1;
  return static_cast<int32>(static_cast<uint32>(static_cast<int64>(std::fmod(v, 4294967296.0))));
}

}  // namespace

void convert(Lane to, Lane from, int32 part, Round round, Saturate saturate, RegBits& d,
             const RegBits& s, const Mask& m) {
  core().require_vf(name(Inst::kVcvt));
  core().add_cost(Inst::kVcvt, cycles_of_cast(to, from));
  const int32 from_width = lane_bytes(from);
  const int32 to_width = lane_bytes(to);
  check_mask(m, from_width);
  // The control register may overrule what the instruction says.
  const bool narrows_float = to == Lane::kF16 || to == Lane::kBF16 || to == Lane::kE4M3;
  const bool wanted = saturate == Saturate::kYes;
  if (core().ctrl(60) && (narrows_float || (to == Lane::kI32 && from == Lane::kF32)) &&
      wanted == core().ctrl(narrows_float ? 48 : 59)) {
    core().fail(HazardKind::kControlState,
                "control bit 60 is 1, as after a reset, and overrules the saturation of this "
                "conversion: prologue() is missing");
  }
  uint8 out[kVectorBytes] = {};
  uint64 poison[kWords] = {};
  const auto undefined = [&](int32 at, int32 width) {
    for (int32 k = 0; k < width; ++k) {
      if (bit(s.poison, at + k)) return true;
    }
    return false;
  };
  const auto mark = [&](int32 at, int32 width) {
    for (int32 k = 0; k < width; ++k) set_bit(poison, at + k);
  };
  const auto read = [&](int32 at) {
    uint32 bits = 0;
    if (from_width == 4) {
      std::memcpy(&bits, s.bytes + at, 4);
    } else if (from_width == 2) {
      std::memcpy(&bits, s.bytes + at, 2);
    } else {
      bits = s.bytes[at];
    }
    return bits;
  };
  if (to == Lane::kE2M1x2) {
    for (int32 i = 0; i < kF32Lanes; ++i) {
      if (!bit(m.bits, 4 * i)) continue;
      const float even = numerics::load_bf16(static_cast<uint16>(read(4 * i)));
      const float odd = numerics::load_bf16(static_cast<uint16>(read(4 * i + 2)));
      out[4 * i + part] = numerics::pack_e2m1(to_e2m1(even), to_e2m1(odd));
      if (undefined(4 * i, 4)) mark(4 * i + part, 1);
    }
    return put_bytes(d, out, poison);
  }
  if (from == Lane::kE2M1x2) {
    for (int32 i = 0; i < kF32Lanes; ++i) {
      if (!bit(m.bits, 4 * i + part)) continue;
      const uint8 pair = s.bytes[4 * i + part];
      for (int32 k = 0; k < 2; ++k) {
        const uint8 code = k == 0 ? numerics::even_e2m1(pair) : numerics::odd_e2m1(pair);
        const uint16 value = numerics::f32_to_bf16(numerics::e2m1_to_f32(code));
        std::memcpy(out + 4 * i + 2 * k, &value, 2);
      }
      if (undefined(4 * i + part, 1)) mark(4 * i, 4);
    }
    return put_bytes(d, out, poison);
  }
  const int32 wide = from_width > to_width ? from_width : to_width;
  const int32 from_part = from_width < to_width ? part * from_width : 0;
  const int32 to_part = to_width < from_width ? part * to_width : 0;
  const bool plain = !any_poison(s) && is_full(m, from_width);
  const auto convert_lanes = [&](const auto& converted) {
    for (int32 at = 0; at < kVectorBytes; at += wide) {
      const int32 source = at + from_part;
      const int32 target = at + to_part;
      if (!plain) {
        if (!bit(m.bits, source)) continue;
        if (undefined(source, from_width)) {
          mark(target, to_width);
          continue;
        }
      }
      const uint32 result = converted(read(source));
      if (to_width == 4) {
        std::memcpy(out + target, &result, 4);
      } else if (to_width == 2) {
        std::memcpy(out + target, &result, 2);
      } else {
        out[target] = static_cast<uint8>(result);
      }
    }
    put_bytes(d, out, poison);
  };
  if (from == Lane::kF32 && to == Lane::kE4M3) {
    return convert_lanes([](uint32 bits) -> uint32 { return to_e4m3(bit_cast<float>(bits)); });
  }
  if (from == Lane::kF32 && to == Lane::kI32) {
    return convert_lanes([&](uint32 bits) {
      return static_cast<uint32>(to_i32(round, wanted, bit_cast<float>(bits)));
    });
  }
  if (from == Lane::kF32) {
    return convert_lanes(
        [&](uint32 bits) -> uint32 { return to_half(to, wanted, bit_cast<float>(bits)); });
  }
  if (from == Lane::kI32) {
    return convert_lanes(
        [](uint32 bits) { return bit_cast<uint32>(static_cast<float>(static_cast<int32>(bits))); });
  }
  if (from == Lane::kBF16) {
    return convert_lanes([](uint32 bits) { return bits << 16; });
  }
  if (from == Lane::kF16) {
    return convert_lanes([](uint32 bits) {
      return bit_cast<uint32>(numerics::load_f16(static_cast<uint16>(bits)));
    });
  }
  convert_lanes([](uint32 bits) {
    // Some NaN, of the code's sign: kernels must not rely on its bits.
    const bool is_nan = (bits & 0x7F) == 0x7F;
    return is_nan ? 0x7FC00000u | (bits & 0x80) << 24
                  : bit_cast<uint32>(numerics::e4m3_to_f32(static_cast<uint8>(bits)));
  });
}

// ------------------------------ core code

namespace {
Core& core_code(const char* what) {
  if (core().in_vf()) {
    core().fail(HazardKind::kBadLoop, std::string(what) + " stands in core code");
  }
  return core();
}
}  // namespace

UbPlace moved(UbPlace place, int64 bytes) {
  // Far outside stays outside: offsets do not wrap round into the buffer.
  const int64 offset = std::clamp<int64>(place.offset + bytes, std::numeric_limits<int32>::min(),
                                         std::numeric_limits<int32>::max());
  return {place.buffer, static_cast<int32>(offset)};
}
int64 block_idx() { return core().index(); }
int64 block_num() { return core().num(); }
void set_ctrl(int32 bit, int32 value) { core().set_ctrl(bit, value); }
UbPlace ub_alloc(const char* name, int64 bytes, int32 readable_tail_bytes) {
  return core_code("ub_alloc").allocate(name, bytes, readable_tail_bytes);
}
void copy_in(UbPlace to, const void* from, const Copy& copy) {
  core_code("copy_in").issue_copy(Pipe::kMte2, to, from, copy);
}
void copy_out(void* to, UbPlace from, const Copy& copy) {
  core_code("copy_out").issue_copy(Pipe::kMte3, from, to, copy);
}
void set_flag(Pipe from, Pipe to, int32 id) { core_code("set_flag").issue_set(from, to, id); }
void wait_flag(Pipe from, Pipe to, int32 id) { core_code("wait_flag").issue_wait(from, to, id); }
void lock(Pipe pipe, int32 id) { core_code("lock").issue_lock(pipe, id); }
void unlock(Pipe pipe, int32 id) { core_code("unlock").issue_unlock(pipe, id); }
void pipe_barrier(Pipe pipe) { core_code("pipe_barrier").issue_barrier(pipe); }
void barrier_all() { core_code("barrier_all").barrier_all(); }
void scalar_read(UbPlace place, void* value, int32 bytes) {
  core().scalar_access(place, value, nullptr, bytes);
}
void scalar_write(UbPlace place, const void* value, int32 bytes) {
  core().scalar_access(place, nullptr, value, bytes);
}
uint16 trips(int64 trip_count) {
  if (trip_count < 0 || trip_count > kMaxTrips) {
    core().fail(HazardKind::kBadLoop,
                "a loop of " + std::to_string(trip_count) + " trips: its counter is 16 bits wide");
  }
  return static_cast<uint16>(trip_count);
}
void enqueue_vf(const char* vf_name, void (*run)(const void*), const void* stored, int64 bytes) {
  core().issue_vf(vf_name, run, stored, bytes);
}

}  // namespace tilekernels::ascend::model
