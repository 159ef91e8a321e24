// The front of both casts: one plan made by all checks, whatever the form of the call.
#pragma once

#include "core/check.h"
#include "core/kernel_table.h"
#include "ops/quant/cast.h"
#include "tilekernels/quant.h"

namespace tilekernels {

/// What a caller gave, in any form of a cast; his tensors are only pointed to. Those of `_spec`
/// forms have no memory; forms with one result return the scaling factors if `sf_only`, else (under
/// given ones) the codes.
struct CastCall {
  const TensorView& x;
  const TensorView* x_sf = nullptr;  ///< of a quantized x, read as `source` says
  SfSource source{};
  DType fmt;
  BlockSize block;
  bool sf_only = false;
  const TensorView* given_sf = nullptr;
  CastOptions options{};
};

/// A checked call: its constants and what its results must be.
struct CastPlan {
  CastShape shape{};
  TensorSpec data;  ///< unless sf_only
  TensorSpec sf;    ///< unless the scaling factors are given
  CastArgs args{};  ///< all but the outputs
};

using CastTable = KernelTable<CastArgs, CastShape>;

/// Checks all but the block size, which is the op's own.
CastPlan plan_cast(const Check& check, const CastCall& cast);

/// A cast, which gives the three forms of its calls.
struct CastOp {
  CastTable table;
  CastPlan (*plan)(const CastCall& cast);  ///< makes all checks, the op's own too

  QuantSpec spec(const CastCall& cast) const;
  void run(const CastCall& cast, const QuantView& out, const Call& call) const;
  QuantTensor allocate_and_run(const CastCall& cast, const Call& call) const;

  TensorSpec single_spec(const CastCall& cast) const;
  void run_single(const CastCall& cast, const TensorView& out, const Call& call) const;
  Tensor allocate_and_run_single(const CastCall& cast, const Call& call) const;
};

inline TensorView without_memory(const TensorSpec& spec) { return {nullptr, spec}; }

/// The calls, by what the caller has.
inline CastCall plain_call(const TensorView& x, DType fmt, BlockSize block,
                           const CastOptions& options) {
  return {.x = x, .fmt = fmt, .block = block, .options = options};
}
inline CastCall quantized_call(const TensorView& x, const TensorView& x_sf, const SfSource& source,
                               DType fmt, BlockSize block, const CastOptions& options) {
  return {.x = x, .x_sf = &x_sf, .source = source, .fmt = fmt, .block = block, .options = options};
}
inline CastCall sf_only_call(const TensorView& x, DType fmt, BlockSize block,
                             const CastOptions& options) {
  return {.x = x, .fmt = fmt, .block = block, .sf_only = true, .options = options};
}
inline CastCall given_sf_call(const TensorView& x, DType fmt, BlockSize block,
                              const TensorView& sf) {
  return {.x = x, .fmt = fmt, .block = block, .given_sf = &sf};
}

}  // namespace tilekernels
