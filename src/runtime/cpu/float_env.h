// The floating-point environment that the numeric contract assumes, for the time of a scope.
#pragma once

#if defined(__x86_64__) || defined(__i386__)
#include <xmmintrin.h>
#endif

#include <cstdint>

namespace tilekernels::cpu {

/// Round to nearest even, subnormals kept, exceptions masked; the destructor restores what the
/// thread had before, status flags included. Nothing on machines other than x86 and AArch64.
/// The arithmetic must lie behind a call that is not inlined: the compiler may move operations
/// across a change of the control register.
class FloatEnv {
 public:
#if defined(__x86_64__) || defined(__i386__)
  FloatEnv() : saved_(_mm_getcsr()) { _mm_setcsr(kAllMasked); }
  ~FloatEnv() { _mm_setcsr(saved_); }
#elif defined(__aarch64__)
  FloatEnv() {
    asm volatile("mrs %0, fpcr" : "=r"(saved_));
    asm volatile("mrs %0, fpsr" : "=r"(saved_status_));
    asm volatile("msr fpcr, %0" : : "r"(uint64_t{0}));
  }
  ~FloatEnv() {
    asm volatile("msr fpcr, %0" : : "r"(saved_));
    asm volatile("msr fpsr, %0" : : "r"(saved_status_));
  }
#endif
  FloatEnv(const FloatEnv&) = delete;
  FloatEnv& operator=(const FloatEnv&) = delete;

 private:
#if defined(__x86_64__) || defined(__i386__)
  static constexpr unsigned kAllMasked = 0x1F80;  // MXCSR's power-on value
  const unsigned saved_;
#elif defined(__aarch64__)
  uint64_t saved_;
  uint64_t saved_status_;
#endif
};

}  // namespace tilekernels::cpu
