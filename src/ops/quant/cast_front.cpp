// The front of both casts: one plan made by all checks, whatever the form of the call.
#include "ops/quant/cast_front.h"

#include <limits>
#include <utility>

#include "core/settings.h"
#include "ops/quant/checks.h"

namespace tilekernels {
namespace {

template <class T>
T* bytes(const TensorView& view) {
  return static_cast<T*>(view.data);
}

// Of an x that is not quantized.
void check_plain(const Check& check, const TensorSpec& x) {
  check.rows("x", x);
  check.dtype("x", x, {DType::kF32, DType::kBF16, DType::kF16});
  check.range("hidden", x.size(1), 0, std::numeric_limits<int32_t>::max());
}

SfRead read_given_sf(const Check& check, const TensorView& sf, const TensorSpec& x, int64_t rows,
                     int64_t cols) {
  check.rank("sf", sf, 2).dtype("sf", sf, {DType::kF32, DType::kE4M3});
  check.shape("sf", sf, {rows, cols}).same_device("sf", sf, "x", x);
  check.rows("sf", sf);
  return {bytes<const uint8>(sf),
          numerics::sf_map(numerics::kSfRow, static_cast<int32_t>(size_bytes(sf.dtype)),
                           row_stride(sf), 1)};
}

// Checks the outputs and runs. `data` and `sf` are null where the form does not have them.
void run_cast(const CastTable& table, const CastCall& cast, CastPlan&& plan, const TensorView* data,
              const TensorView* sf, const Call& call) {
  const Check check(table.op);
  const std::string_view data_name = sf != nullptr ? "out.data" : "out";
  const std::string_view sf_name = data != nullptr ? "out.sf" : "out_sf";
  ByteRange data_bytes;
  ByteRange sf_bytes;
  if (data != nullptr) {
    check.matches(data_name, *data, plan.data);
    data_bytes = bytes_written(*data);
  }
  if (sf != nullptr) {
    check.matches(sf_name, *sf, plan.sf);
    sf_bytes = bytes_written({sf->data, plan.sf});  // padding of a single column too
  }
  const auto check_input = [&](std::string_view name, const TensorView& input) {
    check.memory(name, input);
    const ByteRange read = bytes_read(input);
    check.disjoint(data_name, data_bytes, name, read).disjoint(sf_name, sf_bytes, name, read);
  };
  check_input("x", cast.x);
  if (cast.x_sf != nullptr) check_input("x.sf", *cast.x_sf);
  if (cast.given_sf != nullptr) check_input("sf", *cast.given_sf);
  if (data != nullptr && sf != nullptr) {
    check.disjoint(sf_name, sf_bytes, data_name, bytes_read(*data));
  }
  if (plan.data.is_empty()) return;
  if (data != nullptr) plan.args.out = bytes<uint8>(*data);
  if (sf != nullptr) plan.args.out_sf.base = bytes<uint8>(*sf);
  table.run(call, cast.x.device, std::move(plan.args), plan.shape);
}

}  // namespace

CastPlan plan_cast(const Check& check, const CastCall& cast) {
  const TensorView& x = cast.x;
  CastPlan plan;
  CastShape& shape = plan.shape;
  CastArgs& args = plan.args;
  check.dtype("fmt", cast.fmt, {DType::kE4M3, DType::kE2M1x2});
  shape.x_dtype = static_cast<int32_t>(x.dtype);
  shape.fmt = static_cast<int32_t>(cast.fmt);
  shape.block_rows = cast.block.rows;
  shape.block_cols = cast.block.cols;
  if (cast.x_sf != nullptr) {
    const QuantSource source = check_quant_source(check, x, *cast.x_sf, cast.source);
    const int cols = cast.source.block.cols;
    if (cols % cast.block.cols != 0 && cast.block.cols % cols != 0) {
      check.fail("x_sf.block.cols",
                 "must divide " + std::to_string(cast.block.cols) + " or be a multiple of it",
                 std::to_string(cols));
    }
    shape.hidden = source.hidden;
    shape.x_sf_kind = source.sf_kind;
    shape.x_block_rows = cast.source.block.rows;
    shape.x_block_cols = cols;
    args.x_sf = {bytes<const uint8>(*cast.x_sf), source.sf_map};
  } else {
    check_plain(check, x);
    shape.hidden = static_cast<int32_t>(x.size(1));
  }
  check.multiple("hidden", shape.hidden, elements_per_unit(shape.fmt));
  args.x = bytes<const uint8>(x);
  args.x_pitch_bytes = row_stride(x) * size_bytes(x.dtype);
  args.num_tokens = x.size(0);

  plan.data = {{x.size(0), shape.hidden / elements_per_unit(shape.fmt)}, cast.fmt, x.device};
  const int64_t rows = row_blocks(args, shape);
  const int64_t cols = col_blocks(shape);
  if (cast.given_sf != nullptr) {
    shape.mode = kCastGivenSf;
    shape.sf_kind = cast.given_sf->dtype == DType::kE4M3 ? numerics::kSfE4M3 : numerics::kSfF32;
    args.given_sf = read_given_sf(check, *cast.given_sf, x, rows, cols);
    return plan;
  }
  const SfFormat& format = cast.options.sf;
  check.require(format.layout != SfLayout::kTokenPacked, "sf.layout",
                "must be kRow, kCol, kRowPacked or kColPacked", "kTokenPacked");
  shape.mode = cast.sf_only ? kCastSfOnly : kCastAll;
  shape.sf_kind = static_cast<int32_t>(format.kind);
  const SfBuffer buffer = checked_sf_buffer(check, format, rows, cols, x.device);
  plan.sf = buffer.spec;
  args.out_sf = {nullptr, buffer.storage.map, buffer.storage.padded_m, buffer.storage.padded_k};
  args.amax_clamp = amax_clamp_or_default(check.op().data(), cast.options.amax_clamp, cast.fmt,
                                          format.kind == SfKind::kE4M3);
  return plan;
}

QuantSpec CastOp::spec(const CastCall& cast) const {
  const CastPlan checked = plan(cast);
  return {checked.data, checked.sf};
}

void CastOp::run(const CastCall& cast, const QuantView& out, const Call& call) const {
  run_cast(table, cast, plan(cast), &out.data, &out.sf, call);
}

QuantTensor CastOp::allocate_and_run(const CastCall& cast, const Call& call) const {
  CastPlan checked = plan(cast);
  std::vector<Tensor> out = call.allocate({checked.data, checked.sf});
  const QuantTensor result{std::move(out[0]), std::move(out[1])};
  const QuantView views = result;
  run_cast(table, cast, std::move(checked), &views.data, &views.sf, call);
  return result;
}

TensorSpec CastOp::single_spec(const CastCall& cast) const {
  const CastPlan checked = plan(cast);
  return cast.sf_only ? checked.sf : checked.data;
}

void CastOp::run_single(const CastCall& cast, const TensorView& out, const Call& call) const {
  run_cast(table, cast, plan(cast), cast.sf_only ? nullptr : &out, cast.sf_only ? &out : nullptr,
           call);
}

Tensor CastOp::allocate_and_run_single(const CastCall& cast, const Call& call) const {
  Tensor out = call.allocate(single_spec(cast));
  run_single(cast, out, call);
  return out;
}

}  // namespace tilekernels
