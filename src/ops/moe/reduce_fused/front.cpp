// reduce_fused: checks, shape and dispatch.

#include "core/check.h"
#include "core/kernel_table.h"
#include "ops/moe/fused_front.h"
#include "ops/moe/reduce_fused/op.h"
#include "tilekernels/moe.h"

namespace tilekernels {
namespace {

constexpr KernelTable<ReduceFusedArgs, ReduceFusedShape> kReduceFused = {
    .op = "reduce_fused",
    .reference = reference::reduce_fused,
    .cpu = cpu::reduce_fused,
    .cuda = cuda::reduce_fused,
    .ascend = ascend::reduce_fused,
    .faults = {.op_id = kReduceFusedId, .position_out_of_range = "token_topk_to_pos"},
};

// An optional f32 tensor, contiguous and beside x.
void check_factor(const Check& check, std::string_view name, const TensorSpec& factor,
                  const Dims& shape, const TensorSpec& x) {
  check.dtype(name, factor, {DType::kF32}).shape(name, factor, shape).contiguous(name, factor);
  check.same_device(name, factor, "x", x);
}

TensorSpec check_all(const TensorSpec& x, const TensorSpec& token_topk_to_pos,
                     const TensorSpec* topk_weights, const TensorSpec* x_sf, const TensorSpec* sf,
                     const std::optional<DType>& fmt) {
  const Check check(kReduceFused.op);
  check.rows("x", x);
  check.dtype("x", x, {DType::kF32, DType::kBF16, DType::kF16, DType::kE4M3});
  check.range("hidden", x.size(1), 0, kMaxRow);
  check.range("num_expanded_tokens", x.size(0), 0, kMaxExtent);
  check_positions(check, token_topk_to_pos, x);
  if (topk_weights != nullptr) {
    check_factor(check, "topk_weights", *topk_weights, token_topk_to_pos.shape, x);
  }
  if (x_sf != nullptr) check_factor(check, "x_sf", *x_sf, {x.size(0)}, x);
  if (fmt) check.dtype("fmt", *fmt, {DType::kE4M3});
  if (sf != nullptr) {
    check_factor(check, "sf", *sf, {1}, x);
    const DType out = fmt.value_or(x.dtype);
    check.require(out == DType::kE4M3, "sf", "must come with an output of e4m3", name(out));
  }
  check.extents("out", {token_topk_to_pos.size(0), x.size(1)});
  return {{token_topk_to_pos.size(0), x.size(1)}, fmt.value_or(x.dtype), x.device};
}

}  // namespace

TensorSpec reduce_fused_spec(const TensorSpec& x, const TensorSpec& token_topk_to_pos,
                             const ReduceFusedSpecs& options) {
  return check_all(x, token_topk_to_pos, or_null(options.topk_weights), or_null(options.x_sf),
                   or_null(options.sf), options.fmt);
}

void reduce_fused_out(const TensorView& out, const TensorView& x,
                      const TensorView& token_topk_to_pos, const ReduceFusedOptions& options,
                      const Call& call) {
  const Check check(kReduceFused.op);
  check.matches("out", out,
                check_all(x, token_topk_to_pos, or_null(options.topk_weights),
                          or_null(options.x_sf), or_null(options.sf), options.fmt));
  const ByteRange written = bytes_written(out);
  const auto check_input = [&](std::string_view name, const TensorView& input) {
    check.memory(name, input).disjoint("out", written, name, bytes_read(input));
  };
  check_input("x", x);
  check_input("token_topk_to_pos", token_topk_to_pos);
  ReduceFusedArgs args{};
  if (options.topk_weights) {
    check_input("topk_weights", *options.topk_weights);
    args.topk_weights = static_cast<const float*>(options.topk_weights->data);
  }
  if (options.x_sf) {
    check_input("x_sf", *options.x_sf);
    args.x_sf = static_cast<const float*>(options.x_sf->data);
  }
  if (options.sf) {
    check_input("sf", *options.sf);
    args.sf = static_cast<const float*>(options.sf->data);
  }
  if (out.is_empty()) return;
  args.x = static_cast<const uint8*>(x.data);
  args.x_stride = row_stride(x) * size_bytes(x.dtype);
  args.token_topk_to_pos = static_cast<const int32*>(token_topk_to_pos.data);
  args.out = static_cast<uint8*>(out.data);
  args.num_tokens = out.size(0);
  args.num_expanded = x.size(0);
  kReduceFused.run(call, x.device, std::move(args),
                   ReduceFusedShape{.x_dtype = static_cast<int32>(x.dtype),
                                    .out_dtype = static_cast<int32>(out.dtype),
                                    .has_weights = options.topk_weights ? 1 : 0,
                                    .has_x_sf = options.x_sf ? 1 : 0,
                                    .has_sf = options.sf ? 1 : 0,
                                    .hidden = static_cast<int32>(x.size(1)),
                                    .num_topk = static_cast<int32>(token_topk_to_pos.size(1))});
}

Tensor reduce_fused(const TensorView& x, const TensorView& token_topk_to_pos,
                    const ReduceFusedOptions& options, const Call& call) {
  Tensor out = call.allocate(check_all(x, token_topk_to_pos, or_null(options.topk_weights),
                                       or_null(options.x_sf), or_null(options.sf), options.fmt));
  reduce_fused_out(out, x, token_topk_to_pos, options, call);
  return out;
}

}  // namespace tilekernels
