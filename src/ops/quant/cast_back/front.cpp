// cast_back: checks, shape and dispatch.
#include "core/check.h"
#include "core/kernel_table.h"
#include "ops/quant/cast_back/op.h"
#include "ops/quant/checks.h"
#include "tilekernels/quant.h"

namespace tilekernels {
namespace {

constexpr KernelTable<CastBackArgs, CastBackShape> kCastBack = {
    .op = "cast_back",
    .reference = reference::cast_back,
    .cpu = cpu::cast_back,
    .cuda = cuda::cast_back,
    .ascend = ascend::cast_back,
};

QuantSource check_source(const TensorSpec& data, const TensorSpec& sf, const SfSource& x_sf,
                         DType out_dtype) {
  const Check check(kCastBack.op);
  check.dtype("out", out_dtype, {DType::kBF16, DType::kF16, DType::kF32});
  return check_quant_source(check, data, sf, x_sf);
}

}  // namespace

TensorSpec cast_back_spec(const QuantSpec& x, const SfSource& x_sf, DType out_dtype) {
  const QuantSource source = check_source(x.data, x.sf, x_sf, out_dtype);
  return {{source.num_tokens, source.hidden}, out_dtype, x.data.device};
}

void cast_back_out(const TensorView& out, const QuantView& x, const SfSource& x_sf,
                   const Call& call) {
  const Check check(kCastBack.op);
  const QuantSource source = check_source(x.data, x.sf, x_sf, out.dtype);
  check.matches("out", out, {{source.num_tokens, source.hidden}, out.dtype, x.data.device});
  check.memory("x", x.data).memory("x.sf", x.sf);
  const ByteRange written = bytes_written(out);
  check.disjoint("out", written, "x", bytes_read(x.data));
  check.disjoint("out", written, "x.sf", bytes_read(x.sf));
  if (out.is_empty()) return;
  kCastBack.run(call, x.data.device,
                CastBackArgs{.x = static_cast<const uint8*>(x.data.data),
                             .x_stride = row_stride(x.data),
                             .x_sf = {static_cast<const uint8*>(x.sf.data), source.sf_map},
                             .out = out.data,
                             .num_tokens = source.num_tokens},
                CastBackShape{.x_dtype = static_cast<int32>(x.data.dtype),
                              .sf_kind = source.sf_kind,
                              .out_dtype = static_cast<int32>(out.dtype),
                              .block_rows = x_sf.block.rows,
                              .block_cols = x_sf.block.cols,
                              .hidden = source.hidden});
}

Tensor cast_back(const QuantView& x, const SfSource& x_sf, DType out_dtype, const Call& call) {
  Tensor out = call.allocate(cast_back_spec(x, x_sf, out_dtype));
  cast_back_out(out, x, x_sf, call);
  return out;
}

}  // namespace tilekernels
