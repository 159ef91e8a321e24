// per_token_cast: its own checks, and the forms of the call.
#include "ops/quant/cast_front.h"
#include "ops/quant/per_token_cast/op.h"

namespace tilekernels {
namespace {

constexpr CastTable kPerTokenCast = {
    .op = "per_token_cast",
    .reference = reference::per_token_cast,
    .cpu = cpu::per_token_cast,
};

CastPlan make_plan(const CastCall& cast) {
  const Check check(kPerTokenCast.op);
  check.one_of("num_per_channels", cast.block.cols, {16, 32, 64, 128});
  CastPlan plan = plan_cast(check, cast);
  check.multiple("hidden", plan.shape.hidden, 16);
  return plan;
}

}  // namespace

QuantSpec per_token_cast_spec(const TensorSpec& x, DType fmt, int num_per_channels,
                              const CastOptions& options) {
  const CastPlan plan = make_plan(
      {.x = without_memory(x), .fmt = fmt, .block = {1, num_per_channels}, .options = options});
  return {plan.data, plan.sf};
}

void per_token_cast_out(const QuantView& out, const TensorView& x, DType fmt, int num_per_channels,
                        const CastOptions& options, const Call& call) {
  const CastCall cast{.x = x, .fmt = fmt, .block = {1, num_per_channels}, .options = options};
  run_cast(kPerTokenCast, cast, make_plan(cast), &out.data, &out.sf, call);
}

QuantTensor per_token_cast(const TensorView& x, DType fmt, int num_per_channels,
                           const CastOptions& options, const Call& call) {
  const QuantSpec spec = per_token_cast_spec(x, fmt, num_per_channels, options);
  std::vector<Tensor> out = call.allocate({spec.data, spec.sf});
  const QuantTensor result{std::move(out[0]), std::move(out[1])};
  per_token_cast_out(result, x, fmt, num_per_channels, options, call);
  return result;
}

QuantSpec per_token_cast_spec(const QuantSpec& x, const SfSource& x_sf, DType fmt,
                              int num_per_channels, const CastOptions& options) {
  const CastPlan plan = make_plan({.x = without_memory(x.data),
                                   .x_sf = without_memory(x.sf),
                                   .source = x_sf,
                                   .fmt = fmt,
                                   .block = {1, num_per_channels},
                                   .options = options});
  return {plan.data, plan.sf};
}

void per_token_cast_out(const QuantView& out, const QuantView& x, const SfSource& x_sf, DType fmt,
                        int num_per_channels, const CastOptions& options, const Call& call) {
  const CastCall cast{.x = x.data,
                      .x_sf = x.sf,
                      .source = x_sf,
                      .fmt = fmt,
                      .block = {1, num_per_channels},
                      .options = options};
  run_cast(kPerTokenCast, cast, make_plan(cast), &out.data, &out.sf, call);
}

QuantTensor per_token_cast(const QuantView& x, const SfSource& x_sf, DType fmt,
                           int num_per_channels, const CastOptions& options, const Call& call) {
  const QuantSpec spec = per_token_cast_spec(x, x_sf, fmt, num_per_channels, options);
  std::vector<Tensor> out = call.allocate({spec.data, spec.sf});
  const QuantTensor result{std::move(out[0]), std::move(out[1])};
  per_token_cast_out(result, x, x_sf, fmt, num_per_channels, options, call);
  return result;
}

TensorSpec per_token_cast_with_sf_only_spec(const TensorSpec& x, DType fmt, int num_per_channels,
                                            const CastOptions& options) {
  return make_plan({.x = without_memory(x),
                    .fmt = fmt,
                    .block = {1, num_per_channels},
                    .sf_only = true,
                    .options = options})
      .sf;
}

void per_token_cast_with_sf_only_out(const TensorView& out_sf, const TensorView& x, DType fmt,
                                     int num_per_channels, const CastOptions& options,
                                     const Call& call) {
  const CastCall cast{
      .x = x, .fmt = fmt, .block = {1, num_per_channels}, .sf_only = true, .options = options};
  run_cast(kPerTokenCast, cast, make_plan(cast), nullptr, &out_sf, call);
}

Tensor per_token_cast_with_sf_only(const TensorView& x, DType fmt, int num_per_channels,
                                   const CastOptions& options, const Call& call) {
  Tensor out_sf =
      call.allocate(per_token_cast_with_sf_only_spec(x, fmt, num_per_channels, options));
  per_token_cast_with_sf_only_out(out_sf, x, fmt, num_per_channels, options, call);
  return out_sf;
}

TensorSpec per_token_cast_with_precomputed_sf_spec(const TensorSpec& x, DType fmt,
                                                   int num_per_channels, const TensorSpec& sf) {
  return make_plan({.x = without_memory(x),
                    .fmt = fmt,
                    .block = {1, num_per_channels},
                    .given_sf = without_memory(sf)})
      .data;
}

void per_token_cast_with_precomputed_sf_out(const TensorView& out, const TensorView& x, DType fmt,
                                            int num_per_channels, const TensorView& sf,
                                            const Call& call) {
  const CastCall cast{.x = x, .fmt = fmt, .block = {1, num_per_channels}, .given_sf = sf};
  run_cast(kPerTokenCast, cast, make_plan(cast), &out, nullptr, call);
}

Tensor per_token_cast_with_precomputed_sf(const TensorView& x, DType fmt, int num_per_channels,
                                          const TensorView& sf, const Call& call) {
  Tensor out = call.allocate(per_token_cast_with_precomputed_sf_spec(x, fmt, num_per_channels, sf));
  per_token_cast_with_precomputed_sf_out(out, x, fmt, num_per_channels, sf, call);
  return out;
}

}  // namespace tilekernels
