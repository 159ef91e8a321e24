// per_block_cast: its own checks, and the forms of the call.
#include "ops/quant/cast_front.h"
#include "ops/quant/per_block_cast/op.h"

namespace tilekernels {
namespace {

constexpr CastTable kTable = {
    .op = "per_block_cast",
    .reference = reference::per_block_cast,
    .cpu = cpu::per_block_cast,
    .cuda = cuda::per_block_cast,
    .ascend = ascend::per_block_cast,
};

CastPlan make_plan(const CastCall& cast) {
  const Check check(kTable.op);
  check.one_of("block_size.rows", cast.block.rows, {32, 128});
  check.one_of("block_size.cols", cast.block.cols, {32, 128});
  check.require(cast.options.sf.kind != SfKind::kE4M3, "sf.kind",
                "must be kF32, kRoundedF32 or kUE8M0", "kE4M3");
  if (cast.given_sf != nullptr) check.dtype("sf", *cast.given_sf, {DType::kF32});
  return plan_cast(check, cast);
}

constexpr CastOp kPerBlockCast = {kTable, make_plan};

}  // namespace

QuantSpec per_block_cast_spec(const TensorSpec& x, DType fmt, BlockSize block_size,
                              const CastOptions& options) {
  return kPerBlockCast.spec(plain_call(without_memory(x), fmt, block_size, options));
}

void per_block_cast_out(const QuantView& out, const TensorView& x, DType fmt, BlockSize block_size,
                        const CastOptions& options, const Call& call) {
  kPerBlockCast.run(plain_call(x, fmt, block_size, options), out, call);
}

QuantTensor per_block_cast(const TensorView& x, DType fmt, BlockSize block_size,
                           const CastOptions& options, const Call& call) {
  return kPerBlockCast.allocate_and_run(plain_call(x, fmt, block_size, options), call);
}

QuantSpec per_block_cast_spec(const QuantSpec& x, const SfSource& x_sf, DType fmt,
                              BlockSize block_size, const CastOptions& options) {
  return kPerBlockCast.spec(
      quantized_call(without_memory(x.data), without_memory(x.sf), x_sf, fmt, block_size, options));
}

void per_block_cast_out(const QuantView& out, const QuantView& x, const SfSource& x_sf, DType fmt,
                        BlockSize block_size, const CastOptions& options, const Call& call) {
  kPerBlockCast.run(quantized_call(x.data, x.sf, x_sf, fmt, block_size, options), out, call);
}

QuantTensor per_block_cast(const QuantView& x, const SfSource& x_sf, DType fmt,
                           BlockSize block_size, const CastOptions& options, const Call& call) {
  return kPerBlockCast.allocate_and_run(
      quantized_call(x.data, x.sf, x_sf, fmt, block_size, options), call);
}

TensorSpec per_block_cast_with_sf_only_spec(const TensorSpec& x, DType fmt, BlockSize block_size,
                                            const CastOptions& options) {
  return kPerBlockCast.single_spec(sf_only_call(without_memory(x), fmt, block_size, options));
}

void per_block_cast_with_sf_only_out(const TensorView& out_sf, const TensorView& x, DType fmt,
                                     BlockSize block_size, const CastOptions& options,
                                     const Call& call) {
  kPerBlockCast.run_single(sf_only_call(x, fmt, block_size, options), out_sf, call);
}

Tensor per_block_cast_with_sf_only(const TensorView& x, DType fmt, BlockSize block_size,
                                   const CastOptions& options, const Call& call) {
  return kPerBlockCast.allocate_and_run_single(sf_only_call(x, fmt, block_size, options), call);
}

TensorSpec per_block_cast_with_precomputed_sf_spec(const TensorSpec& x, DType fmt,
                                                   BlockSize block_size, const TensorSpec& sf) {
  return kPerBlockCast.single_spec(
      given_sf_call(without_memory(x), fmt, block_size, without_memory(sf)));
}

void per_block_cast_with_precomputed_sf_out(const TensorView& out, const TensorView& x, DType fmt,
                                            BlockSize block_size, const TensorView& sf,
                                            const Call& call) {
  kPerBlockCast.run_single(given_sf_call(x, fmt, block_size, sf), out, call);
}

Tensor per_block_cast_with_precomputed_sf(const TensorView& x, DType fmt, BlockSize block_size,
                                          const TensorView& sf, const Call& call) {
  return kPerBlockCast.allocate_and_run_single(given_sf_call(x, fmt, block_size, sf), call);
}

}  // namespace tilekernels
