// What the ops of the family share. Device-safe.
#pragma once

#include "numerics/fault.h"
#include "numerics/types.h"

namespace tilekernels {

constexpr int32 kWeightSlots = 32;      // experts of a token at most
constexpr int32 kMaxExpertGroups = 32;  // neighbours, of which the best are chosen
constexpr float kWeightEpsilon = 1e-20f;

/// What a token's `count` <= kWeightSlots weights are divided by: the sum of kWeightSlots slots, of
/// which absent ones are +0, by the tree in which slot i takes slot i + 16, then i + 8, 4, 2, 1,
/// and the epsilon at last. A tree of fewer slots, down to the power of two that holds `count`,
/// gives the same bits: what it leaves out adds zeros, and a zero's sign is gone with the epsilon.
inline float weight_denominator(const float* weights, int32 count) {
  float slots[kWeightSlots];
  for (int32 i = 0; i < kWeightSlots; ++i) slots[i] = i < count ? weights[i] : 0.0f;
  for (int32 half = kWeightSlots / 2; half > 0; half /= 2) {
    for (int32 i = 0; i < half; ++i) slots[i] = slots[i] + slots[i + half];
  }
  return slots[0] + kWeightEpsilon;
}

/// The expert, group or bin that an index names, or -1.
constexpr int32 routed_expert(int64 index, int32 num_experts) {
  return index >= 0 && index < num_experts ? static_cast<int32>(index) : -1;
}
/// Neither one of them nor -1, which stands for none.
constexpr bool is_bad_index(int64 index, int32 num_experts) {
  return index < -1 || index >= num_experts;
}

/// The smallest power of two that is not below x >= 1.
constexpr int32 power_of_two_from(int32 x) {
  int32 power = 1;
  while (power < x) power *= 2;
  return power;
}

/// Lowers an error word that no other thread or core works on.
constexpr void note_fault(uint64* fault, int64 row, int32 op, int32 kind) {
  *fault = numerics::min_of(*fault, numerics::fault_word(row, op, kind));
}

}  // namespace tilekernels
