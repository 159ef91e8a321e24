// per_block_cast: its own checks, and the forms of the call.
#include "ops/quant/cast_front.h"
#include "ops/quant/per_block_cast/op.h"

namespace tilekernels {
namespace {

constexpr CastTable kPerBlockCast = {
    .op = "per_block_cast",
    .reference = reference::per_block_cast,
    .cpu = cpu::per_block_cast,
};

CastPlan make_plan(const CastCall& cast) {
  const Check check(kPerBlockCast.op);
  check.one_of("block_size.rows", cast.block.rows, {32, 128});
  check.one_of("block_size.cols", cast.block.cols, {32, 128});
  check.require(cast.options.sf.kind != SfKind::kE4M3, "sf.kind",
                "must be kF32, kRoundedF32 or kUE8M0", "kE4M3");
  if (cast.given_sf) check.dtype("sf", *cast.given_sf, {DType::kF32});
  return plan_cast(check, cast);
}

}  // namespace

QuantSpec per_block_cast_spec(const TensorSpec& x, DType fmt, BlockSize block_size,
                              const CastOptions& options) {
  const CastPlan plan =
      make_plan({.x = without_memory(x), .fmt = fmt, .block = block_size, .options = options});
  return {plan.data, plan.sf};
}

void per_block_cast_out(const QuantView& out, const TensorView& x, DType fmt, BlockSize block_size,
                        const CastOptions& options, const Call& call) {
  const CastCall cast{.x = x, .fmt = fmt, .block = block_size, .options = options};
  run_cast(kPerBlockCast, cast, make_plan(cast), &out.data, &out.sf, call);
}

QuantTensor per_block_cast(const TensorView& x, DType fmt, BlockSize block_size,
                           const CastOptions& options, const Call& call) {
  const QuantSpec spec = per_block_cast_spec(x, fmt, block_size, options);
  std::vector<Tensor> out = call.allocate({spec.data, spec.sf});
  const QuantTensor result{std::move(out[0]), std::move(out[1])};
  per_block_cast_out(result, x, fmt, block_size, options, call);
  return result;
}

QuantSpec per_block_cast_spec(const QuantSpec& x, const SfSource& x_sf, DType fmt,
                              BlockSize block_size, const CastOptions& options) {
  const CastPlan plan = make_plan({.x = without_memory(x.data),
                                   .x_sf = without_memory(x.sf),
                                   .source = x_sf,
                                   .fmt = fmt,
                                   .block = block_size,
                                   .options = options});
  return {plan.data, plan.sf};
}

void per_block_cast_out(const QuantView& out, const QuantView& x, const SfSource& x_sf, DType fmt,
                        BlockSize block_size, const CastOptions& options, const Call& call) {
  const CastCall cast{.x = x.data,
                      .x_sf = x.sf,
                      .source = x_sf,
                      .fmt = fmt,
                      .block = block_size,
                      .options = options};
  run_cast(kPerBlockCast, cast, make_plan(cast), &out.data, &out.sf, call);
}

QuantTensor per_block_cast(const QuantView& x, const SfSource& x_sf, DType fmt,
                           BlockSize block_size, const CastOptions& options, const Call& call) {
  const QuantSpec spec = per_block_cast_spec(x, x_sf, fmt, block_size, options);
  std::vector<Tensor> out = call.allocate({spec.data, spec.sf});
  const QuantTensor result{std::move(out[0]), std::move(out[1])};
  per_block_cast_out(result, x, x_sf, fmt, block_size, options, call);
  return result;
}

TensorSpec per_block_cast_with_sf_only_spec(const TensorSpec& x, DType fmt, BlockSize block_size,
                                            const CastOptions& options) {
  return make_plan({.x = without_memory(x),
                    .fmt = fmt,
                    .block = block_size,
                    .sf_only = true,
                    .options = options})
      .sf;
}

void per_block_cast_with_sf_only_out(const TensorView& out_sf, const TensorView& x, DType fmt,
                                     BlockSize block_size, const CastOptions& options,
                                     const Call& call) {
  const CastCall cast{.x = x, .fmt = fmt, .block = block_size, .sf_only = true, .options = options};
  run_cast(kPerBlockCast, cast, make_plan(cast), nullptr, &out_sf, call);
}

Tensor per_block_cast_with_sf_only(const TensorView& x, DType fmt, BlockSize block_size,
                                   const CastOptions& options, const Call& call) {
  Tensor out_sf = call.allocate(per_block_cast_with_sf_only_spec(x, fmt, block_size, options));
  per_block_cast_with_sf_only_out(out_sf, x, fmt, block_size, options, call);
  return out_sf;
}

TensorSpec per_block_cast_with_precomputed_sf_spec(const TensorSpec& x, DType fmt,
                                                   BlockSize block_size, const TensorSpec& sf) {
  return make_plan({.x = without_memory(x),
                    .fmt = fmt,
                    .block = block_size,
                    .given_sf = without_memory(sf)})
      .data;
}

void per_block_cast_with_precomputed_sf_out(const TensorView& out, const TensorView& x, DType fmt,
                                            BlockSize block_size, const TensorView& sf,
                                            const Call& call) {
  const CastCall cast{.x = x, .fmt = fmt, .block = block_size, .given_sf = sf};
  run_cast(kPerBlockCast, cast, make_plan(cast), &out, nullptr, call);
}

Tensor per_block_cast_with_precomputed_sf(const TensorView& x, DType fmt, BlockSize block_size,
                                          const TensorView& sf, const Call& call) {
  Tensor out = call.allocate(per_block_cast_with_precomputed_sf_spec(x, fmt, block_size, sf));
  per_block_cast_with_precomputed_sf_out(out, x, fmt, block_size, sf, call);
  return out;
}

}  // namespace tilekernels
