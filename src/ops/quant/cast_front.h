// The front of both casts: one plan made by all checks, whatever the form of the call.
#pragma once

#include <optional>

#include "core/check.h"
#include "core/kernel_table.h"
#include "ops/quant/cast.h"
#include "tilekernels/quant.h"

namespace tilekernels {

/// What a caller gave, in any form of a cast. Tensors of `_spec` forms have no memory.
struct CastCall {
  TensorView x;
  std::optional<TensorView> x_sf{};  ///< of a quantized x, read as `source` says
  SfSource source{};
  DType fmt;
  BlockSize block;
  bool sf_only = false;
  std::optional<TensorView> given_sf{};
  CastOptions options{};
};

/// A checked call: its constants and what its results must be.
struct CastPlan {
  CastShape shape;
  TensorSpec data;  ///< unless sf_only
  TensorSpec sf;    ///< unless the scaling factors are given
  CastArgs args;    ///< all but the outputs
};

using CastTable = KernelTable<CastArgs, CastShape>;

/// Checks all but the block size, which is the op's own.
CastPlan plan_cast(const Check& check, const CastCall& cast);

/// Checks the outputs and runs. `data` and `sf` are null where the form does not have them.
void run_cast(const CastTable& table, const CastCall& cast, CastPlan plan, const TensorView* data,
              const TensorView* sf, const Call& call);

inline TensorView without_memory(const TensorSpec& spec) { return {nullptr, spec}; }

}  // namespace tilekernels
