// What NVRTC has built in, for g++: the words of CUDA C++ and its functions. Follows api.h in the
// text of every kernel. Compiled with -fsanitize=thread, whose calls before each access to memory
// end in the emulator instead of that sanitizer's library.
#pragma once

#include "api.h"

#define EMULATOR_PLAIN __attribute__((noinline, no_sanitize("thread")))
#define EMULATOR_HOOK \
  extern "C" __attribute__((visibility("hidden"), noinline, used, no_sanitize("thread")))
#define EMULATOR_INLINE static inline __attribute__((always_inline))
#define EMULATOR_EXPORT extern "C" __attribute__((visibility("default"), used))

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __noinline__ __attribute__((noinline))
#define __restrict__ __restrict
#define __align__(bytes) alignas(bytes)
#define __grid_constant__
#define __shared__ static

extern "C" {
extern cuda_emulator::u8 __bss_start[] __attribute__((visibility("hidden")));
extern cuda_emulator::u8 _end[] __attribute__((visibility("hidden")));
}

namespace cuda_emulator {

// In .data: all of .bss is shared memory.
__attribute__((section(".data"))) static const Api* api = nullptr;
__attribute__((section(".data"))) static const Thread* current = nullptr;

#ifdef EMULATOR_DYNAMIC_SHARED
constexpr u64 kMaxDynamicShared = 228 * 1024;
alignas(1024) static u8 dynamic_shared[kMaxDynamicShared];
#define EMULATOR_DYNAMIC_OBJECT cuda_emulator::dynamic_shared, cuda_emulator::kMaxDynamicShared
#else
#define EMULATOR_DYNAMIC_OBJECT nullptr, 0
#endif

// Calls a kernel with the parameters that the driver got.
template <int... kAt>
struct Numbers {};
template <int kCount, int... kAt>
struct CountTo : CountTo<kCount - 1, kCount - 1, kAt...> {};
template <int... kAt>
struct CountTo<0, kAt...> {
  using Type = Numbers<kAt...>;
};
template <class... Args, int... kAt>
EMULATOR_PLAIN void call(void (*kernel)(Args...), void** params, Numbers<kAt...>) {
  kernel(*static_cast<Args*>(params[kAt])...);
}
template <class... Args>
EMULATOR_PLAIN void call(void (*kernel)(Args...), void** params) {
  call(kernel, params, typename CountTo<sizeof...(Args)>::Type());
}
constexpr u32 launch_bound(u32 max_threads = 0, u32 = 0, u32 = 0) { return max_threads; }

EMULATOR_INLINE void touch(const void* address, u64 bytes, u32 what) {
  if (reinterpret_cast<u64>(address) - current->stack < current->stack_bytes) return;
  api->access(address, bytes, what, __builtin_return_address(0));
}

template <class To, class From>
EMULATOR_INLINE To bits(From from) {
  return __builtin_bit_cast(To, from);
}

}  // namespace cuda_emulator

EMULATOR_EXPORT const cuda_emulator::Object cuda_emulator_object;
const cuda_emulator::Object cuda_emulator_object = {&cuda_emulator::api, &cuda_emulator::current,
                                                    __bss_start, _end, EMULATOR_DYNAMIC_OBJECT};

// The calls of -fsanitize=thread.
EMULATOR_HOOK void __tsan_init() {}
EMULATOR_HOOK void __tsan_func_entry(void*) {}
EMULATOR_HOOK void __tsan_func_exit() {}
#define EMULATOR_TSAN(bytes)                                                                     \
  EMULATOR_HOOK void __tsan_read##bytes(void* p) {                                               \
    cuda_emulator::touch(p, bytes, cuda_emulator::kRead);                                        \
  }                                                                                              \
  EMULATOR_HOOK void __tsan_write##bytes(void* p) {                                              \
    cuda_emulator::touch(p, bytes, cuda_emulator::kWrite);                                       \
  }                                                                                              \
  EMULATOR_HOOK void __tsan_unaligned_read##bytes(void* p) {                                     \
    cuda_emulator::touch(p, bytes, cuda_emulator::kRead | cuda_emulator::kUnaligned);            \
  }                                                                                              \
  EMULATOR_HOOK void __tsan_unaligned_write##bytes(void* p) {                                    \
    cuda_emulator::touch(p, bytes, cuda_emulator::kWrite | cuda_emulator::kUnaligned);           \
  }                                                                                              \
  EMULATOR_HOOK void __tsan_volatile_read##bytes(void* p) {                                      \
    cuda_emulator::touch(p, bytes, cuda_emulator::kRead | cuda_emulator::kVolatile);             \
  }                                                                                              \
  EMULATOR_HOOK void __tsan_volatile_write##bytes(void* p) {                                     \
    cuda_emulator::touch(p, bytes, cuda_emulator::kWrite | cuda_emulator::kVolatile);            \
  }                                                                                              \
  EMULATOR_HOOK void __tsan_unaligned_volatile_read##bytes(void* p) {                            \
    cuda_emulator::touch(                                                                        \
        p, bytes, cuda_emulator::kRead | cuda_emulator::kVolatile | cuda_emulator::kUnaligned);  \
  }                                                                                              \
  EMULATOR_HOOK void __tsan_unaligned_volatile_write##bytes(void* p) {                           \
    cuda_emulator::touch(                                                                        \
        p, bytes, cuda_emulator::kWrite | cuda_emulator::kVolatile | cuda_emulator::kUnaligned); \
  }
EMULATOR_TSAN(1)
EMULATOR_TSAN(2)
EMULATOR_TSAN(4)
EMULATOR_TSAN(8)
EMULATOR_TSAN(16)
EMULATOR_HOOK void __tsan_read_range(void* p, unsigned long bytes) {
  cuda_emulator::touch(p, bytes, cuda_emulator::kRead | cuda_emulator::kUnaligned);
}
EMULATOR_HOOK void __tsan_write_range(void* p, unsigned long bytes) {
  cuda_emulator::touch(p, bytes, cuda_emulator::kWrite | cuda_emulator::kUnaligned);
}

// The place of a thread. Constant while a thread runs.
struct uint3 {
  unsigned x, y, z;
};
using dim3 = uint3;
namespace cuda_emulator {
template <u32 (Thread::*kPart)[3]>
EMULATOR_PLAIN __attribute__((const)) u32 part(u32 axis) {
  return (current->*kPart)[axis];
}
template <u32 (Thread::*kPart)[3]>
EMULATOR_INLINE uint3 place() {
  return {part<kPart>(0), part<kPart>(1), part<kPart>(2)};
}
EMULATOR_PLAIN __attribute__((const)) static u32 lane() { return current->lane; }
}  // namespace cuda_emulator
#define threadIdx (cuda_emulator::place<&cuda_emulator::Thread::thread>())
#define blockIdx (cuda_emulator::place<&cuda_emulator::Thread::block>())
#define blockDim (cuda_emulator::place<&cuda_emulator::Thread::block_size>())
#define gridDim (cuda_emulator::place<&cuda_emulator::Thread::grid_size>())
constexpr int warpSize = 32;

// Vector types, aligned as a device has them.
#define EMULATOR_VECTOR(type, name)                                       \
  struct alignas(2 * sizeof(type)) name##2 {                              \
    type x, y;                                                            \
  };                                                                      \
  struct alignas(4 * sizeof(type) > 16 ? 16 : 4 * sizeof(type)) name##4 { \
    type x, y, z, w;                                                      \
  };
EMULATOR_VECTOR(char, char)
EMULATOR_VECTOR(unsigned char, uchar)
EMULATOR_VECTOR(short, short)
EMULATOR_VECTOR(unsigned short, ushort)
EMULATOR_VECTOR(int, int)
EMULATOR_VECTOR(unsigned, uint)
EMULATOR_VECTOR(long long, longlong)
EMULATOR_VECTOR(unsigned long long, ulonglong)
EMULATOR_VECTOR(float, float)
EMULATOR_VECTOR(double, double)
EMULATOR_INLINE uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
EMULATOR_INLINE uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) {
  return {x, y, z, w};
}
EMULATOR_INLINE int2 make_int2(int x, int y) { return {x, y}; }
EMULATOR_INLINE int4 make_int4(int x, int y, int z, int w) { return {x, y, z, w}; }
EMULATOR_INLINE float2 make_float2(float x, float y) { return {x, y}; }
EMULATOR_INLINE float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }

// Barriers and fences.
EMULATOR_PLAIN static void __syncthreads(const char* file = __builtin_FILE(),
                                         unsigned line = __builtin_LINE()) {
  cuda_emulator::api->block_barrier(cuda_emulator::BlockBarrier::kPlain, 0, file, line);
}
EMULATOR_PLAIN static int __syncthreads_count(int predicate, const char* file = __builtin_FILE(),
                                              unsigned line = __builtin_LINE()) {
  return static_cast<int>(cuda_emulator::api->block_barrier(cuda_emulator::BlockBarrier::kCount,
                                                            predicate != 0, file, line));
}
EMULATOR_PLAIN static int __syncthreads_and(int predicate, const char* file = __builtin_FILE(),
                                            unsigned line = __builtin_LINE()) {
  return static_cast<int>(cuda_emulator::api->block_barrier(cuda_emulator::BlockBarrier::kAnd,
                                                            predicate != 0, file, line));
}
EMULATOR_PLAIN static int __syncthreads_or(int predicate, const char* file = __builtin_FILE(),
                                           unsigned line = __builtin_LINE()) {
  return static_cast<int>(cuda_emulator::api->block_barrier(cuda_emulator::BlockBarrier::kOr,
                                                            predicate != 0, file, line));
}
EMULATOR_PLAIN static void __threadfence() { cuda_emulator::api->fence(); }
EMULATOR_PLAIN static void __threadfence_block() { asm volatile("" ::: "memory"); }
EMULATOR_PLAIN static void __threadfence_system() { cuda_emulator::api->fence(); }
EMULATOR_PLAIN static void __trap() { cuda_emulator::api->fail("__trap()"); }
EMULATOR_PLAIN static void __nanosleep(unsigned) {}

// Collectives of a warp.
namespace cuda_emulator {
EMULATOR_PLAIN static u64 together(Collective kind, u32 mask, u64 value, u32 a, u32 b,
                                   const char* name) {
  return api->collective(kind, mask, value, a, b, name, __builtin_return_address(0));
}
template <class T>
EMULATOR_INLINE T shuffle(Collective kind, u32 mask, T value, u32 a, u32 width, const char* name) {
  u64 payload = 0;
  static_assert(sizeof(T) == 4 || sizeof(T) == 8);
  if constexpr (sizeof(T) == 4) {
    payload = bits<u32>(value);
    return bits<T>(static_cast<u32>(together(kind, mask, payload, a, width, name)));
  } else {
    payload = bits<u64>(value);
    return bits<T>(together(kind, mask, payload, a, width, name));
  }
}
}  // namespace cuda_emulator
#define EMULATOR_SHUFFLES(T)                                                                 \
  EMULATOR_INLINE T __shfl_sync(unsigned mask, T x, int lane, int width = 32) {              \
    return cuda_emulator::shuffle(cuda_emulator::Collective::kShfl, mask, x,                 \
                                  static_cast<unsigned>(lane), static_cast<unsigned>(width), \
                                  "__shfl_sync");                                            \
  }                                                                                          \
  EMULATOR_INLINE T __shfl_up_sync(unsigned mask, T x, unsigned step, int width = 32) {      \
    return cuda_emulator::shuffle(cuda_emulator::Collective::kShflUp, mask, x, step,         \
                                  static_cast<unsigned>(width), "__shfl_up_sync");           \
  }                                                                                          \
  EMULATOR_INLINE T __shfl_down_sync(unsigned mask, T x, unsigned step, int width = 32) {    \
    return cuda_emulator::shuffle(cuda_emulator::Collective::kShflDown, mask, x, step,       \
                                  static_cast<unsigned>(width), "__shfl_down_sync");         \
  }                                                                                          \
  EMULATOR_INLINE T __shfl_xor_sync(unsigned mask, T x, int step, int width = 32) {          \
    return cuda_emulator::shuffle(cuda_emulator::Collective::kShflXor, mask, x,              \
                                  static_cast<unsigned>(step), static_cast<unsigned>(width), \
                                  "__shfl_xor_sync");                                        \
  }
EMULATOR_SHUFFLES(int)
EMULATOR_SHUFFLES(unsigned)
EMULATOR_SHUFFLES(long)
EMULATOR_SHUFFLES(unsigned long)
EMULATOR_SHUFFLES(long long)
EMULATOR_SHUFFLES(unsigned long long)
EMULATOR_SHUFFLES(float)
EMULATOR_SHUFFLES(double)

#define EMULATOR_VOTE(type, name, kind, T)                                                    \
  EMULATOR_INLINE type name(unsigned mask, T x) {                                             \
    return static_cast<type>(cuda_emulator::together(cuda_emulator::Collective::kind, mask,   \
                                                     static_cast<unsigned>(x), 0, 0, #name)); \
  }
EMULATOR_INLINE void __syncwarp(unsigned mask = 0xFFFFFFFF) {
  cuda_emulator::together(cuda_emulator::Collective::kSync, mask, 0, 0, 0, "__syncwarp");
}
EMULATOR_INLINE unsigned __ballot_sync(unsigned mask, int x) {
  return static_cast<unsigned>(cuda_emulator::together(cuda_emulator::Collective::kBallot, mask,
                                                       x != 0, 0, 0, "__ballot_sync"));
}
EMULATOR_INLINE int __any_sync(unsigned mask, int x) {
  return static_cast<int>(
      cuda_emulator::together(cuda_emulator::Collective::kAny, mask, x != 0, 0, 0, "__any_sync"));
}
EMULATOR_INLINE int __all_sync(unsigned mask, int x) {
  return static_cast<int>(
      cuda_emulator::together(cuda_emulator::Collective::kAll, mask, x != 0, 0, 0, "__all_sync"));
}
EMULATOR_INLINE int __uni_sync(unsigned mask, int x) {
  return static_cast<int>(
      cuda_emulator::together(cuda_emulator::Collective::kUni, mask, x != 0, 0, 0, "__uni_sync"));
}
EMULATOR_VOTE(unsigned, __reduce_add_sync, kReduceAdd, unsigned)
EMULATOR_VOTE(int, __reduce_add_sync, kReduceAdd, int)
EMULATOR_VOTE(unsigned, __reduce_min_sync, kReduceMinU, unsigned)
EMULATOR_VOTE(int, __reduce_min_sync, kReduceMinS, int)
EMULATOR_VOTE(unsigned, __reduce_max_sync, kReduceMaxU, unsigned)
EMULATOR_VOTE(int, __reduce_max_sync, kReduceMaxS, int)
EMULATOR_VOTE(unsigned, __reduce_and_sync, kReduceAnd, unsigned)
EMULATOR_VOTE(unsigned, __reduce_or_sync, kReduceOr, unsigned)
EMULATOR_VOTE(unsigned, __reduce_xor_sync, kReduceXor, unsigned)
#define EMULATOR_MATCH(T, Bits)                                                                    \
  EMULATOR_INLINE unsigned __match_any_sync(unsigned mask, T x) {                                  \
    return static_cast<unsigned>(cuda_emulator::together(cuda_emulator::Collective::kMatchAny,     \
                                                         mask, cuda_emulator::bits<Bits>(x), 0, 0, \
                                                         "__match_any_sync"));                     \
  }                                                                                                \
  EMULATOR_INLINE unsigned __match_all_sync(unsigned mask, T x, int* all) {                        \
    const auto found = static_cast<unsigned>(                                                      \
        cuda_emulator::together(cuda_emulator::Collective::kMatchAll, mask,                        \
                                cuda_emulator::bits<Bits>(x), 0, 0, "__match_all_sync"));          \
    *all = found != 0;                                                                             \
    return found;                                                                                  \
  }
EMULATOR_MATCH(int, unsigned)
EMULATOR_MATCH(unsigned, unsigned)
EMULATOR_MATCH(float, unsigned)
EMULATOR_MATCH(long, unsigned long)
EMULATOR_MATCH(unsigned long, unsigned long)
EMULATOR_MATCH(long long, unsigned long)
EMULATOR_MATCH(unsigned long long, unsigned long)
EMULATOR_MATCH(double, unsigned long)

// Atomics. One thread runs at a time, and switches only in calls of the emulator.
namespace cuda_emulator {
template <class T, class Change>
EMULATOR_PLAIN T atomic(T* at, const Change& change, u32 where = 0) {
  touch(at, sizeof(T), kRead | kWrite | kAtomic | where);
  const T before = *at;
  *at = change(before);
  return before;
}
}  // namespace cuda_emulator
#define EMULATOR_ATOMIC(name, T, after)                                             \
  EMULATOR_INLINE T name(T* at, T x) {                                              \
    return cuda_emulator::atomic(at, [x](T old) { return static_cast<T>(after); }); \
  }                                                                                 \
  EMULATOR_INLINE T name##_block(T* at, T x) { return name(at, x); }                \
  EMULATOR_INLINE T name##_system(T* at, T x) { return name(at, x); }
#define EMULATOR_ATOMICS(T)                        \
  EMULATOR_ATOMIC(atomicMin, T, x < old ? x : old) \
  EMULATOR_ATOMIC(atomicMax, T, old < x ? x : old) \
  EMULATOR_ATOMIC(atomicAnd, T, old& x)            \
  EMULATOR_ATOMIC(atomicOr, T, old | x)            \
  EMULATOR_ATOMIC(atomicXor, T, old ^ x)           \
  EMULATOR_ATOMIC(atomicExch, T, x)
EMULATOR_ATOMICS(int)
EMULATOR_ATOMICS(unsigned)
EMULATOR_ATOMICS(unsigned long long)
EMULATOR_ATOMIC(atomicMin, long long, x < old ? x : old)
EMULATOR_ATOMIC(atomicMax, long long, old < x ? x : old)
EMULATOR_ATOMIC(atomicAdd, int, static_cast<unsigned>(old) + static_cast<unsigned>(x))
EMULATOR_ATOMIC(atomicAdd, unsigned, old + x)
EMULATOR_ATOMIC(atomicAdd, unsigned long long, old + x)
EMULATOR_ATOMIC(atomicAdd, float, old + x)
EMULATOR_ATOMIC(atomicAdd, double, old + x)
EMULATOR_ATOMIC(atomicSub, int, static_cast<unsigned>(old) - static_cast<unsigned>(x))
EMULATOR_ATOMIC(atomicSub, unsigned, old - x)
EMULATOR_ATOMIC(atomicExch, float, x)
EMULATOR_ATOMIC(atomicInc, unsigned, old >= x ? 0 : old + 1)
EMULATOR_ATOMIC(atomicDec, unsigned, old == 0 || old > x ? x : old - 1)
#define EMULATOR_CAS(T)                                                                \
  EMULATOR_INLINE T atomicCAS(T* at, T compare, T x) {                                 \
    return cuda_emulator::atomic(at, [=](T old) { return old == compare ? x : old; }); \
  }
EMULATOR_CAS(int)
EMULATOR_CAS(unsigned)
EMULATOR_CAS(unsigned short)
EMULATOR_CAS(unsigned long long)

// Integers.
EMULATOR_INLINE int __popc(unsigned x) { return __builtin_popcount(x); }
EMULATOR_INLINE int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
EMULATOR_INLINE int __ffs(int x) { return __builtin_ffs(x); }
EMULATOR_INLINE int __ffsll(long long x) { return __builtin_ffsll(x); }
EMULATOR_INLINE int __clz(int x) { return x == 0 ? 32 : __builtin_clz(static_cast<unsigned>(x)); }
EMULATOR_INLINE int __clzll(long long x) {
  return x == 0 ? 64 : __builtin_clzll(static_cast<unsigned long long>(x));
}
EMULATOR_INLINE unsigned __brev(unsigned x) {
  unsigned reversed = 0;
  for (int i = 0; i < 32; ++i) reversed |= (x >> i & 1) << (31 - i);
  return reversed;
}
EMULATOR_INLINE unsigned __byte_perm(unsigned a, unsigned b, unsigned selector) {
  const unsigned long both = static_cast<unsigned long>(b) << 32 | a;
  unsigned result = 0;
  for (int i = 0; i < 4; ++i) {
    result |= static_cast<unsigned>(both >> (selector >> (4 * i) & 7) * 8 & 0xFF) << (8 * i);
  }
  return result;
}
EMULATOR_INLINE unsigned __umulhi(unsigned a, unsigned b) {
  return static_cast<unsigned>(static_cast<unsigned long>(a) * b >> 32);
}
EMULATOR_INLINE int __mulhi(int a, int b) {
  return static_cast<int>(static_cast<long>(a) * b >> 32);
}
EMULATOR_INLINE unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
  return static_cast<unsigned long long>(static_cast<unsigned __int128>(a) * b >> 64);
}
EMULATOR_INLINE long long __mul64hi(long long a, long long b) {
  return static_cast<long long>(static_cast<__int128>(a) * b >> 64);
}
EMULATOR_INLINE unsigned __funnelshift_l(unsigned low, unsigned high, unsigned shift) {
  const unsigned long both = static_cast<unsigned long>(high) << 32 | low;
  return static_cast<unsigned>(both << (shift & 31) >> 32);
}
EMULATOR_INLINE unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift) {
  const unsigned long both = static_cast<unsigned long>(high) << 32 | low;
  return static_cast<unsigned>(both >> (shift & 31));
}
#define EMULATOR_MINMAX(T)                                  \
  EMULATOR_INLINE T min(T a, T b) { return b < a ? b : a; } \
  EMULATOR_INLINE T max(T a, T b) { return a < b ? b : a; }
EMULATOR_MINMAX(int)
EMULATOR_MINMAX(unsigned)
EMULATOR_MINMAX(long)
EMULATOR_MINMAX(unsigned long)
EMULATOR_MINMAX(long long)
EMULATOR_MINMAX(unsigned long long)

// Numbers. A NaN that arithmetic makes is the host's: kernels that store one make it canonical.
EMULATOR_INLINE unsigned __float_as_uint(float x) { return cuda_emulator::bits<unsigned>(x); }
EMULATOR_INLINE int __float_as_int(float x) { return cuda_emulator::bits<int>(x); }
EMULATOR_INLINE float __uint_as_float(unsigned x) { return cuda_emulator::bits<float>(x); }
EMULATOR_INLINE float __int_as_float(int x) { return cuda_emulator::bits<float>(x); }
EMULATOR_INLINE float fabsf(float x) { return __builtin_fabsf(x); }
EMULATOR_INLINE float sqrtf(float x) { return __builtin_sqrtf(x); }
EMULATOR_INLINE float fmaf(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
EMULATOR_INLINE float rintf(float x) { return __builtin_rintf(x); }
EMULATOR_INLINE float floorf(float x) { return __builtin_floorf(x); }
EMULATOR_INLINE float ceilf(float x) { return __builtin_ceilf(x); }
EMULATOR_INLINE float truncf(float x) { return __builtin_truncf(x); }
EMULATOR_INLINE float copysignf(float x, float sign) { return __builtin_copysignf(x, sign); }
EMULATOR_INLINE bool isnan(float x) { return x != x; }
EMULATOR_INLINE bool isinf(float x) { return __builtin_fabsf(x) == __builtin_inff(); }
EMULATOR_INLINE bool isfinite(float x) { return __builtin_fabsf(x) < __builtin_inff(); }
namespace cuda_emulator {
constexpr u32 kNan = 0x7FFFFFFF;  // of the device's instructions
}
EMULATOR_INLINE float fmaxf(float a, float b) {  // -0 is less than +0; a NaN loses
  if (a != a) return b != b ? __uint_as_float(cuda_emulator::kNan) : b;
  if (b != b) return a;
  if (a == b) return __float_as_int(a) < 0 ? b : a;
  return a < b ? b : a;
}
EMULATOR_INLINE float fminf(float a, float b) {
  if (a != a) return b != b ? __uint_as_float(cuda_emulator::kNan) : b;
  if (b != b) return a;
  if (a == b) return __float_as_int(a) < 0 ? a : b;
  return b < a ? b : a;
}
EMULATOR_INLINE float max(float a, float b) { return fmaxf(a, b); }
EMULATOR_INLINE float min(float a, float b) { return fminf(a, b); }
EMULATOR_INLINE float __fmaf_rn(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
EMULATOR_INLINE float __fadd_rn(float a, float b) { return a + b; }
EMULATOR_INLINE float __fsub_rn(float a, float b) { return a - b; }
EMULATOR_INLINE float __fmul_rn(float a, float b) { return a * b; }
EMULATOR_INLINE float __fdiv_rn(float a, float b) { return a / b; }
EMULATOR_INLINE float __frcp_rn(float x) { return 1.0f / x; }
EMULATOR_INLINE float __fsqrt_rn(float x) { return __builtin_sqrtf(x); }
EMULATOR_INLINE double fabs(double x) { return __builtin_fabs(x); }
EMULATOR_INLINE double sqrt(double x) { return __builtin_sqrt(x); }
EMULATOR_INLINE double fma(double a, double b, double c) { return __builtin_fma(a, b, c); }
EMULATOR_INLINE double __fma_rn(double a, double b, double c) { return __builtin_fma(a, b, c); }
EMULATOR_INLINE int __float2int_rn(float x) {  // saturates; NaN: 0
  if (x != x) return 0;
  const float y = __builtin_rintf(x);
  return y >= 0x1p31f ? 0x7FFFFFFF : y < -0x1p31f ? -0x7FFFFFFF - 1 : static_cast<int>(y);
}
EMULATOR_INLINE int __float2int_rz(float x) {
  if (x != x) return 0;
  return x >= 0x1p31f ? 0x7FFFFFFF : x < -0x1p31f ? -0x7FFFFFFF - 1 : static_cast<int>(x);
}
EMULATOR_INLINE unsigned __float2uint_rn(float x) {
  const float y = __builtin_rintf(x);
  return !(y > 0) ? 0 : y >= 0x1p32f ? 0xFFFFFFFF : static_cast<unsigned>(y);
}
EMULATOR_INLINE unsigned __float2uint_rz(float x) {
  return !(x > 0) ? 0 : x >= 0x1p32f ? 0xFFFFFFFF : static_cast<unsigned>(x);
}
EMULATOR_INLINE float __int2float_rn(int x) { return static_cast<float>(x); }
EMULATOR_INLINE float __uint2float_rn(unsigned x) { return static_cast<float>(x); }

template <class T>
EMULATOR_INLINE T __ldg(const T* from) {
  return *from;
}
EMULATOR_PLAIN static unsigned long __cvta_generic_to_shared(const void* address) {
  const auto offset =
      reinterpret_cast<unsigned long>(address) - reinterpret_cast<unsigned long>(__bss_start);
  if (offset > static_cast<unsigned long>(_end - __bss_start)) {
    cuda_emulator::api->fail("__cvta_generic_to_shared of an address that is not in shared memory");
  }
  return offset;
}
EMULATOR_PLAIN static unsigned long __cvta_generic_to_global(const void* address) {
  return reinterpret_cast<unsigned long>(address);
}
EMULATOR_INLINE bool __isShared(const void* address) {
  const auto at = static_cast<const cuda_emulator::u8*>(address);
  return at >= __bss_start && at < _end;
}
#define __builtin_assume(condition) static_cast<void>(sizeof(condition))
#define __assume(condition) static_cast<void>(sizeof(condition))
EMULATOR_INLINE unsigned __activemask() {
  cuda_emulator::api->fail("__activemask() says nothing that a kernel may rely on");
  return 0;
}
EMULATOR_INLINE long long clock64() { return 0; }
EMULATOR_INLINE int clock() { return 0; }
