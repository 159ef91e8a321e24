// expand_to_fused, with and without scaling factors: checks, shapes and dispatch.
#include <utility>

#include "core/check.h"
#include "core/kernel_table.h"
#include "numerics/sf_layout.h"
#include "ops/moe/expand_to_fused/op.h"
#include "ops/moe/fused_front.h"
#include "tilekernels/moe.h"

namespace tilekernels {
namespace {

constexpr KernelTable<ExpandToFusedArgs, ExpandToFusedShape> table(std::string_view op,
                                                                   int32 op_id) {
  return {
      .op = op,
      .reference = reference::expand_to_fused,
      .cpu = cpu::expand_to_fused,
      .cuda = cuda::expand_to_fused,
      .ascend = ascend::expand_to_fused,
      .faults = {.op_id = op_id, .position_out_of_range = "token_topk_to_pos"},
  };
}
constexpr auto kExpandToFused = table("expand_to_fused", kExpandToFusedId);
constexpr auto kExpandToFusedWithSf = table("expand_to_fused_with_sf", kExpandToFusedWithSfId);

// Everything but the scaling factors; returns the spec of the output.
TensorSpec check_rows(const Check& check, const TensorSpec& x, const TensorSpec& token_topk_to_pos,
                      const TensorSpec& pos_to_expert) {
  check.rows("x", x);
  check.range("hidden bytes", x.size(1) * size_bytes(x.dtype), 0, kMaxRow);
  check_positions(check, token_topk_to_pos, x);
  check.shape("token_topk_to_pos", token_topk_to_pos, {x.size(0), token_topk_to_pos.size(1)});
  check.range("num_tokens * num_topk", token_topk_to_pos.numel(), 0, kMaxExtent);
  check.rank("pos_to_expert", pos_to_expert, 1);
  check.dtype("pos_to_expert", pos_to_expert, {DType::kI32});
  check.contiguous("pos_to_expert", pos_to_expert);
  check.same_device("pos_to_expert", pos_to_expert, "x", x);
  check.range("num_expanded_tokens", pos_to_expert.size(0), 0, kMaxExtent);
  check.extents("out", {pos_to_expert.size(0), x.size(1)});
  return {{pos_to_expert.size(0), x.size(1)}, x.dtype, x.device};
}

struct SfPlan {
  TensorSpec spec;
  int64_t padded_rows;
};

// The scaling factors of x, and where those of the output lie.
SfPlan check_sf(const Check& check, const QuantSpec& x, int num_per_channels, const SfExpansion& sf,
                int64_t num_expanded) {
  check.one_of("num_per_channels", num_per_channels, {16, 32, 64, 128});
  check.rank("x.sf", x.sf, 2);
  check.dtype("x.sf", x.sf, {DType::kF32, DType::kE4M3, DType::kE8M0, DType::kI32, DType::kI16});
  const bool is_packed = x.sf.dtype == DType::kI32 || x.sf.dtype == DType::kI16;
  SfFormat format{.kind = x.sf.dtype == DType::kF32    ? SfKind::kF32
                          : x.sf.dtype == DType::kE4M3 ? SfKind::kE4M3
                                                       : SfKind::kUE8M0,
                  .layout = is_packed ? (sf.col_major ? SfLayout::kColPacked : SfLayout::kRowPacked)
                                      : (sf.col_major ? SfLayout::kCol : SfLayout::kRow),
                  .pitch = sf.pitch};
  if (is_packed) {
    // The words say whose they are.
    const SfPitch own = x.sf.dtype == DType::kI16 ? SfPitch::kAscend : SfPitch::kCuda;
    if (format.pitch == SfPitch::kDevice) format.pitch = own;
    check.require(format.pitch == own, "sf.pitch",
                  own == SfPitch::kAscend ? "must be kAscend for x.sf of i16"
                                          : "must be kCuda for x.sf of i32",
                  own == SfPitch::kAscend ? "kCuda" : "kAscend");
  }
  const int64_t per_unit = x.data.dtype == DType::kE2M1x2 ? 2 : 1;
  const int64_t cols = numerics::ceil_div(x.data.size(1) * per_unit, num_per_channels);
  const TensorSpec spec = sf_spec(format, num_expanded, cols, x.data.device);
  check.shape("x.sf", x.sf, {x.data.size(0), spec.size(1)});
  check.same_device("x.sf", x.sf, "x", x.data);
  if (!x.sf.is_empty()) {
    const int64_t row_stride = x.sf.size(0) > 1 ? x.sf.stride(0) : 1;
    const int64_t col_stride = x.sf.size(1) > 1 ? x.sf.stride(1) : 1;
    const bool by_row = col_stride == 1 && (x.sf.size(0) == 1 || row_stride >= x.sf.size(1));
    const bool by_col = row_stride == 1 && (x.sf.size(1) == 1 || col_stride >= x.sf.size(0));
    if (!by_row && !by_col) {
      check.fail("x.sf", "must have rows or columns that are contiguous and do not overlap",
                 "strides " + to_string(x.sf.strides));
    }
    check.span("x.sf", x.sf, x.sf.size(0), row_stride).span("x.sf", x.sf, x.sf.size(1), col_stride);
  }
  const int64_t pitch = sf.col_major && spec.size(1) > 0 ? spec.stride(1) : num_expanded;
  return {spec, pitch};
}

struct Inputs {
  const TensorView& x;
  const TensorView& token_topk_to_pos;
  const TensorView& pos_to_expert;
};

ExpandToFusedArgs make_args(const Inputs& of, const TensorView& out) {
  ExpandToFusedArgs args{};
  args.x = static_cast<const uint8*>(of.x.data);
  args.x_stride = row_stride(of.x) * size_bytes(of.x.dtype);
  args.token_topk_to_pos = static_cast<const int32*>(of.token_topk_to_pos.data);
  args.pos_to_expert = static_cast<const int32*>(of.pos_to_expert.data);
  args.out = static_cast<uint8*>(out.data);
  args.num_tokens = of.x.size(0);
  args.num_expanded = of.pos_to_expert.size(0);
  args.padded_expanded = args.num_expanded;
  return args;
}

ExpandToFusedShape make_shape(const Inputs& of) {
  return {.row_bytes = static_cast<int32>(of.x.size(1) * size_bytes(of.x.dtype)),
          .num_topk = static_cast<int32>(of.token_topk_to_pos.size(1)),
          .sf_words = 0,
          .sf_word_bytes = 1,
          .sf_by_col = 0};
}

// Of an output: apart from everything that is read.
void check_written(const Check& check, std::string_view name, const TensorView& out,
                   const Inputs& of) {
  const ByteRange written = bytes_written(out);
  check.disjoint(name, written, "x", bytes_read(of.x));
  check.disjoint(name, written, "token_topk_to_pos", bytes_read(of.token_topk_to_pos));
  check.disjoint(name, written, "pos_to_expert", bytes_read(of.pos_to_expert));
}

void check_memory(const Check& check, const Inputs& of) {
  check.memory("x", of.x).memory("token_topk_to_pos", of.token_topk_to_pos);
  check.memory("pos_to_expert", of.pos_to_expert);
}

ExpandSf sf_of(const TensorView& sf) {
  const int64_t size = size_bytes(sf.dtype);
  return {static_cast<uint8*>(sf.data), sf.size(0) > 1 ? sf.stride(0) * size : size,
          sf.size(1) > 1 ? sf.stride(1) * size : size};
}

}  // namespace

TensorSpec expand_to_fused_spec(const TensorSpec& x, const TensorSpec& token_topk_to_pos,
                                const TensorSpec& pos_to_expert) {
  return check_rows(Check(kExpandToFused.op), x, token_topk_to_pos, pos_to_expert);
}

void expand_to_fused_out(const TensorView& out, const TensorView& x,
                         const TensorView& token_topk_to_pos, const TensorView& pos_to_expert,
                         const Call& call) {
  const Check check(kExpandToFused.op);
  const Inputs of{x, token_topk_to_pos, pos_to_expert};
  check.matches("out", out, check_rows(check, x, token_topk_to_pos, pos_to_expert));
  check_memory(check, of);
  check_written(check, "out", out, of);
  if (out.is_empty()) return;
  kExpandToFused.run(call, x.device, make_args(of, out), make_shape(of));
}

Tensor expand_to_fused(const TensorView& x, const TensorView& token_topk_to_pos,
                       const TensorView& pos_to_expert, const Call& call) {
  Tensor out = call.allocate(expand_to_fused_spec(x, token_topk_to_pos, pos_to_expert));
  expand_to_fused_out(out, x, token_topk_to_pos, pos_to_expert, call);
  return out;
}

QuantSpec expand_to_fused_with_sf_spec(const QuantSpec& x, int num_per_channels,
                                       const TensorSpec& token_topk_to_pos,
                                       const TensorSpec& pos_to_expert, const SfExpansion& sf) {
  const Check check(kExpandToFusedWithSf.op);
  const TensorSpec data = check_rows(check, x.data, token_topk_to_pos, pos_to_expert);
  return {data, check_sf(check, x, num_per_channels, sf, data.size(0)).spec};
}

void expand_to_fused_with_sf_out(const QuantView& out, const QuantView& x, int num_per_channels,
                                 const TensorView& token_topk_to_pos,
                                 const TensorView& pos_to_expert, const SfExpansion& sf,
                                 const Call& call) {
  const Check check(kExpandToFusedWithSf.op);
  const Inputs of{x.data, token_topk_to_pos, pos_to_expert};
  const TensorSpec data = check_rows(check, x.data, token_topk_to_pos, pos_to_expert);
  const SfPlan plan = check_sf(check, x, num_per_channels, sf, data.size(0));
  check.matches("out.data", out.data, data).matches("out.sf", out.sf, plan.spec);
  check_memory(check, of);
  check.memory("x.sf", x.sf);
  check_written(check, "out.data", out.data, of);
  // Strides that mean nothing to callers do here: the padding of a single column is written.
  const TensorView out_sf(out.sf.data, plan.spec);
  check_written(check, "out.sf", out_sf, of);
  check.disjoint("out.data", bytes_written(out.data), "x.sf", bytes_read(x.sf));
  check.disjoint("out.sf", bytes_written(out_sf), "x.sf", bytes_read(x.sf));
  check.disjoint("out.sf", bytes_written(out_sf), "out.data", bytes_written(out.data));
  if (out.data.is_empty()) return;
  ExpandToFusedArgs args = make_args(of, out.data);
  args.sf = sf_of(x.sf);
  const int64_t word_bytes = size_bytes(out_sf.dtype);
  args.out_sf = {static_cast<uint8*>(out_sf.data), out_sf.stride(0) * word_bytes,
                 out_sf.stride(1) * word_bytes};
  args.padded_expanded = plan.padded_rows;
  ExpandToFusedShape shape = make_shape(of);
  shape.sf_words = static_cast<int32>(plan.spec.size(1));
  shape.sf_word_bytes = static_cast<int32>(word_bytes);
  shape.sf_by_col = sf.col_major ? 1 : 0;
  kExpandToFusedWithSf.run(call, x.data.device, std::move(args), shape);
}

QuantTensor expand_to_fused_with_sf(const QuantView& x, int num_per_channels,
                                    const TensorView& token_topk_to_pos,
                                    const TensorView& pos_to_expert, const SfExpansion& sf,
                                    const Call& call) {
  const QuantSpec spec =
      expand_to_fused_with_sf_spec(x, num_per_channels, token_topk_to_pos, pos_to_expert, sf);
  std::vector<Tensor> memory = call.allocate({spec.data, spec.sf});
  QuantTensor out{std::move(memory[0]), std::move(memory[1])};
  expand_to_fused_with_sf_out(out, x, num_per_channels, token_topk_to_pos, pos_to_expert, sf, call);
  return out;
}

}  // namespace tilekernels
