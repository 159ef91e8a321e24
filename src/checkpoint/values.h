// Loops over plain numbers of a block: conversion, counting, measuring of errors, digests.
#pragma once

#include <cstdint>

#include "io/safetensors.h"
#include "tilekernels/checkpoint.h"

namespace tilekernels::checkpoint {

/// What was seen in one block; blocks of a tensor are added in their order, so that the figures do
/// not depend on threads.
struct BlockFigures {
  double max_abs = 0;
  double sum_error_squares = 0;
  double sum_squares = 0;
  int64_t num_saturated = 0;
  int64_t num_nan = 0;
  int64_t num_bad_blocks = 0;
  uint64_t digest = 0;

  void add(const BlockFigures& other);
};

/// Converts between F32, F16 and BF16: one rounding to nearest even, NaN canonical.
void convert_plain(io::StDType from, const void* in, io::StDType to, void* out, int64_t count);

/// Counts of NaN, Inf, zero and the largest finite magnitude of F32, F16, BF16, F8_E4M3 or F8_E5M2.
void count_values(io::StDType dtype, const void* in, int64_t count, ValueCounts* counts);

/// NaN and Inf alone in F32, F16 or BF16; fast where there are none.
struct NonFinite {
  int64_t num_nan = 0;
  int64_t num_inf = 0;
};
NonFinite count_non_finite(io::StDType dtype, const void* in, int64_t count);

/// Adds the differences of `after` (f32) from `before` (F32, F16 or BF16) where both are finite.
void measure_error(io::StDType dtype, const void* before, const float* after, int64_t count,
                   BlockFigures* figures);

/// A digest of bytes for finding damage; not for defence against a forger.
uint64_t digest_bytes(const void* bytes, int64_t count, uint64_t seed);

}  // namespace tilekernels::checkpoint
