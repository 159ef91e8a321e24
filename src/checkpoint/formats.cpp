// The number formats that checkpoints hold, as data: how weights and their scales are named, what
// they are made of, and what config.json says about them.
#include "checkpoint/formats.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <stdexcept>

#include "core/message.h"
#include "io/text.h"

namespace tilekernels {
namespace checkpoint {
namespace {

using io::StDType;

constexpr QuantScheme kDeepseekFp8 = {
    StDType::kF8E4M3,
    {128, 128},
    SfKind::kF32,
    StDType::kF32,
    "_scale_inv",
    448 * 0x1p-126f,
    R"({"activation_scheme":"dynamic","fmt":"e4m3","quant_method":"fp8",)"
    R"("weight_block_size":[128,128]})"};

constexpr std::array<TargetFormat, 4> kTargets = {{
    {CheckpointFormat::kF32, "f32", StDType::kF32, "float32", nullptr},
    {CheckpointFormat::kF16, "f16", StDType::kF16, "float16", nullptr},
    {CheckpointFormat::kBF16, "bf16", StDType::kBF16, "bfloat16", nullptr},
    {CheckpointFormat::kDeepseekFp8, "deepseek-fp8", StDType::kF8E4M3, "", &kDeepseekFp8},
}};

int64_t ceil_div(int64_t a, int64_t b) { return a / b + (a % b != 0); }

}  // namespace

const TargetFormat& target_format(CheckpointFormat format) {
  return kTargets[static_cast<size_t>(format)];
}

bool is_plain_float(StDType dtype) {
  return dtype == StDType::kF32 || dtype == StDType::kF16 || dtype == StDType::kBF16;
}

DType op_dtype(StDType dtype) {
  switch (dtype) {
    case StDType::kF32:
      return DType::kF32;
    case StDType::kF16:
      return DType::kF16;
    case StDType::kBF16:
      return DType::kBF16;
    default:
      assert(dtype == StDType::kF8E4M3);
      return DType::kE4M3;
  }
}

std::vector<std::string> scale_names(std::string_view weight) {
  const std::string whole(weight);
  std::vector<std::string> names = {whole + "_scale_inv", whole + "_scale"};
  constexpr std::string_view kWeight = ".weight";
  if (weight.ends_with(kWeight)) {
    const std::string module(weight.substr(0, weight.size() - kWeight.size()));
    names.push_back(module + ".scale_inv");
    names.push_back(module + ".scale");
  }
  return names;
}

bool is_scale_dtype(StDType dtype) { return is_plain_float(dtype) || dtype == StDType::kF8E8M0; }

bool is_unknown_part(const io::TensorEntry& tensor) {
  // ".scale" and "_scale" alone are no sign: norms and CLIP's logit_scale are named so.
  constexpr std::string_view kEnds[] = {"_scale_inv", ".scale_inv",     "weight_scale",
                                        "_scale_2",   "_global_scale",  "weight_scales",
                                        "_scales",    ".weight_packed", "input_scale"};
  return tensor.dtype == StDType::kF8E8M0 ||
         std::any_of(std::begin(kEnds), std::end(kEnds),
                     [&](std::string_view end) { return tensor.name.ends_with(end); });
}

std::vector<int64_t> scale_shape(const std::vector<int64_t>& weight, BlockSize block) {
  assert(weight.size() >= 2);
  std::vector<int64_t> shape = weight;
  int64_t& rows = shape[shape.size() - 2];
  rows = ceil_div(rows, block.rows);
  shape.back() = ceil_div(shape.back(), block.cols);
  return shape;
}

std::string block_text(BlockSize block) {
  return std::to_string(block.rows) + "x" + std::to_string(block.cols);
}

std::string scaled_format(StDType codes, StDType scale, BlockSize block) {
  return std::string(name(codes)) + " x " + std::string(name(scale)) + " per " + block_text(block);
}

}  // namespace checkpoint

std::string_view name(CheckpointFormat format) { return checkpoint::target_format(format).name; }

std::vector<std::string> checkpoint_formats() {
  std::vector<std::string> names;
  for (const auto& target : checkpoint::kTargets) names.emplace_back(target.name);
  return names;
}

CheckpointFormat checkpoint_format_from_name(std::string_view text) {
  std::string known;
  for (const auto& target : checkpoint::kTargets) {
    if (target.name == text) return target.id;
    known += (known.empty() ? "" : ", ") + std::string(target.name);
  }
  throw std::invalid_argument(
      message("convert", "format", "must be one of " + known, io::quote(text)));
}

std::string_view name(TensorAction action) {
  switch (action) {
    case TensorAction::kCopied:
      return "copied";
    case TensorAction::kConverted:
      return "converted";
    case TensorAction::kQuantized:
      return "quantized";
    case TensorAction::kCastBack:
      return "cast back";
    case TensorAction::kRescaled:
      return "rescaled";
    case TensorAction::kConsumed:
      return "consumed";
  }
  return "";
}

void Progress::begin(std::string_view, int64_t) {}
void Progress::advance(int64_t) {}
void Progress::end() {}
bool Progress::cancelled() { return false; }

}  // namespace tilekernels
