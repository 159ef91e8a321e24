// The PTX instructions that device text writes inline, each as a function of its name: the rewriter
// (rewrite.h) makes `cvt.rn.bf16x2.f32 %0, %1, %2;` the call ptx::cvt_rn_bf16x2_f32(o0, i1, i2).
// One that is missing here is a compile error with its name. Loads, stores and atomics are
// templates over their modifiers. Written for this place and sharing nothing with src/numerics,
// which thereby is checked by it.
#pragma once

#include "builtins.h"

namespace cuda_emulator::ptx {

// Operands: of constraint h, r, l, f, d.
using reg_b16 = u16;
using reg_u16 = u16;
using reg_s16 = u16;
using reg_f16 = u16;
using reg_bf16 = u16;
using reg_b32 = u32;
using reg_u32 = u32;
using reg_s32 = u32;
using reg_f16x2 = u32;
using reg_b64 = u64;
using reg_u64 = u64;
using reg_s64 = u64;
using reg_f32 = float;
using reg_f64 = double;
using reg_pred = bool;

template <class T>
EMULATOR_INLINE u64 word_of(T* x) {
  return reinterpret_cast<u64>(x);
}
template <class T>
EMULATOR_INLINE auto word_of(T x) {
  return x;
}
// What an output operand gets.
template <class T>
EMULATOR_INLINE void give(T*& to, u64 x) {
  to = reinterpret_cast<T*>(x);
}
template <class T, class X>
EMULATOR_INLINE void give(T& to, X x) {
  to = static_cast<T>(x);
}

template <class A, class B>
struct Two {
  A& a;
  B& b;
};
template <class T>
struct Halves {
  T a;
  T b;
};

// Formats.

// Of a finite value: the nearest number with `bits` bits of mantissa and exponents from
// `min_exponent` (that of the least normal one) on, ties to even. Exact in double.
EMULATOR_PLAIN static double round_to(double x, int mantissa, int min_exponent) {
  if (x == 0) return x;
  const u64 image = __builtin_bit_cast(u64, x);
  int exponent = static_cast<int>(image >> 52 & 0x7FF) - 1023;
  if (exponent < min_exponent) exponent = min_exponent;
  const double unit =
      __builtin_bit_cast(double, static_cast<u64>(exponent - mantissa + 1023) << 52);
  return __builtin_rint(x / unit) * unit;
}

// The code of a number that `round_to` made, or more: `largest` is the greatest code.
EMULATOR_PLAIN static u32 encode(double rounded, int mantissa, int bias, u32 largest) {
  const u64 image = __builtin_bit_cast(u64, rounded);
  const double magnitude = __builtin_fabs(rounded);
  const int exponent = static_cast<int>(image >> 52 & 0x7FF) - 1023;
  u64 code;
  if (magnitude == 0) {
    code = 0;
  } else if (exponent < 1 - bias) {  // subnormal
    const double unit =
        __builtin_bit_cast(double, static_cast<u64>(1 - bias - mantissa + 1023) << 52);
    code = static_cast<u64>(magnitude / unit);
  } else {
    code = static_cast<u64>(exponent + bias) << mantissa |
           (image >> (52 - mantissa) & ((u64{1} << mantissa) - 1));
  }
  return static_cast<u32>(code > largest ? largest : code);
}

EMULATOR_PLAIN static double decode(u32 code, int mantissa, int exponents, int bias) {
  const u32 fraction = code & ((1u << mantissa) - 1);
  const int exponent = static_cast<int>(code >> mantissa & ((1u << exponents) - 1));
  const double unit = __builtin_bit_cast(
      double, static_cast<u64>((exponent == 0 ? 1 : exponent) - bias - mantissa + 1023) << 52);
  const double magnitude = (exponent == 0 ? fraction : fraction + (1u << mantissa)) * unit;
  return code >> (mantissa + exponents) & 1 ? -magnitude : magnitude;
}

EMULATOR_INLINE u32 sign_bit(double x) {
  return static_cast<u32>(__builtin_bit_cast(u64, x) >> 63);
}

EMULATOR_PLAIN static u16 to_bf16(double x) {
  if (x != x) return 0x7FFF;
  const u32 sign = sign_bit(x) << 15;
  if (__builtin_isinf(x)) return static_cast<u16>(sign | 0x7F80);
  return static_cast<u16>(sign | encode(round_to(x, 7, -126), 7, 127, 0x7F80));
}
EMULATOR_PLAIN static u16 to_f16(double x) {
  if (x != x) return 0x7FFF;
  const u32 sign = sign_bit(x) << 15;
  if (__builtin_isinf(x)) return static_cast<u16>(sign | 0x7C00);
  return static_cast<u16>(sign | encode(round_to(x, 10, -14), 10, 15, 0x7C00));
}
EMULATOR_PLAIN static u8 to_e4m3(double x) {
  if (x != x) return 0x7F;
  const u32 sign = sign_bit(x) << 7;
  if (__builtin_isinf(x)) return static_cast<u8>(sign | 0x7E);
  return static_cast<u8>(sign | encode(round_to(x, 3, -6), 3, 7, 0x7E));
}
EMULATOR_PLAIN static double of_bf16(u32 code) {
  if ((code & 0x7F80) == 0x7F80) return __builtin_bit_cast(float, code << 16);
  return decode(code & 0xFFFF, 7, 8, 127);
}
EMULATOR_PLAIN static double of_f16(u32 code) {
  if ((code & 0x7C00) == 0x7C00) {
    if ((code & 0x3FF) != 0) return __builtin_nan("");
    return code & 0x8000 ? -__builtin_inf() : __builtin_inf();
  }
  return decode(code & 0xFFFF, 10, 5, 15);
}
EMULATOR_PLAIN static double of_e4m3(u32 code) {
  return (code & 0x7F) == 0x7F ? __builtin_nan("") : decode(code & 0xFF, 3, 4, 7);
}

EMULATOR_INLINE u32 pair(u32 low, u32 high) { return low | high << 16; }

// Conversions. The first source is the upper half.
EMULATOR_INLINE void cvt_rn_bf16x2_f32(u32& d, float a, float b) {
  d = pair(to_bf16(b), to_bf16(a));
}
EMULATOR_INLINE void cvt_rn_f16x2_f32(u32& d, float a, float b) { d = pair(to_f16(b), to_f16(a)); }
EMULATOR_INLINE void cvt_rn_satfinite_e4m3x2_f32(u16& d, float a, float b) {
  d = static_cast<u16>(to_e4m3(b) | to_e4m3(a) << 8);
}
EMULATOR_INLINE void cvt_rn_f16x2_e4m3x2(u32& d, u16 a) {
  d = pair(to_f16(of_e4m3(a & 0xFF)), to_f16(of_e4m3(a >> 8)));
}
EMULATOR_INLINE void cvt_f32_f16(float& d, u16 a) {
  const double x = of_f16(a);
  d = x != x ? bits<float>(kNan) : static_cast<float>(x);
}
EMULATOR_INLINE void cvt_f32_bf16(float& d, u16 a) { d = bits<float>(static_cast<u32>(a) << 16); }
EMULATOR_INLINE void cvt_rn_f16_f32(u16& d, float a) { d = to_f16(a); }
EMULATOR_INLINE void cvt_rn_bf16_f32(u16& d, float a) { d = to_bf16(a); }

// Arithmetic of pairs. Products and sums of two are exact in double, or their excess matters not:
// what a double cannot hold lies far below half a unit of the result.
EMULATOR_INLINE void mul_bf16x2(u32& d, u32 a, u32 b) {
  d = pair(to_bf16(of_bf16(a & 0xFFFF) * of_bf16(b & 0xFFFF)),
           to_bf16(of_bf16(a >> 16) * of_bf16(b >> 16)));
}
EMULATOR_INLINE void add_bf16x2(u32& d, u32 a, u32 b) {
  d = pair(to_bf16(of_bf16(a & 0xFFFF) + of_bf16(b & 0xFFFF)),
           to_bf16(of_bf16(a >> 16) + of_bf16(b >> 16)));
}
EMULATOR_INLINE void mul_rn_bf16x2(u32& d, u32 a, u32 b) { mul_bf16x2(d, a, b); }
EMULATOR_INLINE void add_rn_bf16x2(u32& d, u32 a, u32 b) { add_bf16x2(d, a, b); }
// a · b + c, whose product is exact, rounded to odd: rounding it again is like rounding once.
EMULATOR_PLAIN static double fma_odd(double a, double b, double c) {
  const double product = a * b;
  const double sum = product + c;
  const double rest = sum - product;
  const double excess = (product - (sum - rest)) + (c - rest);
  if (!(excess < 0 || excess > 0)) return sum;
  u64 odd = __builtin_bit_cast(u64, sum);
  if ((excess > 0) != (sum > 0)) --odd;
  return __builtin_bit_cast(double, odd | 1);
}
EMULATOR_INLINE void fma_rn_bf16x2(u32& d, u32 a, u32 b, u32 c) {
  d = pair(to_bf16(fma_odd(of_bf16(a & 0xFFFF), of_bf16(b & 0xFFFF), of_bf16(c & 0xFFFF))),
           to_bf16(fma_odd(of_bf16(a >> 16), of_bf16(b >> 16), of_bf16(c >> 16))));
}
EMULATOR_INLINE void mul_f16x2(u32& d, u32 a, u32 b) {
  d = pair(to_f16(of_f16(a & 0xFFFF) * of_f16(b & 0xFFFF)),
           to_f16(of_f16(a >> 16) * of_f16(b >> 16)));
}
EMULATOR_INLINE void add_f16x2(u32& d, u32 a, u32 b) {
  d = pair(to_f16(of_f16(a & 0xFFFF) + of_f16(b & 0xFFFF)),
           to_f16(of_f16(a >> 16) + of_f16(b >> 16)));
}
EMULATOR_INLINE void abs_f16x2(u32& d, u32 a) { d = a & 0x7FFF7FFF; }
// Of two magnitudes; `inf` is above all but NaNs.
EMULATOR_PLAIN static u32 max_or_nan(u32 a, u32 b, u32 inf) {
  return a > inf || b > inf ? 0x7FFF : a > b ? a : b;
}
EMULATOR_PLAIN static u32 max_magnitudes(u32 a, u32 b, u32 inf) {
  return pair(max_or_nan(a & 0x7FFF, b & 0x7FFF, inf),
              max_or_nan(a >> 16 & 0x7FFF, b >> 16 & 0x7FFF, inf));
}
EMULATOR_INLINE void max_NaN_f16x2(u32& d, u32 a, u32 b) {
  if (((a | b) & 0x80008000) != 0) api->fail("max.NaN.f16x2 of other numbers than magnitudes");
  d = max_magnitudes(a, b, 0x7C00);
}
EMULATOR_INLINE void max_NaN_xorsign_abs_bf16x2(u32& d, u32 a, u32 b) {
  d = max_magnitudes(a, b, 0x7F80) | ((a ^ b) & 0x80008000);
}
EMULATOR_INLINE void lop3_b32(u32& d, u32 a, u32 b, u32 c, u32 table) {
  d = 0;
  for (u32 i = 0; i < 8; ++i) {
    if ((table >> i & 1) == 0) continue;
    d |= (i & 4 ? a : ~a) & (i & 2 ? b : ~b) & (i & 1 ? c : ~c);
  }
}
EMULATOR_INLINE void max_u16x2(u32& d, u32 a, u32 b) {
  const u32 low = (a & 0xFFFF) < (b & 0xFFFF) ? b & 0xFFFF : a & 0xFFFF;
  const u32 high = a >> 16 < b >> 16 ? b >> 16 : a >> 16;
  d = pair(low, high);
}
EMULATOR_INLINE void add_s16x2(u32& d, u32 a, u32 b) {
  d = ((a & 0xFFFF0000) + (b & 0xFFFF0000)) | ((a + b) & 0xFFFF);
}
EMULATOR_INLINE void max_s16x2(u32& d, u32 a, u32 b) {
  constexpr u32 kSigns = 0x80008000;  // so that the order is that of unsigned numbers
  max_u16x2(d, a ^ kSigns, b ^ kSigns);
  d ^= kSigns;
}
EMULATOR_INLINE void min_u16x2(u32& d, u32 a, u32 b) {
  const u32 low = (a & 0xFFFF) < (b & 0xFFFF) ? a & 0xFFFF : b & 0xFFFF;
  const u32 high = a >> 16 < b >> 16 ? a >> 16 : b >> 16;
  d = pair(low, high);
}

// Approximations of fp32 that flush subnormal numbers to zero: off by what is documented, upwards
// or downwards as the bits of the operand fall.
EMULATOR_PLAIN static float flush(float x) {
  return __builtin_fabsf(x) < 0x1p-126f ? __builtin_copysignf(0.0f, x) : x;
}
EMULATOR_PLAIN static float approximate(double y, float x, double error) {
  if (y != y) return bits<float>(kNan);
  const double sign = (bits<u32>(x) * 0x9E3779B1u) >> 31 ? 1.0 : -1.0;
  return flush(static_cast<float>(y * (1.0 + sign * error)));
}
EMULATOR_INLINE void ex2_approx_ftz_f32(float& d, float a) {
  d = approximate(__builtin_exp2(flush(a)), a, 0x1p-22);
}
EMULATOR_INLINE void lg2_approx_ftz_f32(float& d, float a) {
  const double y = __builtin_log2(flush(a));
  const double error = __builtin_fabs(y) < 1 ? 0x1p-22 / y : 0x1p-22;
  d = y == 0 ? 0x1p-22f : approximate(y, a, error);
}
EMULATOR_INLINE void sqrt_approx_ftz_f32(float& d, float a) {
  d = approximate(__builtin_sqrt(flush(a)), a, 0x1p-23);
}
// Newton steps from these to correctly rounded results are proved on the machine's own table, so
// these are as near as can be.
EMULATOR_INLINE void rcp_approx_ftz_f32(float& d, float a) {
  d = approximate(1.0 / flush(a), a, 0);
}
EMULATOR_INLINE void rsqrt_approx_ftz_f32(float& d, float a) {
  d = approximate(1.0 / __builtin_sqrt(flush(a)), a, 0);
}
EMULATOR_INLINE void max_NaN_f32(float& d, float a, float b) {
  d = a != a || b != b ? bits<float>(kNan) : fmaxf(a, b);
}
EMULATOR_INLINE void set_gt_f32_f32(float& d, float a, float b) { d = a > b ? 1.0f : 0.0f; }

// Moves: {a, b} is a Two of registers.
EMULATOR_INLINE void mov_b32(Two<u16, u16> d, u32 x) {
  d.a = static_cast<u16>(x);
  d.b = static_cast<u16>(x >> 16);
}
EMULATOR_INLINE void mov_b32(u32& d, Two<u16, u16> x) { d = pair(x.a, x.b); }
EMULATOR_INLINE void mov_b64(Two<u32, u32> d, u64 x) {
  d.a = static_cast<u32>(x);
  d.b = static_cast<u32>(x >> 32);
}
EMULATOR_INLINE void mov_b64(u64& d, Two<u32, u32> x) { d = x.a | static_cast<u64>(x.b) << 32; }
#define EMULATOR_MOV(type, T) \
  EMULATOR_INLINE void mov_##type(T& d, T x) { d = x; }
EMULATOR_MOV(u16, u16)
EMULATOR_MOV(b16, u16)
EMULATOR_MOV(u32, u32)
EMULATOR_MOV(b32, u32)
EMULATOR_MOV(s32, u32)
EMULATOR_MOV(u64, u64)
EMULATOR_MOV(b64, u64)
EMULATOR_MOV(s64, u64)
EMULATOR_MOV(f32, float)

// Special registers.
EMULATOR_INLINE u32 sreg_laneid() { return lane(); }
EMULATOR_INLINE u32 sreg_lanemask_eq() { return 1u << lane(); }
EMULATOR_INLINE u32 sreg_lanemask_lt() { return (1u << lane()) - 1; }
EMULATOR_INLINE u32 sreg_lanemask_le() { return 0xFFFFFFFFu >> (31 - lane()); }
EMULATOR_INLINE u32 sreg_lanemask_gt() { return ~sreg_lanemask_le(); }
EMULATOR_INLINE u32 sreg_lanemask_ge() { return ~sreg_lanemask_lt(); }

// Memory. Addresses of shared memory are offsets, as cvta gives them.
struct t_b8 {
  using Type = u8;
};
struct t_u8 {
  using Type = u8;
};
struct t_s8 {
  using Type = s8;
};
struct t_b16 {
  using Type = u16;
};
struct t_u16 {
  using Type = u16;
};
struct t_s16 {
  using Type = s16;
};
struct t_b32 {
  using Type = u32;
};
struct t_u32 {
  using Type = u32;
};
struct t_s32 {
  using Type = s32;
};
struct t_b64 {
  using Type = u64;
};
struct t_u64 {
  using Type = u64;
};
struct t_s64 {
  using Type = s64;
};
struct t_f32 {
  using Type = float;
};
struct t_f64 {
  using Type = double;
};
enum class Space { kGeneric, kGlobal, kShared };
enum class Order { kWeak, kVolatile, kRelaxed, kAcquire, kRelease, kAcqRel };

template <Space kSpace>
EMULATOR_INLINE u8* address_of(u64 address) {
  return kSpace == Space::kShared ? __bss_start + static_cast<u32>(address)
                                  : reinterpret_cast<u8*>(address);
}
template <Space kSpace, Order kOrder>
constexpr u32 kWhat = (kSpace == Space::kGlobal   ? kGlobalOnly
                       : kSpace == Space::kShared ? kSharedOnly
                                                  : 0) |
                      (kOrder == Order::kWeak ? 0 : kVolatile);

template <class T, int kCount>
struct Many {
  T x[kCount];
};
template <class T, int kCount>
EMULATOR_PLAIN Many<T, kCount> load(const u8* from, u32 what, const void* pc) {
  api->access(from, sizeof(T) * kCount, kRead | what, pc);
  Many<T, kCount> to;
  __builtin_memcpy(&to, from, sizeof(to));
  return to;
}
template <class T, int kCount>
EMULATOR_PLAIN void store(u8* to, Many<T, kCount> from, u32 what, const void* pc) {
  api->access(to, sizeof(T) * kCount, kWrite | what, pc);
  __builtin_memcpy(to, &from, sizeof(from));
}
EMULATOR_PLAIN void fence() { api->fence(); }
// Where in the text: a label of the caller.
EMULATOR_INLINE const void* here() {
  const void* pc;
  asm volatile("lea 0(%%rip), %0" : "=r"(pc));
  return pc;
}

template <class T, Space kSpace, Order kOrder, class D>
EMULATOR_INLINE void ld(D& d, u64 from) {
  using Type = typename T::Type;
  const auto x = load<Type, 1>(address_of<kSpace>(from), kWhat<kSpace, kOrder>, here());
  if constexpr (kOrder == Order::kAcquire) fence();
  give(d, x.x[0]);
}
template <class T, Space kSpace, Order kOrder, class D>
EMULATOR_INLINE void ld(D& d0, D& d1, u64 from) {
  using Type = typename T::Type;
  const auto x = load<Type, 2>(address_of<kSpace>(from), kWhat<kSpace, kOrder>, here());
  give(d0, x.x[0]);
  give(d1, x.x[1]);
}
template <class T, Space kSpace, Order kOrder, class D>
EMULATOR_INLINE void ld(D& d0, D& d1, D& d2, D& d3, u64 from) {
  using Type = typename T::Type;
  const auto x = load<Type, 4>(address_of<kSpace>(from), kWhat<kSpace, kOrder>, here());
  give(d0, x.x[0]);
  give(d1, x.x[1]);
  give(d2, x.x[2]);
  give(d3, x.x[3]);
}
template <class T, Space kSpace, Order kOrder, class X>
EMULATOR_INLINE void st(u64 to, X x) {
  using Type = typename T::Type;
  if constexpr (kOrder == Order::kRelease) fence();
  store<Type, 1>(address_of<kSpace>(to), {{static_cast<Type>(x)}}, kWhat<kSpace, kOrder>, here());
}
template <class T, Space kSpace, Order kOrder, class X>
EMULATOR_INLINE void st(u64 to, X x0, X x1) {
  using Type = typename T::Type;
  store<Type, 2>(address_of<kSpace>(to), {{static_cast<Type>(x0), static_cast<Type>(x1)}},
                 kWhat<kSpace, kOrder>, here());
}
template <class T, Space kSpace, Order kOrder, class X>
EMULATOR_INLINE void st(u64 to, X x0, X x1, X x2, X x3) {
  using Type = typename T::Type;
  store<Type, 4>(address_of<kSpace>(to),
                 {{static_cast<Type>(x0), static_cast<Type>(x1), static_cast<Type>(x2),
                   static_cast<Type>(x3)}},
                 kWhat<kSpace, kOrder>, here());
}

enum class AtomicOp { add, min, max, and_, or_, xor_, exch, inc, dec, cas };
template <AtomicOp kOp, class T>
EMULATOR_INLINE T changed(T old, T x, T y) {
  if constexpr (kOp == AtomicOp::add) {
    return old + x;
  } else if constexpr (kOp == AtomicOp::min) {
    return x < old ? x : old;
  } else if constexpr (kOp == AtomicOp::max) {
    return old < x ? x : old;
  } else if constexpr (kOp == AtomicOp::and_) {
    return old & x;
  } else if constexpr (kOp == AtomicOp::or_) {
    return old | x;
  } else if constexpr (kOp == AtomicOp::xor_) {
    return old ^ x;
  } else if constexpr (kOp == AtomicOp::exch) {
    return x;
  } else if constexpr (kOp == AtomicOp::inc) {
    return old >= x ? 0 : old + 1;
  } else if constexpr (kOp == AtomicOp::dec) {
    return old == 0 || old > x ? x : old - 1;
  } else {
    return old == x ? y : old;
  }
}
template <AtomicOp kOp, class T, Space kSpace, Order kOrder, class D, class X, class Y = X>
EMULATOR_INLINE void atom(D& d, u64 at, X x, Y y = Y()) {
  using Type = typename T::Type;
  const auto first = static_cast<Type>(x);
  const auto second = static_cast<Type>(y);
  if constexpr (kOrder != Order::kWeak && kOrder != Order::kRelaxed) fence();
  give(d, atomic(
              reinterpret_cast<Type*>(address_of<kSpace>(at)),
              [=](Type old) { return changed<kOp, Type>(old, first, second); },
              kWhat<kSpace, Order::kWeak>));
}
template <AtomicOp kOp, class T, Space kSpace, Order kOrder, class X>
EMULATOR_INLINE void red(u64 at, X x) {
  typename T::Type unused;
  atom<kOp, T, kSpace, kOrder>(unused, at, x);
}

// Fences, dependent launch, barriers.
EMULATOR_INLINE void membar_gl() { fence(); }
EMULATOR_INLINE void membar_cta() { __threadfence_block(); }
EMULATOR_INLINE void membar_sys() { fence(); }
EMULATOR_INLINE void fence_acq_rel_gpu() { fence(); }
EMULATOR_INLINE void fence_sc_gpu() { fence(); }
EMULATOR_INLINE void fence_acq_rel_cta() { __threadfence_block(); }
EMULATOR_PLAIN void griddepcontrol_wait() { api->wait_for_predecessor(); }
EMULATOR_INLINE void griddepcontrol_launch_dependents() {}
EMULATOR_PLAIN void bar_sync(u32 barrier, const char* file = __builtin_FILE(),
                             u32 line = __builtin_LINE()) {
  if (barrier != 0) api->fail("bar.sync of another barrier than 0");
  api->block_barrier(BlockBarrier::kPlain, 0, file, line);
}
EMULATOR_INLINE void bar_warp_sync(u32 mask) { __syncwarp(mask); }

}  // namespace cuda_emulator::ptx
