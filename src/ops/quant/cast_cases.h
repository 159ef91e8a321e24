// What the cases of both casts are made of: a call is a row of data.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "cases/case.h"
#include "tilekernels/quant.h"

namespace tilekernels::cases {

// The public functions of a cast; Group is int or BlockSize.
template <class Group>
struct CastApi {
  std::string op;

  QuantSpec (*spec)(const TensorSpec&, DType, Group, const CastOptions&);
  void (*out)(const QuantView&, const TensorView&, DType, Group, const CastOptions&, const Call&);
  QuantTensor (*alloc)(const TensorView&, DType, Group, const CastOptions&, const Call&);

  QuantSpec (*requant_spec)(const QuantSpec&, const SfSource&, DType, Group, const CastOptions&);
  void (*requant_out)(const QuantView&, const QuantView&, const SfSource&, DType, Group,
                      const CastOptions&, const Call&);
  QuantTensor (*requant_alloc)(const QuantView&, const SfSource&, DType, Group, const CastOptions&,
                               const Call&);

  TensorSpec (*sf_only_spec)(const TensorSpec&, DType, Group, const CastOptions&);
  void (*sf_only_out)(const TensorView&, const TensorView&, DType, Group, const CastOptions&,
                      const Call&);
  Tensor (*sf_only_alloc)(const TensorView&, DType, Group, const CastOptions&, const Call&);

  TensorSpec (*given_sf_spec)(const TensorSpec&, DType, Group, const TensorSpec&);
  void (*given_sf_out)(const TensorView&, const TensorView&, DType, Group, const TensorView&,
                       const Call&);
  Tensor (*given_sf_alloc)(const TensorView&, DType, Group, const TensorView&, const Call&);
};

enum class CastForm { kAll, kSfOnly, kGivenSf };

inline constexpr DType kF32 = DType::kF32;
inline constexpr DType kF16 = DType::kF16;
inline constexpr DType kBF16 = DType::kBF16;
inline constexpr DType kE4M3 = DType::kE4M3;
inline constexpr DType kE2M1 = DType::kE2M1x2;
inline constexpr DType kE8M0 = DType::kE8M0;
inline constexpr DType kI16 = DType::kI16;
inline constexpr DType kI32 = DType::kI32;

inline constexpr float kLeastE4M3 = 448 * 0x1p-126f;

constexpr SfSource by_row(int rows, int cols) { return {{rows, cols}, SfLayout::kRow}; }
constexpr SfSource by_col(int rows, int cols) { return {{rows, cols}, SfLayout::kCol}; }
constexpr SfSource row_packed(int rows, int cols) { return {{rows, cols}, SfLayout::kRowPacked}; }
constexpr SfSource col_packed(int rows, int cols) { return {{rows, cols}, SfLayout::kColPacked}; }
constexpr SfSource token_packed(int rows) { return {{rows, 1}, SfLayout::kTokenPacked}; }

constexpr SfFormat kRowF32{SfKind::kF32, SfLayout::kRow};
constexpr SfFormat kColF32{SfKind::kF32, SfLayout::kCol};
constexpr SfFormat kColF32Ascend{SfKind::kF32, SfLayout::kCol, SfPitch::kAscend};
constexpr SfFormat kRowRounded{SfKind::kRoundedF32, SfLayout::kRow};
constexpr SfFormat kColRounded{SfKind::kRoundedF32, SfLayout::kCol, SfPitch::kCuda};
constexpr SfFormat kRowBytes{SfKind::kUE8M0, SfLayout::kRow};
constexpr SfFormat kColBytes{SfKind::kUE8M0, SfLayout::kCol};
constexpr SfFormat kColBytesAscend{SfKind::kUE8M0, SfLayout::kCol, SfPitch::kAscend};
constexpr SfFormat kRowPacked{SfKind::kUE8M0, SfLayout::kRowPacked};
constexpr SfFormat kRowPackedAscend{SfKind::kUE8M0, SfLayout::kRowPacked, SfPitch::kAscend};
constexpr SfFormat kColPacked{SfKind::kUE8M0, SfLayout::kColPacked};
constexpr SfFormat kColPackedAscend{SfKind::kUE8M0, SfLayout::kColPacked, SfPitch::kAscend};
constexpr SfFormat kRowE4M3{SfKind::kE4M3, SfLayout::kRow};
constexpr SfFormat kColE4M3{SfKind::kE4M3, SfLayout::kCol};
constexpr SfFormat kColE4M3Ascend{SfKind::kE4M3, SfLayout::kCol, SfPitch::kAscend};

// A call of a cast.
struct CastRow {
  int64_t tokens;
  int64_t hidden;
  DType x;
  DType fmt;
  BlockSize block;
  SfFormat sf{};
  Fill fill = Fill::kNormal;
  int64_t gap = 0;  // elements of x between rows
  float clamp = 0;  // 0: not given
  bool bench = false;
  bool bench_pdl = false;
  CastForm form = CastForm::kAll;
  // The scaling factors of a quantized x (`source` set), or the given ones
  DType sf_dtype = DType::kF32;
  SfSource source{{0, 0}, SfLayout::kRow};
  Fill sf_fill = Fill::kScale;
  int64_t sf_gap = 0;

  constexpr CastRow with(Fill data) const {
    CastRow row = *this;
    row.fill = data;
    return row;
  }
  constexpr CastRow with_gap(int64_t elements) const {
    CastRow row = *this;
    row.gap = elements;
    return row;
  }
  constexpr CastRow with_clamp(float value) const {
    CastRow row = *this;
    row.clamp = value;
    return row;
  }
  constexpr CastRow timed() const {
    CastRow row = *this;
    row.bench = true;
    return row;
  }
  constexpr CastRow with_pdl() const {
    CastRow row = *this;
    row.bench_pdl = true;
    return row;
  }
  constexpr CastRow sf_only() const {
    CastRow row = *this;
    row.form = CastForm::kSfOnly;
    return row;
  }
  constexpr CastRow given_sf(DType dtype, Fill scales = Fill::kScale) const {
    CastRow row = *this;
    row.form = CastForm::kGivenSf;
    row.sf_dtype = dtype;
    row.sf_fill = scales;
    return row;
  }
  constexpr CastRow from(DType dtype, SfSource read, Fill scales = Fill::kScale) const {
    CastRow row = *this;
    row.sf_dtype = dtype;
    row.source = read;
    row.sf_fill = scales;
    return row;
  }
  constexpr CastRow with_sf_gap(int64_t elements) const {
    CastRow row = *this;
    row.sf_gap = elements;
    return row;
  }
  constexpr bool is_quantized() const { return source.block.rows != 0; }
};

inline std::string text(BlockSize block) {
  return std::to_string(block.rows) + "x" + std::to_string(block.cols);
}

inline std::string text(SfLayout layout) {
  constexpr const char* kNames[] = {"row", "col", "rowpacked", "colpacked", "tokenpacked"};
  return kNames[static_cast<int>(layout)];
}

inline std::string text(const SfFormat& sf) {
  constexpr const char* kKinds[] = {"f32", "rounded", "ue8m0", "e4m3"};
  constexpr const char* kPitches[] = {"", "-cuda", "-ascend"};
  return std::string(kKinds[static_cast<int>(sf.kind)]) + "-" + text(sf.layout) +
         kPitches[static_cast<int>(sf.pitch)];
}

inline std::string id_of(const CastRow& row) {
  std::string id;
  if (row.form == CastForm::kSfOnly) id += "sf_only/";
  if (row.form == CastForm::kGivenSf) id += "precomputed/";
  if (row.is_quantized()) id += "requant/";
  id += "tokens=" + std::to_string(row.tokens) + ",hidden=" + std::to_string(row.hidden) +
        ",x=" + std::string(name(row.x));
  if (row.is_quantized()) {
    id += ",x_sf=" + std::string(name(row.sf_dtype)) + "-" + text(row.source.layout) + "-" +
          text(row.source.block) + "-" + std::string(name(row.sf_fill));
  }
  id += ",fmt=" + std::string(name(row.fmt)) + ",block=" + text(row.block);
  if (row.form == CastForm::kGivenSf) {
    id += ",sf=" + std::string(name(row.sf_dtype)) + "-" + std::string(name(row.sf_fill));
  } else {
    id += ",sf=" + text(row.sf);
  }
  if (row.fill != Fill::kNormal) id += ",data=" + std::string(name(row.fill));
  if (row.gap != 0) id += ",gap=" + std::to_string(row.gap);
  if (row.sf_gap != 0) id += ",sf_gap=" + std::to_string(row.sf_gap);
  if (row.clamp != 0) id += ",clamp=" + std::to_string(row.clamp);
  return id;
}

constexpr int64_t blocks(int64_t extent, int64_t block) { return (extent + block - 1) / block; }

// The scale tensor of a quantized x, or the given one.
inline TensorSpec sf_spec_of(const CastRow& row) {
  const bool quantized = row.is_quantized();
  const BlockSize block = quantized ? row.source.block : row.block;
  const SfKind kind = row.sf_dtype == DType::kF32    ? SfKind::kF32
                      : row.sf_dtype == DType::kE4M3 ? SfKind::kE4M3
                                                     : SfKind::kUE8M0;
  const SfPitch pitch = row.sf_dtype == DType::kI16 ? SfPitch::kAscend : SfPitch::kCuda;
  const SfLayout layout = quantized ? row.source.layout : SfLayout::kRow;
  TensorSpec sf = sf_spec({kind, layout, pitch}, blocks(row.tokens, block.rows),
                          blocks(row.hidden, block.cols));
  const bool by_col = layout == SfLayout::kCol || layout == SfLayout::kColPacked;
  sf.strides[by_col ? 1 : 0] += row.sf_gap;
  return sf;
}

inline std::vector<Tensor> both(QuantTensor out) { return {out.data, out.sf}; }

// The call of a row on any inputs: x, then the scaling factors that the form takes.
template <class Group>
Case make_call(const CastApi<Group>& api, const CastRow& row, std::vector<Input> inputs,
               Group group) {
  CastOptions options{row.sf, std::nullopt};
  if (row.clamp != 0) options.amax_clamp = row.clamp;
  const DType fmt = row.fmt;
  const SfSource source = row.source;
  Case test;
  test.id = api.op + "/" + id_of(row);
  test.inputs = std::move(inputs);
  test.bench = row.bench;
  test.bench_pdl = row.bench_pdl;
  test.outputs = {"out", "out_sf"};
  if (row.form == CastForm::kSfOnly) {
    test.outputs = {"out_sf"};
    test.spec = [=](const Specs& in) {
      return Specs{api.sf_only_spec(in[0], fmt, group, options)};
    };
    test.out = [=](const Views& out, const Views& in, const Call& call) {
      api.sf_only_out(out[0], in[0], fmt, group, options, call);
    };
    test.alloc = [=](const Views& in, const Call& call) {
      return std::vector<Tensor>{api.sf_only_alloc(in[0], fmt, group, options, call)};
    };
  } else if (row.form == CastForm::kGivenSf) {
    test.outputs = {"out"};
    test.spec = [=](const Specs& in) { return Specs{api.given_sf_spec(in[0], fmt, group, in[1])}; };
    test.out = [=](const Views& out, const Views& in, const Call& call) {
      api.given_sf_out(out[0], in[0], fmt, group, in[1], call);
    };
    test.alloc = [=](const Views& in, const Call& call) {
      return std::vector<Tensor>{api.given_sf_alloc(in[0], fmt, group, in[1], call)};
    };
  } else if (row.is_quantized()) {
    test.spec = [=](const Specs& in) {
      const QuantSpec spec = api.requant_spec({in[0], in[1]}, source, fmt, group, options);
      return Specs{spec.data, spec.sf};
    };
    test.out = [=](const Views& out, const Views& in, const Call& call) {
      api.requant_out({out[0], out[1]}, {in[0], in[1]}, source, fmt, group, options, call);
    };
    test.alloc = [=](const Views& in, const Call& call) {
      return both(api.requant_alloc({in[0], in[1]}, source, fmt, group, options, call));
    };
  } else {
    test.spec = [=](const Specs& in) {
      const QuantSpec spec = api.spec(in[0], fmt, group, options);
      return Specs{spec.data, spec.sf};
    };
    test.out = [=](const Views& out, const Views& in, const Call& call) {
      api.out({out[0], out[1]}, in[0], fmt, group, options, call);
    };
    test.alloc = [=](const Views& in, const Call& call) {
      return both(api.alloc(in[0], fmt, group, options, call));
    };
  }
  return test;
}

inline int64_t units(const CastRow& row) { return row.x == DType::kE2M1x2 ? 2 : 1; }

template <class Group>
Case make_case(const CastApi<Group>& api, const CastRow& row, Group group) {
  const int64_t cols = row.hidden / units(row);
  std::vector<Input> inputs = {
      {"x", TensorSpec({row.tokens, cols}, {cols + row.gap, 1}, row.x), row.fill}};
  if (row.is_quantized() || row.form == CastForm::kGivenSf) {
    inputs.push_back({"sf", sf_spec_of(row), row.sf_fill});
  }
  return make_call(api, row, std::move(inputs), group);
}

// A call on given bytes with results worked by hand; empty ones are not compared.
template <class Group>
Case worked(const CastApi<Group>& api, const std::string& id, const CastRow& row, Group group,
            std::vector<uint8_t> x, std::vector<uint8_t> sf,
            std::vector<std::vector<uint8_t>> expected) {
  Case test = make_case(api, row, group);
  test.id = api.op + "/" + id;
  test.inputs[0].fill = Fill::kGiven;
  test.inputs[0].given = std::move(x);
  if (!sf.empty()) {
    test.inputs[1].fill = Fill::kGiven;
    test.inputs[1].given = std::move(sf);
  }
  test.expected = std::move(expected);
  return test;
}

// A call that throws; `inputs` replace those of the row.
template <class Group>
Case bad_call(const CastApi<Group>& api, const std::string& id, const CastRow& row, Group group,
              std::vector<TensorSpec> inputs, const std::string& error) {
  std::vector<Input> all;
  for (const TensorSpec& spec : inputs) all.push_back({"x", spec});
  Case test = make_call(api, row, std::move(all), group);
  test.id = api.op + "/bad-" + id;
  test.error = "[" + api.op + "] " + error;
  return test;
}

}  // namespace tilekernels::cases
