// The checks that the fronts of the quantization family share.
#include "ops/quant/checks.h"

#include <limits>
#include <string>

namespace tilekernels {
namespace {

constexpr int64_t kMaxExtent = std::numeric_limits<int32_t>::max();

constexpr std::string_view kKindNames[] = {"kF32", "kRoundedF32", "kUE8M0", "kE4M3"};
constexpr std::string_view kLayoutNames[] = {"kRow", "kCol", "kRowPacked", "kColPacked",
                                             "kTokenPacked"};

// Scaling factors' dtype by layout and, for packed ones, pitch.
DType sf_dtype(int32_t sf_kind, int32_t layout, int32_t pitch) {
  if (numerics::is_packed(layout)) {
    return pitch == numerics::kSfPitchAscend ? DType::kI16 : DType::kI32;
  }
  if (is_wide_sf(sf_kind)) return DType::kF32;
  return sf_kind == numerics::kSfE4M3 ? DType::kE4M3 : DType::kE8M0;
}

int32_t kind_of(DType sf_dtype) {
  if (sf_dtype == DType::kF32) return numerics::kSfF32;
  return sf_dtype == DType::kE4M3 ? numerics::kSfE4M3 : numerics::kSfUE8M0;
}

bool is_by_column(SfLayout layout) {
  return layout == SfLayout::kCol || layout == SfLayout::kColPacked;
}

// Rows contiguous at any pitch, or columns.
void check_sf_strides(const Check& check, std::string_view argument, const TensorSpec& sf,
                      SfLayout layout) {
  if (!is_by_column(layout)) {
    check.rows(argument, sf);
    return;
  }
  if (sf.is_empty()) return;
  const bool rows_ok = sf.size(0) == 1 || sf.stride(0) == 1;
  const bool cols_ok = sf.size(1) == 1 || sf.stride(1) >= sf.size(0);
  if (!rows_ok || !cols_ok) {
    check.fail(argument,
               "must have row stride 1 and a column stride of at least " +
                   std::to_string(sf.size(0)) + ", being " +
                   std::string(kLayoutNames[static_cast<size_t>(layout)]),
               "strides " + to_string(sf.strides));
  }
  if (sf.size(1) > 1) check.span(argument, sf, sf.size(1), sf.stride(1));
}

// kSfPitchCuda or kSfPitchAscend.
int32_t resolved_pitch(SfPitch pitch, Device device) {
  if (pitch != SfPitch::kDevice) return static_cast<int32_t>(pitch);
  return device.type == DeviceType::kAscend ? numerics::kSfPitchAscend : numerics::kSfPitchCuda;
}

}  // namespace

SfBuffer checked_sf_buffer(const Check& check, const SfFormat& format, int64_t num_row_blocks,
                           int64_t num_col_blocks, Device device) {
  const auto kind = static_cast<int32_t>(format.kind);
  const auto layout = static_cast<int32_t>(format.layout);
  check.range("sf.kind", kind, 0, numerics::kSfE4M3);
  check.range("sf.layout", layout, 0, numerics::kSfTokenPacked);
  check.range("sf.pitch", static_cast<int32_t>(format.pitch), 0, numerics::kSfPitchAscend);
  if (!numerics::sf_layout_takes(layout, kind)) {
    check.fail("sf.layout",
               "must be kRow or kCol for scaling factors of kind " +
                   std::string(kKindNames[static_cast<size_t>(kind)]),
               kLayoutNames[static_cast<size_t>(layout)]);
  }
  check.extents("sf", {num_row_blocks, num_col_blocks});
  const int32_t pitch = resolved_pitch(format.pitch, device);
  const numerics::SfStorage storage =
      numerics::sf_storage(kind, layout, pitch, num_row_blocks, num_col_blocks);
  return {storage,
          {{storage.rows, storage.cols},
           {storage.row_stride, storage.col_stride},
           sf_dtype(kind, layout, pitch),
           device}};
}

TensorSpec sf_spec(const SfFormat& format, int64_t num_row_blocks, int64_t num_col_blocks,
                   Device device) {
  return checked_sf_buffer(Check("sf_spec"), format, num_row_blocks, num_col_blocks, device).spec;
}

QuantSource check_quant_source(const Check& check, const TensorSpec& data, const TensorSpec& sf,
                               const SfSource& x_sf) {
  check.rows("x", data);
  check.dtype("x", data, {DType::kE4M3, DType::kE2M1x2});
  const int64_t hidden = data.size(1) * elements_per_unit(static_cast<int32_t>(data.dtype));
  check.range("hidden", hidden, 0, kMaxExtent);
  check.range("x_sf.block.rows", x_sf.block.rows, 1, kMaxExtent);
  check.range("x_sf.block.cols", x_sf.block.cols, 1, kMaxExtent);
  const auto layout = static_cast<int32_t>(x_sf.layout);
  check.range("x_sf.layout", layout, 0, numerics::kSfTokenPacked);
  if (x_sf.layout == SfLayout::kTokenPacked) {
    check.require(x_sf.block.cols == 1, "x_sf.block.cols", "must be 1 for layout kTokenPacked",
                  x_sf.block.cols);
  }
  if (numerics::is_packed(layout)) {
    check.dtype("x.sf", sf, {DType::kI32, DType::kI16});
  } else {
    check.dtype("x.sf", sf, {DType::kF32, DType::kE4M3, DType::kE8M0});
  }
  const int32_t kind = kind_of(sf.dtype);
  const int32_t pitch = sf.dtype == DType::kI16 ? numerics::kSfPitchAscend : numerics::kSfPitchCuda;
  const numerics::SfStorage storage =
      numerics::sf_storage(kind, layout, pitch, numerics::ceil_div(data.size(0), x_sf.block.rows),
                           numerics::ceil_div(hidden, x_sf.block.cols));
  check.shape("x.sf", sf, {storage.rows, storage.cols}).same_device("x.sf", sf, "x", data);
  check_sf_strides(check, "x.sf", sf, x_sf.layout);
  return {data.size(0), static_cast<int32_t>(hidden), kind,
          numerics::sf_map(layout, storage.word_bytes, row_stride(sf),
                           sf.size(1) > 1 ? sf.stride(1) : 1)};
}

}  // namespace tilekernels
