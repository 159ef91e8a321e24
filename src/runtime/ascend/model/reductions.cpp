// Comparisons, selection and reductions of the machine model.
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "numerics/formats.h"
#include "runtime/ascend/model/register_lanes.h"

namespace tilekernels::ascend::model {
namespace {

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
  const auto same = [](auto v) { return v; };
  switch (lane) {
    case Lane::kU8:
      return compare_lanes(cmp, d, a, operand<uint8>(b, scalar), m, same);
    case Lane::kU16:
      return compare_lanes(cmp, d, a, operand<uint16>(b, scalar), m, same);
    case Lane::kU32:
      return compare_lanes(cmp, d, a, operand<uint32>(b, scalar), m, same);
    case Lane::kI32:
      return compare_lanes(cmp, d, a, operand<int32>(b, scalar), m, same);
    case Lane::kF32:
      return compare_lanes(cmp, d, a, operand<float>(b, scalar), m, same);
    case Lane::kF16:
      return compare_lanes(cmp, d, a, operand<uint16>(b, scalar), m, numerics::load_f16);
    default:
      return compare_lanes(cmp, d, a, operand<uint16>(b, scalar), m, numerics::load_bf16);
  }
}

int32 num_active(const Mask& m, int32 lane_bytes) {
  int32 total = 0;
  for (uint64 word : m.bits) total += __builtin_popcountll(word & lane_pattern(lane_bytes));
  return total;
}

}  // namespace

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

void histogram(bool upper, RegBits& d, const RegBits& s, const Mask& m) {
  count(Inst::kVhist, Lane::kU8);
  check_mask(m, 1);
  check_defined(s, m, 1, "a histogram");
  Lanes<uint16> counts(d);
  for (int32 i = 0; i < kVectorBytes; ++i) {
    if (!bit(m.bits, i) || (s.bytes[i] >= 128) != upper) continue;
    uint16& bin = counts.at[s.bytes[i] % 128];
    bin = static_cast<uint16>(bin + 1);
  }
  std::memcpy(d.bytes, counts.at, kVectorBytes);  // undefined lanes stay so
}

}  // namespace tilekernels::ascend::model
