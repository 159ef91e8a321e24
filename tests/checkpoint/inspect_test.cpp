// Inspection: what is in a checkpoint and what is suspicious about it.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <sstream>

#include "checkpoint_files.h"
#include "errors.h"
#include "tilekernels/checkpoint.h"
#include "tilekernels/error.h"
#include "tool/run_tool.h"

namespace tilekernels {
namespace {

using io::StDType;

std::string findings(const CheckpointInfo& info) {
  std::string all;
  for (const Finding& finding : info.findings) all += finding.tensor + ": " + finding.text + "\n";
  return all;
}

TEST(Inspect, DescribesTensorsAndScales) {
  TestFolder folder;
  write_checkpoint(folder, "x.safetensors",
                   {e4m3_tensor("a.weight", {130, 200}),
                    {"a.weight_scale_inv", StDType::kF32, {2, 2}, bytes_of<float>({1, 2, 4, 8})},
                    f32_tensor("norm", {16})});
  const CheckpointInfo info = inspect(folder / "x.safetensors");
  EXPECT_EQ(info.kind, "file");
  EXPECT_EQ(info.quantization, "none");
  ASSERT_EQ(info.tensors.size(), 3u);
  EXPECT_EQ(info.tensors[0].format, "F8_E4M3 x F32 per 128x128");
  EXPECT_EQ(info.tensors[0].scale, "a.weight_scale_inv");
  EXPECT_EQ(info.tensors[1].scaled_tensor, "a.weight");
  EXPECT_EQ(info.num_parameters, 130 * 200 + 16);
  EXPECT_EQ(info.bytes, 130 * 200 + 16 + 64);
  EXPECT_EQ(info.tensors[0].values->max_abs, 448);
  EXPECT_EQ(info.tensors[1].values->max_abs, 8);
  EXPECT_EQ(findings(info), "");
  EXPECT_FALSE(inspect(folder / "x.safetensors", {false}).tensors[0].values);
}

TEST(Inspect, FindsWhatIsSuspicious) {
  TestFolder folder;
  const float nan = std::nanf("");
  MadeTensor large = bf16_tensor("large", {3000, 1000});
  large.bytes[4000001] = '\x7f';  // the last number of a piece is Inf
  large.bytes[4000000] = '\x80';
  write_checkpoint(folder, "m/model.safetensors",
                   {{"bad", StDType::kF32, {4}, bytes_of<float>({1, nan, INFINITY, -INFINITY})},
                    {"zero", StDType::kBF16, {2, 3}, std::string(12, '\0')},
                    large,
                    {"codes", StDType::kF8E4M3, {2, 2}, "\x7f\xff\x01\x02"},
                    e4m3_tensor("a.weight", {130, 200}),
                    {"a.scale", StDType::kF32, {2, 2}, bytes_of<float>({0, -1, nan, 3})},
                    e4m3_tensor("b.weight", {130, 200}),
                    {"b.weight_scale_inv", StDType::kF32, {1, 2}, bytes_of<float>({1, 2})},
                    {"lost.weight_scale_inv", StDType::kF32, {1}, bytes_of<float>({1})}});
  folder.write("m/config.json",
               R"({"quantization_config":{"quant_method":"fp8","scale_fmt":"ue8m0"},)"
               R"("model_type":"deepseek_v3","architectures":["DeepseekV3ForCausalLM"]})");
  const CheckpointInfo info = inspect(folder / "m");
  EXPECT_EQ(info.kind, "folder");
  EXPECT_EQ(info.model, "DeepseekV3ForCausalLM (deepseek_v3)");
  EXPECT_EQ(info.quantization, "fp8, blocks of 128x128, scales ue8m0");
  const std::string all = findings(info);
  for (const char* line : {
           "bad: 1 of 4 numbers is NaN\n",
           "bad: 2 of 4 numbers are infinite\n",
           "zero: all 6 numbers are zero\n",
           "large: 1 of 3000000 numbers is infinite\n",
           "codes: FP8 weight without a scale\n",
           "codes: 2 of 4 numbers are NaN\n",
           "a.scale: 1 of 4 scales is zero\n",
           "a.scale: 1 of 4 scales is negative\n",
           "a.scale: 1 of 4 scales is NaN or infinite\n",
           "a.scale: 1 of 4 scales is no power of two, though config.json claims UE8M0\n",
           "b.weight_scale_inv: scale of shape [1, 2], but b.weight of shape [130, 200] in blocks "
           "of 128x128 needs [2, 2]\n",
           "lost.weight_scale_inv: looks like a scale, but no FP8 weight belongs to it\n",
       }) {
    EXPECT_TRUE(has(all, line)) << line << "is missing from\n" << all;
  }
  EXPECT_EQ(info.findings.size(), 12u) << all;
}

TEST(Inspect, FindsAConfigThatContradictsTheTensors) {
  TestFolder folder;
  write_checkpoint(folder, "m/model.safetensors",
                   {bf16_tensor("model.embed_tokens.weight", {2, 2})});
  folder.write("m/config.json",
               R"({"quantization_config":{"quant_method":"fp8"},"tie_word_embeddings":false})");
  std::string all = findings(inspect(folder / "m"));
  EXPECT_TRUE(has(all, "config.json claims fp8 quantization, but no tensor is F8_E4M3"));
  EXPECT_TRUE(has(all, "tie_word_embeddings = false, yet there is no lm_head.weight"));
  write_checkpoint(
      folder, "m/model.safetensors",
      {e4m3_tensor("a.weight", {1, 1}), {"a.scale", StDType::kF8E8M0, {1, 1}, "\x7f"}});
  folder.write("m/config.json", "{}");
  all = findings(inspect(folder / "m"));
  EXPECT_TRUE(has(all, "there are FP8 weights, but config.json has no quantization_config"));
}

TEST(Inspect, CountsOneInTheSingular) {
  const TestFolder folder;
  write_checkpoint(folder, "x.safetensors", {{"a", StDType::kI8, {1}, "x"}});
  const std::string shown = tool::run_tool("inspect " + (folder / "x.safetensors")).out;
  EXPECT_TRUE(has(shown, "file of 1 tensor in 1 file, 1 byte, 1 parameter\n")) << shown;
  const std::string convert = "convert " + (folder / "x.safetensors") + " ";
  const std::string dry =
      tool::run_tool(convert + (folder / "y.safetensors") + " --to f32 --dry-run").out;
  EXPECT_TRUE(has(dry, "\n1 tensor, 1 byte -> 1 byte\n")) << dry;
  EXPECT_TRUE(has(dry, " bytes in 1 file would be written")) << dry;
  write_checkpoint(folder, "b.safetensors", {{"a", StDType::kF32, {1}, bytes_of<float>({1e9f})}});
  const tool::ToolRun odd = tool::run_tool("convert " + (folder / "b.safetensors") + " " +
                                           (folder / "c.safetensors") + " --to f16");
  EXPECT_TRUE(has(odd.err, "a: 1 number beyond the target's range\n")) << odd.err;
  EXPECT_TRUE(has(odd.out, "\n(!) errors leave out numbers that are not finite")) << odd.out;
}

TEST(Inspect, ShowsTheLargestMagnitudeWhateverItIs) {
  const TestFolder folder;
  const float nan = std::nanf("");
  write_checkpoint(folder, "x.safetensors",
                   {{"all_inf", StDType::kF32, {2}, bytes_of<float>({-INFINITY, INFINITY})},
                    {"with_inf", StDType::kF32, {3}, bytes_of<float>({2, nan, -INFINITY})},
                    {"with_nan", StDType::kF32, {4}, bytes_of<float>({nan, -3, nan, 1})},
                    {"all_nan", StDType::kF32, {1}, bytes_of<float>({nan})},
                    {"zero", StDType::kF32, {1}, bytes_of<float>({0})},
                    {"none", StDType::kF32, {0}, ""},
                    {"layer.0", StDType::kF32, {1}, bytes_of<float>({nan})},
                    {"layer.1", StDType::kF32, {1}, bytes_of<float>({5})}});
  const std::string shown = tool::run_tool("inspect " + (folder / "x.safetensors")).out;
  std::map<std::string, std::string> last_of;
  std::istringstream lines(shown);
  for (std::string line; std::getline(lines, line);) {
    last_of[line.substr(0, line.find(' '))] = line.substr(line.rfind(' ') + 1);
  }
  for (const auto& [name, max_abs] : std::map<std::string, std::string>{{"all_inf", "inf"},
                                                                        {"with_inf", "inf"},
                                                                        {"with_nan", "3"},
                                                                        {"all_nan", "nan"},
                                                                        {"zero", "0"},
                                                                        {"none", "0"},
                                                                        {"layer.{0,", "5"}}) {
    EXPECT_EQ(last_of[name], max_abs) << name << "\n" << shown;
  }
}

TEST(Inspect, ShowsNoControlCharacterOfAName) {
  const TestFolder folder;
  write_checkpoint(folder, "x.safetensors", {f32_tensor("a\xc2\x9b\xc3\xa9.bias", {2})});
  for (const std::string options : {" --json", "", " --every-tensor"}) {
    const std::string shown = tool::run_tool("inspect " + (folder / "x.safetensors") + options).out;
    EXPECT_FALSE(has(shown, "\xc2\x9b")) << shown;
    const char* name = options == " --json" ? "a\\u009b\\u00e9.bias" : "a\\xc2\\x9b\xc3\xa9.bias";
    EXPECT_TRUE(has(shown, name)) << shown;
  }
}

TEST(Inspect, RefusesWhatIsNoCheckpoint) {
  TestFolder folder;
  EXPECT_TRUE(has(error_of<std::invalid_argument>([&] { inspect(folder.path()); }),
                  "must hold .safetensors files, got none"));
  EXPECT_TRUE(has(error_of<std::invalid_argument>([&] { inspect(folder / "absent"); }),
                  "must be a .safetensors file or a folder, got nothing there"));
  folder.write("x.safetensors", "short");
  EXPECT_TRUE(has(error_of<DataError>([&] { inspect(folder / "x.safetensors"); }),
                  "must begin with 8 bytes of header length, got 5 bytes"));
}

}  // namespace
}  // namespace tilekernels
