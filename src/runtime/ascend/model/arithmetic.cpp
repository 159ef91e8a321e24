// Arithmetic of the machine model, lane by lane.
#include <cmath>
#include <cstring>
#include <string>

#include "numerics/formats.h"
#include "runtime/ascend/model/register_lanes.h"

namespace tilekernels::ascend::model {
namespace {

using numerics::bit_cast;

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
  switch (lane) {
    case Lane::kU8:
      return integer_binary<uint8>(inst, d, a, operand<uint8>(b, scalar), m);
    case Lane::kU16:
      return integer_binary<uint16>(inst, d, a, operand<uint16>(b, scalar), m);
    case Lane::kU32:
      return integer_binary<uint32>(inst, d, a, operand<uint32>(b, scalar), m);
    case Lane::kI32:
      return integer_binary<int32>(inst, d, a, operand<int32>(b, scalar), m);
    case Lane::kF32: {
      const auto same = [](float v) { return v; };
      return float_binary<float>(inst, d, a, operand<float>(b, scalar), m, same, same);
    }
    case Lane::kF16:
      return float_binary<uint16>(inst, d, a, operand<uint16>(b, scalar), m, numerics::load_f16,
                                  numerics::f32_to_f16);
    default:
      return float_binary<uint16>(inst, d, a, operand<uint16>(b, scalar), m, numerics::load_bf16,
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

}  // namespace

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

void multiply_wide(RegBits& low, RegBits& high, const RegBits& a, const RegBits& b, const Mask& m) {
  count(Inst::kVmull, Lane::kU32);
  check_mask(m, 4);
  if (&low == &high) core().fail(HazardKind::kBadIndex, "both halves of a product in one register");
  const Lanes<uint32> x(a);
  const Lanes<uint32> y(b);
  Lanes<uint32> lows;
  Lanes<uint32> highs;
  for (int32 i = 0; i < Lanes<uint32>::kCount; ++i) {
    const uint64 product = uint64{x.at[i]} * y.at[i];
    lows.at[i] = static_cast<uint32>(product);
    highs.at[i] = static_cast<uint32>(product >> 32);
  }
  merge_poison(low, a, b, m, 4);
  std::copy(std::begin(low.poison), std::end(low.poison), high.poison);
  put(low, lows, m);
  put(high, highs, m);
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

}  // namespace tilekernels::ascend::model
