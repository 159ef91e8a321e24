// Conversions of single files: bytes against the public ops on whole tensors, policy, refusals.
#include <gtest/gtest.h>

#include <cmath>

#include "checkpoint_files.h"
#include "errors.h"
#include "numerics/formats.h"
#include "tilekernels/checkpoint.h"
#include "tilekernels/config.h"
#include "tilekernels/error.h"
#include "tilekernels/quant.h"

namespace tilekernels {
namespace {

using io::StDType;

ConvertOptions to(CheckpointFormat format) {
  ConvertOptions options;
  options.to = format;
  options.durable = false;
  return options;
}

class Convert : public testing::Test {
 protected:
  std::string in() const { return folder_ / "in.safetensors"; }
  std::string out() const { return folder_ / "out.safetensors"; }
  void given(const std::vector<MadeTensor>& tensors) const {
    write_checkpoint(folder_, "in.safetensors", tensors);
  }
  ConvertReport run(const ConvertOptions& options) const { return convert(in(), out(), options); }
  Tensors result() const { return read_checkpoint(out()); }
  TestFolder folder_;
};

const TensorReport& row(const ConvertReport& report, const std::string& name) {
  for (const TensorReport& tensor : report.tensors) {
    if (tensor.name == name) return tensor;
  }
  throw std::runtime_error("no row " + name);
}

struct Shape {
  std::vector<int64_t> weight;
  std::vector<int64_t> scale;
};

// B19: partial blocks, one element, no element, rows and columns beyond a tile, stacks.
const Shape kShapes[] = {
    {{130, 200}, {2, 2}},     {{1, 1}, {1, 1}},           {{0, 256}, {0, 2}},
    {{256, 0}, {2, 0}},       {{576, 7168}, {5, 56}},     {{3, 40000}, {1, 313}},
    {{300, 20000}, {3, 157}}, {{9000, 130}, {71, 2}},     {{2, 130, 128}, {2, 2, 1}},
    {{3, 1, 129}, {3, 1, 2}}, {{0, 130, 128}, {0, 2, 1}},
};

MadeTensor scales(const std::string& name, const std::vector<int64_t>& shape) {
  MadeTensor sf = f32_tensor(name, shape, 7);
  std::vector<float> values = values_of<float>(sf);
  for (float& value : values) value = std::fabs(value) * 0.01f + 1e-4f;
  sf.bytes = bytes_of(values);
  return sf;
}

// The op on a whole matrix of a stack.
std::string cast_back_whole(const MadeTensor& weight, const MadeTensor& sf, DType dtype) {
  const int64_t rows = weight.shape[weight.shape.size() - 2];
  const int64_t cols = weight.shape.back();
  const int64_t slabs = weight.shape.size() == 3 ? weight.shape[0] : 1;
  std::string all;
  for (int64_t slab = 0; slab < slabs; ++slab) {
    const Dims sf_shape{sf.shape[sf.shape.size() - 2], sf.shape.back()};
    const QuantView x{{const_cast<char*>(weight.bytes.data()) + slab * rows * cols,
                       TensorSpec({rows, cols}, DType::kE4M3)},
                      {const_cast<char*>(sf.bytes.data()) + slab * sf_shape[0] * sf_shape[1] * 4,
                       TensorSpec(sf_shape, DType::kF32)}};
    const Tensor out = cast_back(x, {{128, 128}}, dtype);
    all.append(static_cast<const char*>(out.data()),
               static_cast<size_t>(rows * cols * size_bytes(dtype)));
  }
  return all;
}

TEST_F(Convert, CastBackEqualsTheOpOnTheWholeTensor) {
  std::vector<MadeTensor> tensors;
  for (size_t i = 0; i < std::size(kShapes); ++i) {
    const std::string name = "t" + std::to_string(i) + ".weight";
    tensors.push_back(e4m3_tensor(name, kShapes[i].weight, i));
    tensors.push_back(scales(name + "_scale_inv", kShapes[i].scale));
  }
  given(tensors);
  const std::pair<CheckpointFormat, DType> targets[] = {{CheckpointFormat::kBF16, DType::kBF16},
                                                        {CheckpointFormat::kF16, DType::kF16},
                                                        {CheckpointFormat::kF32, DType::kF32}};
  for (const auto& [format, dtype] : targets) {
    SCOPED_TRACE(name(format));
    ConvertOptions options = to(format);
    options.overwrite = true;
    const ConvertReport report = run(options);
    const Tensors result = this->result();
    ASSERT_EQ(result.size(), std::size(kShapes));
    for (size_t i = 0; i < std::size(kShapes); ++i) {
      const MadeTensor& made = result.at("t" + std::to_string(i) + ".weight");
      EXPECT_EQ(made.shape, kShapes[i].weight);
      EXPECT_TRUE(made.bytes == cast_back_whole(tensors[2 * i], tensors[2 * i + 1], dtype)) << i;
    }
    EXPECT_EQ(row(report, "t0.weight_scale_inv").action, TensorAction::kConsumed);
    EXPECT_EQ(row(report, "t0.weight").source_format, "F8_E4M3 x F32 per 128x128");
  }
}

TEST_F(Convert, B19EdgeBlocksTakeTheirOwnScale) {
  MadeTensor weight{"a.weight", StDType::kF8E4M3, {130, 200}, std::string(130 * 200, '\x38')};
  given({weight, {"a.weight_scale_inv", StDType::kF32, {2, 2}, bytes_of<float>({1, 2, 4, 8})}});
  run(to(CheckpointFormat::kF32));
  const std::vector<float> values = values_of<float>(result().at("a.weight"));
  EXPECT_EQ(values[127 * 200 + 127], 1);
  EXPECT_EQ(values[127 * 200 + 128], 2);
  EXPECT_EQ(values[128 * 200 + 127], 4);
  EXPECT_EQ(values[129 * 200 + 199], 8);
}

TEST_F(Convert, QuantizeEqualsTheOpOnTheWholeTensor) {
  std::vector<MadeTensor> tensors;
  for (size_t i = 0; i < std::size(kShapes); ++i) {
    const std::string name = "layer.experts.t" + std::to_string(i) + ".weight";
    tensors.push_back(i % 2 == 0 ? f32_tensor(name, kShapes[i].weight, i)
                                 : bf16_tensor(name, kShapes[i].weight, i));
  }
  given(tensors);
  const ConvertReport report = run(to(CheckpointFormat::kDeepseekFp8));
  const Tensors result = this->result();
  ASSERT_EQ(result.size(), 2 * std::size(kShapes));
  CastOptions options;
  options.amax_clamp = 448 * 0x1p-126f;
  for (size_t i = 0; i < std::size(kShapes); ++i) {
    SCOPED_TRACE(i);
    const MadeTensor& source = tensors[i];
    const MadeTensor& codes = result.at(source.name);
    const MadeTensor& sf = result.at(source.name + "_scale_inv");
    EXPECT_EQ(codes.shape, kShapes[i].weight);
    EXPECT_EQ(sf.shape, kShapes[i].scale);
    EXPECT_EQ(sf.dtype, StDType::kF32);
    const int64_t rows = source.shape[source.shape.size() - 2];
    const int64_t cols = source.shape.back();
    const DType dtype = i % 2 == 0 ? DType::kF32 : DType::kBF16;
    std::string all_codes, all_sf;
    for (int64_t slab = 0; slab < (source.shape.size() == 3 ? source.shape[0] : 1); ++slab) {
      const TensorView x(
          const_cast<char*>(source.bytes.data()) + slab * rows * cols * size_bytes(dtype),
          TensorSpec({rows, cols}, dtype));
      const QuantTensor whole = per_block_cast(x, DType::kE4M3, {128, 128}, options);
      all_codes.append(static_cast<const char*>(whole.data.data()),
                       static_cast<size_t>(whole.data.spec().numel()));
      all_sf.append(static_cast<const char*>(whole.sf.data()),
                    static_cast<size_t>(whole.sf.spec().numel() * 4));
    }
    EXPECT_TRUE(codes.bytes == all_codes);
    EXPECT_TRUE(sf.bytes == all_sf);
    const TensorReport& row_of = row(report, source.name);
    EXPECT_EQ(row_of.action, TensorAction::kQuantized);
    ASSERT_TRUE(row_of.error);
    if (numel(source.shape) > 1) {
      EXPECT_GT(row_of.error->relative_rms, 0.01);
      EXPECT_LT(row_of.error->relative_rms, 0.04);
      // Half a step of the largest codes.
      EXPECT_LT(row_of.error->max_abs, 16.0 / 448 * 1.001);
    }
  }
}

TEST_F(Convert, B20ExpertsOfAStackHaveTheirOwnBlocks) {
  std::vector<float> values(2 * 130 * 128, 1.0f);
  std::fill(values.begin() + 130 * 128, values.end(), 1000.0f);
  given({{"mlp.experts.w.weight", StDType::kF32, {2, 130, 128}, bytes_of(values)}});
  run(to(CheckpointFormat::kDeepseekFp8));
  const MadeTensor sf = result().at("mlp.experts.w.weight_scale_inv");
  EXPECT_EQ(sf.shape, (std::vector<int64_t>{2, 2, 1}));
  const std::vector<float> scale = values_of<float>(sf);
  EXPECT_EQ(scale[0], 1.0f / 448);
  EXPECT_EQ(scale[1], 1.0f / 448);
  EXPECT_EQ(scale[2], 1000.0f / 448);
}

TEST_F(Convert, ErrorFiguresAreThoseOfTheWrittenBytes) {
  const MadeTensor source = f32_tensor("x.weight", {200, 300}, 3);
  given({source});
  const ConvertReport report = run(to(CheckpointFormat::kDeepseekFp8));
  const Tensors written = result();
  const std::string back =
      cast_back_whole(written.at("x.weight"), written.at("x.weight_scale_inv"), DType::kF32);
  const std::vector<float> x = values_of<float>(source);
  std::vector<float> y(x.size());
  std::memcpy(y.data(), back.data(), back.size());
  double max_abs = 0, errors = 0, squares = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const double e = static_cast<double>(y[i]) - static_cast<double>(x[i]);
    max_abs = std::max(max_abs, std::fabs(e));
    errors += e * e;
    squares += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  }
  EXPECT_NEAR(row(report, "x.weight").error->relative_rms, std::sqrt(errors / squares), 1e-9);
  EXPECT_NEAR(row(report, "x.weight").error->max_abs, max_abs, 1e-9);
}

TEST_F(Convert, BadBlocksAndNanAreReported) {
  MadeTensor source = f32_tensor("x.weight", {256, 256}, 3);
  std::vector<float> values = values_of<float>(source);
  values[5] = std::nanf("");
  values[200 * 256 + 200] = INFINITY;
  source.bytes = bytes_of(values);
  given({source});
  const ConvertReport report = run(to(CheckpointFormat::kDeepseekFp8));
  const TensorReport& bad = row(report, "x.weight");
  EXPECT_EQ(bad.num_bad_blocks, 2);
  EXPECT_EQ(bad.num_nan, 2 * 128 * 128);
  EXPECT_LT(bad.error->relative_rms, 0.04);  // the other blocks
}

// What an infinite scale makes infinite was not cut off by the target's range.
TEST_F(Convert, OnlyClippedNumbersCountAsSaturated) {
  MadeTensor weight = e4m3_tensor("a.weight", {256, 256});
  std::vector<uint8_t> codes(256 * 256, 0x38);  // 1
  codes[130] = codes[200 * 256] = 0x7E;         // 448
  weight.bytes = bytes_of(codes);
  const float big = 0x1p120f;  // 448 times this is beyond f32
  given({weight,
         {"a.weight_scale_inv", StDType::kF32, {2, 2}, bytes_of<float>({INFINITY, big, big, 1})}});
  const ConvertReport report = run(to(CheckpointFormat::kBF16));
  EXPECT_EQ(row(report, "a.weight").num_saturated, 2);
  EXPECT_EQ(row(report, "a.weight").num_bad_blocks, 1);
}

TEST_F(Convert, PlainFormatsRoundOnce) {
  const float tie = 1.0f + 0x1p-8f;  // halfway between two bf16 numbers
  const std::vector<float> values = {1.0f,     tie,     -0.0f,    1e-40f,
                                     70000.0f, 3.4e38f, INFINITY, std::nanf("")};
  given({{"x", StDType::kF32, {8}, bytes_of(values)}});
  ConvertReport report = run(to(CheckpointFormat::kBF16));
  std::vector<uint16_t> got = values_of<uint16_t>(result().at("x"));
  for (size_t i = 0; i < values.size(); ++i) {
    EXPECT_EQ(got[i], numerics::f32_to_bf16(values[i])) << i;
  }
  EXPECT_EQ(got[1], 0x3F80);  // to even
  EXPECT_EQ(got[7], 0x7FFF);
  EXPECT_EQ(row(report, "x").num_nan, 1);
  EXPECT_EQ(row(report, "x").num_saturated, 1);  // 3.4e38 rounds to Inf
  ConvertOptions options = to(CheckpointFormat::kF16);
  options.overwrite = true;
  report = run(options);
  got = values_of<uint16_t>(result().at("x"));
  for (size_t i = 0; i < values.size(); ++i) {
    EXPECT_EQ(got[i], numerics::f32_to_f16(values[i])) << i;
  }
  EXPECT_EQ(row(report, "x").num_saturated, 2);
}

TEST_F(Convert, B55AScaleUnderAnotherNameIsFound) {
  const MadeTensor weight = e4m3_tensor("a.weight", {4, 4});
  const std::pair<const char*, MadeTensor> rows[] = {
      {"weight_scale_inv", {"a.weight_scale_inv", StDType::kF32, {1, 1}, bytes_of<float>({0.5f})}},
      {"weight_scale", {"a.weight_scale", StDType::kF16, {1, 1}, bytes_of<uint16_t>({0x3800})}},
      {"scale", {"a.scale", StDType::kBF16, {1, 1}, bytes_of<uint16_t>({0x3F00})}},
      {"scale e8m0", {"a.scale", StDType::kF8E8M0, {1, 1}, "\x7e"}},
      {"scale_inv", {"a.scale_inv", StDType::kF32, {1, 1}, bytes_of<float>({0.5f})}},
  };
  const MadeTensor half{"", StDType::kF32, {1, 1}, bytes_of<float>({0.5f})};
  for (const auto& [label, scale] : rows) {
    SCOPED_TRACE(label);
    given({weight, scale});
    ConvertOptions options = to(CheckpointFormat::kF32);
    options.overwrite = true;
    run(options);
    const Tensors result = this->result();
    EXPECT_EQ(result.size(), 1u);
    EXPECT_TRUE(result.at("a.weight").bytes == cast_back_whole(weight, half, DType::kF32));

    // To FP8 the codes stay and the scale gets the target's name and format.
    options.to = CheckpointFormat::kDeepseekFp8;
    run(options);
    const Tensors kept = this->result();
    EXPECT_EQ(kept.size(), 2u);
    EXPECT_TRUE(kept.at("a.weight") == weight);
    EXPECT_EQ(kept.at("a.weight_scale_inv").dtype, StDType::kF32);
    EXPECT_EQ(kept.at("a.weight_scale_inv").bytes, half.bytes);
  }
}

TEST_F(Convert, B55AMissingScaleIsRefusedByName) {
  given({e4m3_tensor("b.weight", {4, 4}), e4m3_tensor("c.weight", {4, 4})});
  for (const CheckpointFormat format : {CheckpointFormat::kBF16, CheckpointFormat::kDeepseekFp8}) {
    const std::string what = error_of<DataError>([&] { run(to(format)); });
    EXPECT_TRUE(has(what, "tensor \"b.weight\": an F8_E4M3 weight must have a scale")) << what;
    EXPECT_TRUE(has(what, "1 more weight")) << what;
    EXPECT_EQ(folder_.list(), std::vector<std::string>{"in.safetensors"});
  }
  ConvertOptions options = to(CheckpointFormat::kF32);
  options.missing_scale_is_one = true;
  const ConvertReport report = run(options);
  EXPECT_TRUE(has(row(report, "b.weight").reason, "scale taken as 1"));
  const MadeTensor one{"", StDType::kF32, {1, 1}, bytes_of<float>({1})};
  EXPECT_TRUE(result().at("b.weight").bytes ==
              cast_back_whole(e4m3_tensor("b.weight", {4, 4}), one, DType::kF32));
  options.to = CheckpointFormat::kDeepseekFp8;
  options.overwrite = true;
  run(options);
  EXPECT_EQ(result().at("c.weight_scale_inv").bytes, one.bytes);
}

TEST_F(Convert, B55AnIgnoredWeightKeepsItsScale) {
  const MadeTensor weight = e4m3_tensor("c.weight", {4, 4});
  const MadeTensor scale{"c.scale", StDType::kF8E8M0, {1, 1}, "\x7e"};
  given({weight, scale, bf16_tensor("d", {4})});
  for (const char* pattern : {"re:c$", "c.weight", "*.weight", "c"}) {
    ConvertOptions options = to(CheckpointFormat::kF32);
    options.overwrite = true;
    options.ignore = {pattern};
    run(options);
    EXPECT_TRUE(result().at("c.weight") == weight) << pattern;
    EXPECT_TRUE(result().at("c.scale") == scale) << pattern;
    EXPECT_EQ(result().at("d").dtype, StDType::kF32) << pattern;
  }
}

TEST_F(Convert, RefusesWhatItCannotBeSureOf) {
  const MadeTensor weight = e4m3_tensor("a.weight", {130, 200});
  const MadeTensor good = scales("a.weight_scale_inv", {2, 2});
  const auto refused = [&](const std::vector<MadeTensor>& tensors) {
    given(tensors);
    const std::string what = error_of<DataError>([&] { run(to(CheckpointFormat::kBF16)); });
    EXPECT_FALSE(folder_.exists("out.safetensors"));
    return what;
  };
  EXPECT_TRUE(has(refused({weight, scales("a.weight_scale_inv", {2, 1})}),
                  "the scale must have shape [2, 2] for weight \"a.weight\" of shape [130, 200] in "
                  "blocks of 128x128, got [2, 1]"));
  EXPECT_TRUE(has(refused({weight, scales("a.weight_scale", {})}), "got []"));
  EXPECT_TRUE(has(refused({weight, good, scales("a.scale", {2, 2})}),
                  "there must be one scale, got \"a.weight_scale_inv\" and \"a.scale\""));
  EXPECT_TRUE(has(refused({weight, {"a.scale", StDType::kU8, {2, 2}, "abcd"}}),
                  "the scale of an FP8 weight must be F32, F16, BF16 or F8_E8M0, got U8"));
  EXPECT_TRUE(has(refused({e4m3_tensor("v", {4}), {"v_scale", StDType::kF32, {1}, "1234"}}),
                  "must be a matrix, got [4]"));
  EXPECT_TRUE(has(refused({scales("b.weight_scale_inv", {2, 2})}),
                  "tensor \"b.weight_scale_inv\": a scale must belong to an F8_E4M3 weight"));
  EXPECT_TRUE(has(refused({{"b.scale", StDType::kF8E8M0, {1}, "x"}}), "\"b.scale\""));
  EXPECT_TRUE(
      has(refused({{"w_blocks", StDType::kU8, {1}, "x"}, {"w_scales", StDType::kU8, {1}, "x"}}),
          "\"w_scales\""));
  given({{"e", StDType::kF8E5M2, {1}, "x"}});
  EXPECT_TRUE(has(error_of<Unsupported>([&] { run(to(CheckpointFormat::kBF16)); }),
                  "tensor \"e\": the format must be one that is known here"));
  given({{"e", StDType::kF4, {2}, "x"}});
  EXPECT_TRUE(has(error_of<Unsupported>([&] { run(to(CheckpointFormat::kBF16)); }), "got F4"));
  ConvertOptions options = to(CheckpointFormat::kBF16);
  options.ignore = {"e"};
  run(options);
  EXPECT_EQ(result().at("e").dtype, StDType::kF4);
}

TEST_F(Convert, CastsWeightsAndSaysWhyNotOthers) {
  const std::pair<const char*, const char*> rows[] = {
      {"model.layers.0.mlp.up_proj.weight", "matrix"},
      {"model.layers.0.mlp.gate_proj.weight", "matrix"},
      {"model.layers.0.self_attn.q_proj.weight", "matrix"},
      {"encoder.layer.0.attention.output.dense.weight", "matrix"},
      {"model.embed_tokens.weight", "embedding"},
      {"embeddings.word_embeddings.weight", "embedding"},
      {"transformer.wte.weight", "embedding"},
      {"shared.weight", "embedding"},
      {"lm_head.weight", "output head"},
      {"output.weight", "output head"},
      {"model.layers.0.mlp.gate.weight", "router gate"},
      {"model.layers.0.block_sparse_moe.gate.weight", "router gate"},
      {"model.layers.0.input_layernorm.weight", "norm"},
      {"model.layers.61.eh_proj.weight", "kept by DeepSeek's checkpoints"},
      {"model.layers.0.mlp.up_proj.bias", "not named .weight"},
  };
  std::vector<MadeTensor> tensors;
  for (const auto& [name, reason] : rows) tensors.push_back(bf16_tensor(name, {4, 4}));
  tensors.push_back(bf16_tensor("norm.weight", {4}));
  tensors.push_back(bf16_tensor("conv.weight", {4, 4, 4}));
  tensors.push_back(bf16_tensor("mlp.experts.gate_up_proj", {2, 4, 4}));
  tensors.push_back(bf16_tensor("mlp.experts.gate_up_proj_bias", {2, 4}));
  tensors.push_back({"position_ids", StDType::kI64, {1}, "12345678"});
  given(tensors);
  ConvertOptions options = to(CheckpointFormat::kDeepseekFp8);
  ConvertReport report = run(options);
  for (const auto& [name, reason] : rows) EXPECT_EQ(row(report, name).reason, reason) << name;
  EXPECT_EQ(row(report, "norm.weight").reason, "vector");
  EXPECT_EQ(row(report, "conv.weight").reason, "rank 3");
  EXPECT_EQ(row(report, "mlp.experts.gate_up_proj").action, TensorAction::kQuantized);
  EXPECT_EQ(result().count("mlp.experts.gate_up_proj_scale_inv"), 1u);
  EXPECT_EQ(row(report, "mlp.experts.gate_up_proj_bias").action, TensorAction::kCopied);
  EXPECT_EQ(row(report, "position_ids").action, TensorAction::kCopied);

  options.overwrite = true;
  options.ignore = {"re:.*up_proj"};
  options.include = {"lm_head", "*.embed_tokens.weight"};
  report = run(options);
  EXPECT_EQ(row(report, "model.layers.0.mlp.up_proj.weight").reason, "--ignore re:.*up_proj");
  EXPECT_EQ(row(report, "model.layers.0.mlp.gate_proj.weight").action, TensorAction::kQuantized);
  EXPECT_EQ(row(report, "lm_head.weight").reason, "--include lm_head");
  EXPECT_EQ(row(report, "model.embed_tokens.weight").action, TensorAction::kQuantized);

  options.ignore = {"re:("};
  EXPECT_TRUE(has(error_of<std::invalid_argument>([&] { run(options); }), "\"re:(\""));
  options.ignore = {"no_such_tensor"};
  EXPECT_TRUE(has(run(options).warnings.at(0), "\"no_such_tensor\" matches no tensor"));
  options.include = {"norm.weight"};
  EXPECT_TRUE(has(error_of<std::invalid_argument>([&] { run(options); }), "\"norm.weight\""));
}

TEST_F(Convert, OtherFloatsFollowThePlainTarget) {
  given({e4m3_tensor("a.weight", {4, 4}), scales("a.weight_scale_inv", {1, 1}),
         f32_tensor("norm.weight", {4}), f32_tensor("mlp.gate.e_score_correction_bias", {4}),
         bf16_tensor("b", {4})});
  ConvertOptions options = to(CheckpointFormat::kBF16);
  run(options);
  EXPECT_EQ(result().at("norm.weight").dtype, StDType::kBF16);
  EXPECT_EQ(result().at("mlp.gate.e_score_correction_bias").dtype, StDType::kF32);
  options.overwrite = true;
  options.keep_other = true;
  run(options);
  EXPECT_EQ(result().at("norm.weight").dtype, StDType::kF32);
  EXPECT_EQ(result().at("a.weight").dtype, StDType::kBF16);
}

TEST_F(Convert, B67OtherDTypesPassThrough) {
  const MadeTensor tensors[] = {
      {"i", StDType::kI64, {1}, "12345678"}, {"u", StDType::kU16, {1}, "12"},
      {"b", StDType::kBool, {2}, "\1\1"},    {"c", StDType::kC64, {1}, "12345678"},
      {"d", StDType::kF64, {1}, "12345678"}, {"z", StDType::kU32, {0, 3}, ""}};
  given({std::begin(tensors), std::end(tensors)});
  run(to(CheckpointFormat::kBF16));
  const Tensors result = this->result();
  for (const MadeTensor& tensor : tensors) EXPECT_TRUE(result.at(tensor.name) == tensor);
}

TEST_F(Convert, TensorsAreAlignedToTheirElements) {
  given({f32_tensor("a.weight", {1, 1}), f32_tensor("b.weight", {3, 1}), f32_tensor("c", {3})});
  run(to(CheckpointFormat::kDeepseekFp8));
  const io::Header header = io::read_header(io::File::open_read(out()));
  EXPECT_EQ(header.data_start % 8, 0);
  for (const io::TensorEntry& tensor : header.tensors) {
    EXPECT_EQ(tensor.begin % (io::bits(tensor.dtype) / 8), 0) << tensor.name;
  }
  EXPECT_EQ(header.metadata.at(0).first, "format");
}

TEST_F(Convert, DryRunForecastsExactSizesAndWritesNothing) {
  given({f32_tensor("a.weight", {130, 200}), f32_tensor("norm", {7})});
  ConvertOptions options = to(CheckpointFormat::kDeepseekFp8);
  options.dry_run = true;
  const ConvertReport forecast = run(options);
  EXPECT_EQ(folder_.list(), std::vector<std::string>{"in.safetensors"});
  options.dry_run = false;
  const ConvertReport report = run(options);
  ASSERT_EQ(forecast.files.size(), 1u);
  EXPECT_EQ(forecast.files[0].bytes, static_cast<int64_t>(std::filesystem::file_size(out())));
  EXPECT_EQ(forecast.bytes_written, report.bytes_written);
  EXPECT_EQ(forecast.tensors.at(0).bytes_after, 130 * 200 + 4 * 4);
}

TEST_F(Convert, ResultsDoNotDependOnThreads) {
  given({bf16_tensor("a.weight", {700, 5000}), e4m3_tensor("b.weight", {700, 5000}),
         scales("b.weight_scale_inv", {6, 40}), f32_tensor("c", {123457})});
  std::string files[2];
  std::optional<ErrorFigures> errors[2];
  const int threads[] = {1, 3};
  for (int i = 0; i < 2; ++i) {
    set_num_threads(threads[i]);
    ConvertOptions options = to(CheckpointFormat::kDeepseekFp8);
    options.overwrite = true;
    errors[i] = row(run(options), "a.weight").error;
    files[i] = folder_.read("out.safetensors");
  }
  set_num_threads(0);
  EXPECT_TRUE(files[0] == files[1]);
  EXPECT_EQ(errors[0]->max_abs, errors[1]->max_abs);
  EXPECT_EQ(errors[0]->relative_rms, errors[1]->relative_rms);
}

TEST(Formats, AreFoundByName) {
  for (const std::string& format : checkpoint_formats()) {
    EXPECT_EQ(name(checkpoint_format_from_name(format)), format);
  }
  EXPECT_TRUE(has(error_of<std::invalid_argument>([] { checkpoint_format_from_name("fp8"); }),
                  "f32, f16, bf16, deepseek-fp8, got \"fp8\""));
}

}  // namespace
}  // namespace tilekernels
