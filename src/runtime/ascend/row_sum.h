// Sums over a row on the vector core, in the order of numerics/row_sum.h: lane i of register q is
// partial sum 64 q + i.
#pragma once

#include "numerics/row_sum.h"
#include "runtime/ascend/composites.h"

namespace tilekernels::ascend {

/// Registers of partial sums; fewer, a power of two, will do for rows of at most 64 times as many
/// columns.
constexpr int32 kRowSumRegs = numerics::kRowPartials / kF32Lanes;

constexpr int32 kRowSumTail = 2 * kVectorBytes;

template <int32 kRegs>
TILEKERNELS_CALLEE void clear_partials(Reg<float> (&partials)[kRegs]) {
  const Mask all = pset<float>();
  for (int32 q = 0; q < kRegs; ++q) vdup(partials[q], 0.0f, all);
}

/// Lane 0 of d = the sum of all partial sums, which are overwritten. d is none of them.
template <int32 kRegs>
TILEKERNELS_CALLEE void sum_partials(Reg<float>& d, Reg<float> (&partials)[kRegs]) {
  static_assert(kRegs > 0 && (kRegs & (kRegs - 1)) == 0 && kRegs <= kRowSumRegs);
  const Mask all = pset<float>();
  for (int32 q = 0; q < kRegs; ++q) vcadd(partials[q], partials[q], all);  // six levels
  for (int32 num = kRegs / 2; num > 0; num /= 2) {
    for (int32 k = 0; k < num; ++k) vadd(partials[k], partials[2 * k], partials[2 * k + 1], all);
  }
  vadds(d, partials[0], 0.0f, all);
}

// What a row's sum takes of its elements
constexpr int32 kSumValues = 0;
constexpr int32 kSumSquares = 1;

template <int32 kTerm>
TILEKERNELS_CALLEE void add_term(Reg<float>& partial, const Reg<float>& x, const Mask& all) {
  if constexpr (kTerm == kSumSquares) {
    vmula(partial, x, x, all);
  } else {
    vadd(partial, partial, x, all);
  }
}

/// The sum over a row of f32, f16 or bf16 elements to lane 0 of d. `cols` is at most 64 · kRegs
/// unless kRegs is kRowSumRegs. Reads 128 columns at a time: the row's buffer has a readable tail
/// of kRowSumTail bytes.
template <int32 kDType, int32 kTerm, int32 kRegs>
TILEKERNELS_CALLEE void sum_row(Reg<float>& d, Ub<uint8> row, uint32 cols) {
  static_assert(kRegs >= 2);
  constexpr int32 kTurnBytes = static_cast<int32>(bytes_of(kDType, kRegs * kF32Lanes));
  constexpr int32 kPairBytes = static_cast<int32>(bytes_of(kDType, kPair));
  const Mask all = pset<float>();
  Reg<float> partials[kRegs];
  Reg<float> a;
  Reg<float> b;
  Reg<float> zero;
  clear_partials(partials);
  vdup(zero, 0.0f, all);
  const auto turns = static_cast<uint16>(cols / (kRegs * kF32Lanes));
  for (uint16 i = 0; i < turns; ++i) {
    for (int32 k = 0; k < kRegs / 2; ++k) {
      load_pair<kDType>(a, b, row + (i * kTurnBytes + k * kPairBytes));
      add_term<kTerm>(partials[2 * k], a, all);
      add_term<kTerm>(partials[2 * k + 1], b, all);
    }
  }
  uint32 left = cols - turns * static_cast<uint32>(kRegs * kF32Lanes);
  for (int32 k = 0; k < kRegs / 2; ++k) {
    // One turn or none: nothing is read where no element is left.
    const auto any = static_cast<uint16>(left > 0 ? 1 : 0);
    for (uint16 i = 0; i < any; ++i) {
      const Mask valid_a = plt<float>(left);
      const Mask valid_b = plt<float>(left);
      load_pair<kDType>(a, b, row + (turns * kTurnBytes + k * kPairBytes));
      vsel(a, a, zero, valid_a);
      vsel(b, b, zero, valid_b);
      add_term<kTerm>(partials[2 * k], a, all);
      add_term<kTerm>(partials[2 * k + 1], b, all);
    }
  }
  sum_partials(d, partials);
}

}  // namespace tilekernels::ascend
