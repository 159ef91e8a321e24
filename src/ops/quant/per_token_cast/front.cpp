// per_token_cast: its own checks, and the forms of the call.
#include "ops/quant/cast_front.h"
#include "ops/quant/per_token_cast/op.h"

namespace tilekernels {
namespace {

constexpr CastTable kTable = {
    .op = "per_token_cast",
    .reference = reference::per_token_cast,
    .cpu = cpu::per_token_cast,
    .cuda = cuda::per_token_cast,
    .ascend = ascend::per_token_cast,
};

CastPlan make_plan(const CastCall& cast) {
  const Check check(kTable.op);
  check.one_of("num_per_channels", cast.block.cols, {16, 32, 64, 128});
  CastPlan plan = plan_cast(check, cast);
  check.multiple("hidden", plan.shape.hidden, 16);
  return plan;
}

constexpr CastOp kPerTokenCast = {kTable, make_plan};

}  // namespace

QuantSpec per_token_cast_spec(const TensorSpec& x, DType fmt, int num_per_channels,
                              const CastOptions& options) {
  return kPerTokenCast.spec(plain_call(without_memory(x), fmt, {1, num_per_channels}, options));
}

void per_token_cast_out(const QuantView& out, const TensorView& x, DType fmt, int num_per_channels,
                        const CastOptions& options, const Call& call) {
  kPerTokenCast.run(plain_call(x, fmt, {1, num_per_channels}, options), out, call);
}

QuantTensor per_token_cast(const TensorView& x, DType fmt, int num_per_channels,
                           const CastOptions& options, const Call& call) {
  return kPerTokenCast.allocate_and_run(plain_call(x, fmt, {1, num_per_channels}, options), call);
}

QuantSpec per_token_cast_spec(const QuantSpec& x, const SfSource& x_sf, DType fmt,
                              int num_per_channels, const CastOptions& options) {
  return kPerTokenCast.spec(quantized_call(without_memory(x.data), without_memory(x.sf), x_sf, fmt,
                                           {1, num_per_channels}, options));
}

void per_token_cast_out(const QuantView& out, const QuantView& x, const SfSource& x_sf, DType fmt,
                        int num_per_channels, const CastOptions& options, const Call& call) {
  kPerTokenCast.run(quantized_call(x.data, x.sf, x_sf, fmt, {1, num_per_channels}, options), out,
                    call);
}

QuantTensor per_token_cast(const QuantView& x, const SfSource& x_sf, DType fmt,
                           int num_per_channels, const CastOptions& options, const Call& call) {
  return kPerTokenCast.allocate_and_run(
      quantized_call(x.data, x.sf, x_sf, fmt, {1, num_per_channels}, options), call);
}

TensorSpec per_token_cast_with_sf_only_spec(const TensorSpec& x, DType fmt, int num_per_channels,
                                            const CastOptions& options) {
  return kPerTokenCast.single_spec(
      sf_only_call(without_memory(x), fmt, {1, num_per_channels}, options));
}

void per_token_cast_with_sf_only_out(const TensorView& out_sf, const TensorView& x, DType fmt,
                                     int num_per_channels, const CastOptions& options,
                                     const Call& call) {
  kPerTokenCast.run_single(sf_only_call(x, fmt, {1, num_per_channels}, options), out_sf, call);
}

Tensor per_token_cast_with_sf_only(const TensorView& x, DType fmt, int num_per_channels,
                                   const CastOptions& options, const Call& call) {
  return kPerTokenCast.allocate_and_run_single(sf_only_call(x, fmt, {1, num_per_channels}, options),
                                               call);
}

TensorSpec per_token_cast_with_precomputed_sf_spec(const TensorSpec& x, DType fmt,
                                                   int num_per_channels, const TensorSpec& sf) {
  return kPerTokenCast.single_spec(
      given_sf_call(without_memory(x), fmt, {1, num_per_channels}, without_memory(sf)));
}

void per_token_cast_with_precomputed_sf_out(const TensorView& out, const TensorView& x, DType fmt,
                                            int num_per_channels, const TensorView& sf,
                                            const Call& call) {
  kPerTokenCast.run_single(given_sf_call(x, fmt, {1, num_per_channels}, sf), out, call);
}

Tensor per_token_cast_with_precomputed_sf(const TensorView& x, DType fmt, int num_per_channels,
                                          const TensorView& sf, const Call& call) {
  return kPerTokenCast.allocate_and_run_single(given_sf_call(x, fmt, {1, num_per_channels}, sf),
                                               call);
}

}  // namespace tilekernels
