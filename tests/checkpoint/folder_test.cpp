// Folders: shards and index, config.json, files beside them.
#include <gtest/gtest.h>

#include "checkpoint/config_json.h"
#include "checkpoint_files.h"
#include "errors.h"
#include "io/json.h"
#include "tilekernels/checkpoint.h"
#include "tilekernels/error.h"

namespace tilekernels {
namespace {

using io::Json;
using io::StDType;

constexpr char kOne[] = "model-00001-of-00002.safetensors";
constexpr char kTwo[] = "model-00002-of-00002.safetensors";
constexpr char kIndex[] = "model.safetensors.index.json";

MadeTensor scale(const std::string& name) {
  return {name, StDType::kF32, {2, 2}, bytes_of<float>({1, 2, 4, 8})};
}

class Folder : public testing::Test {
 protected:
  std::string in() const { return folder_ / "in"; }
  std::string out() const { return folder_ / "out"; }

  void given(const std::vector<MadeTensor>& one, const std::vector<MadeTensor>& two) const {
    write_checkpoint(folder_, std::string("in/") + kOne, one);
    write_checkpoint(folder_, std::string("in/") + kTwo, two);
    Json index;
    index["metadata"]["total_size"] = 1;
    index["metadata"]["total_parameters"] = 5;
    index["weight_map"] = Json::object();
    for (const MadeTensor& tensor : one) index["weight_map"][tensor.name] = kOne;
    for (const MadeTensor& tensor : two) index["weight_map"][tensor.name] = kTwo;
    folder_.write(std::string("in/") + kIndex, index.dump());
  }

  ConvertReport run(CheckpointFormat format, const std::string& out = "out") const {
    ConvertOptions options;
    options.to = format;
    options.durable = false;
    options.overwrite = true;
    return convert(in(), folder_ / out, options);
  }
  Tensors result(const char* shard, const std::string& out = "out") const {
    return read_checkpoint(folder_ / (out + "/" + shard));
  }
  Json json(const std::string& file) const { return Json::parse(folder_.read(file)); }

  TestFolder folder_;
};

TEST_F(Folder, B56ScaleInAnotherShardGivesTheSameBytes) {
  const MadeTensor weight = e4m3_tensor("a.weight", {130, 200});
  const MadeTensor other = bf16_tensor("b", {5});
  const std::vector<std::vector<MadeTensor>> cases[] = {
      {{weight, scale("a.weight_scale_inv")}, {other}},
      {{weight}, {scale("a.weight_scale_inv"), other}},
      {{scale("a.weight_scale_inv"), other}, {weight}},
  };
  std::string bytes;
  for (const auto& shards : cases) {
    given(shards[0], shards[1]);
    run(CheckpointFormat::kBF16);
    Tensors all = result(kOne);
    all.merge(result(kTwo));
    ASSERT_EQ(all.size(), 2u);
    if (bytes.empty()) bytes = all.at("a.weight").bytes;
    EXPECT_TRUE(all.at("a.weight").bytes == bytes);
    const Json index = json(std::string("out/") + kIndex);
    EXPECT_EQ(index["weight_map"].size(), 2u);
    EXPECT_EQ(index["metadata"]["total_size"], 130 * 200 * 2 + 5 * 2);
    EXPECT_EQ(index["metadata"]["total_parameters"], 5);
    for (const auto& [name, file] : index["weight_map"].items()) {
      EXPECT_EQ(result(file.get<std::string>().c_str()).count(name), 1u);
    }
  }
}

TEST_F(Folder, AShardOfNothingButScalesIsNotWritten) {
  given({e4m3_tensor("a.weight", {130, 200})}, {scale("a.weight_scale_inv")});
  const ConvertReport report = run(CheckpointFormat::kBF16);
  EXPECT_EQ(folder_.list("out"), (std::vector<std::string>{kOne, kIndex}));
  EXPECT_TRUE(has(report.warnings.at(0), kTwo));
}

TEST_F(Folder, CastToFp8ListsScalesInTheIndex) {
  given({bf16_tensor("model.layers.0.up_proj.weight", {130, 200})}, {bf16_tensor("norm", {5})});
  run(CheckpointFormat::kDeepseekFp8);
  const Json index = json(std::string("out/") + kIndex);
  EXPECT_EQ(index["weight_map"]["model.layers.0.up_proj.weight"], kOne);
  EXPECT_EQ(index["weight_map"]["model.layers.0.up_proj.weight_scale_inv"], kOne);
  EXPECT_EQ(index["metadata"]["total_size"], 130 * 200 + 4 * 4 + 10);
}

TEST_F(Folder, ContradictionsBetweenIndexAndShardsAreRefused) {
  given({bf16_tensor("a", {1})}, {bf16_tensor("b", {1})});
  const auto refused = [&](const std::string& map) {
    folder_.write(std::string("in/") + kIndex, R"({"weight_map":{)" + map + "}}");
    return error_of<DataError>([&] { run(CheckpointFormat::kF32); });
  };
  const std::string one = kOne, two = kTwo;
  EXPECT_TRUE(has(refused("\"a\":\"" + two + "\",\"b\":\"" + two + "\""),
                  "tensor \"a\" must lie in " + two + ", got none of that name"));
  EXPECT_TRUE(has(refused("\"a\":\"" + two + "\",\"b\":\"" + one + "\""),
                  "tensor \"a\" must lie in " + two + ", got it in " + one));
  write_checkpoint(folder_, std::string("in/") + kTwo, {bf16_tensor("a", {1})});
  EXPECT_TRUE(has(refused("\"a\":\"" + one + "\",\"b\":\"" + two + "\""),
                  "a tensor must lie in one shard, got \"a\" in"));
  EXPECT_FALSE(folder_.exists("out"));
  folder_.write(std::string("in/") + kIndex, R"({"weight_map":{"a":"absent.safetensors"}})");
  EXPECT_THROW(run(CheckpointFormat::kF32), BackendError);
}

TEST_F(Folder, TensorsThatTheIndexForgotAreKept) {
  given({bf16_tensor("a", {1}), bf16_tensor("c", {1})}, {bf16_tensor("b", {1})});
  folder_.write(std::string("in/") + kIndex,
                std::string(R"({"weight_map":{"a":")") + kOne + R"(","b":")" + kTwo + "\"}}");
  const ConvertReport report = run(CheckpointFormat::kF32);
  EXPECT_TRUE(has(report.warnings.at(0), "\"c\""));
  EXPECT_EQ(result(kOne).count("c"), 1u);
  EXPECT_EQ(json(std::string("out/") + kIndex)["weight_map"]["c"], kOne);
}

constexpr char kDeepseekConfig[] = R"({
  "architectures": ["DeepseekV3ForCausalLM"],
  "zeta": {"kept": [1, 2.5, null]},
  "torch_dtype": "bfloat16",
  "text_config": {"dtype": "bfloat16", "hidden_size": 4},
  "vision_config": {"torch_dtype": "float32"},
  "quantization_config": {
    "activation_scheme": "dynamic", "fmt": "e4m3", "quant_method": "fp8",
    "weight_block_size": [128, 128]},
  "alpha": "é"
})";

TEST_F(Folder, B64ConfigFollowsTheTensors) {
  given({e4m3_tensor("m.weight", {130, 200}), scale("m.weight_scale_inv")},
        {bf16_tensor("lm_head.weight", {4, 4}), bf16_tensor("m.gate.weight", {4, 4})});
  folder_.write("in/config.json", kDeepseekConfig);
  run(CheckpointFormat::kF16);
  Json expected = Json::parse(kDeepseekConfig);
  expected.erase("quantization_config");
  expected["torch_dtype"] = "float16";
  expected["text_config"]["dtype"] = "float16";
  expected["vision_config"]["torch_dtype"] = "float16";
  EXPECT_EQ(json("out/config.json").dump(), expected.dump());  // the order too

  // And back: the block returns, with the matrices that stay plain.
  ConvertOptions options;
  options.to = CheckpointFormat::kDeepseekFp8;
  options.durable = false;
  convert(out(), folder_ / "again", options);
  const Json quant = json("again/config.json")["quantization_config"];
  EXPECT_EQ(quant["activation_scheme"], "dynamic");
  EXPECT_EQ(quant["fmt"], "e4m3");
  EXPECT_EQ(quant["quant_method"], "fp8");
  EXPECT_EQ(quant["weight_block_size"], (Json{128, 128}));
  EXPECT_EQ(quant["modules_to_not_convert"], (Json{"lm_head", "m.gate"}));
  EXPECT_EQ(json("again/config.json")["torch_dtype"], "float16");
}

TEST_F(Folder, B64NestedQuantizationConfigIsFound) {
  given({e4m3_tensor("m.weight", {130, 200}), scale("m.weight_scale_inv")},
        {bf16_tensor("b", {1})});
  folder_.write("in/config.json",
                R"({"text_config":{"quantization_config":{"quant_method":"fp8"},"x":1}})");
  run(CheckpointFormat::kBF16);
  EXPECT_EQ(json("out/config.json").dump(), R"({"text_config":{"x":1}})");
}

TEST_F(Folder, B64AClaimStaysWhileCodesStay) {
  given({e4m3_tensor("m.weight", {130, 200}), scale("m.weight_scale_inv"),
         e4m3_tensor("n.weight", {130, 200}), scale("n.weight_scale_inv")},
        {bf16_tensor("b", {1})});
  folder_.write("in/config.json", kDeepseekConfig);
  ConvertOptions options;
  options.to = CheckpointFormat::kBF16;
  options.ignore = {"m.weight"};
  options.durable = false;
  convert(in(), out(), options);
  const Json quant = json("out/config.json")["quantization_config"];
  EXPECT_EQ(quant["quant_method"], "fp8");
  EXPECT_EQ(quant["modules_to_not_convert"], (Json{"n"}));
}

// New codes have plain f32 scales in blocks of 128 x 128: an old claim must not speak for them.
TEST_F(Folder, B64AnOldClaimDoesNotSpeakForNewCodes) {
  given({e4m3_tensor("old.weight", {130, 200}), scale("old.weight_scale_inv")},
        {bf16_tensor("new.weight", {256, 128})});
  folder_.write("in/config.json", R"({"quantization_config":{"quant_method":"fp8","fmt":"e4m3",
      "weight_block_size":[128,128],"scale_fmt":"ue8m0"}})");
  run(CheckpointFormat::kDeepseekFp8);
  const Json quant = json("out/config.json")["quantization_config"];
  EXPECT_FALSE(quant.contains("scale_fmt"));
  EXPECT_EQ(quant["weight_block_size"], Json({128, 128}));
}

TEST_F(Folder, B64IgnoredCodesInOtherBlocksBesideNewOnesAreRefused) {
  given({e4m3_tensor("old.weight", {128, 128}), scale("old.weight_scale_inv")},
        {bf16_tensor("new.weight", {256, 128})});
  folder_.write("in/config.json",
                R"({"quantization_config":{"quant_method":"fp8","weight_block_size":[64,64]}})");
  ConvertOptions options;
  options.to = CheckpointFormat::kDeepseekFp8;
  options.ignore = {"old.weight"};
  EXPECT_THROW(convert(in(), out(), options), Unsupported);
  EXPECT_FALSE(folder_.exists("out"));
}

// A plain tensor that is narrowed must not make the cast backs beside it be measured.
TEST_F(Folder, OnlyWhatIsAskedForIsMeasured) {
  given({e4m3_tensor("a.weight", {130, 200}), scale("a.weight_scale_inv"), f32_tensor("n", {8})},
        {bf16_tensor("b", {5})});
  const ConvertReport report = run(CheckpointFormat::kBF16);
  for (const TensorReport& tensor : report.tensors) {
    EXPECT_EQ(tensor.error.has_value(), tensor.action == TensorAction::kConverted) << tensor.name;
  }
}

TEST_F(Folder, ForeignQuantizationIsRefused) {
  given({bf16_tensor("a", {1})}, {bf16_tensor("b", {1})});
  folder_.write("in/config.json", R"({"quantization_config":{"quant_method":"awq"}})");
  EXPECT_TRUE(has(error_of<Unsupported>([&] { run(CheckpointFormat::kF32); }),
                  "quant_method must be \"fp8\", the only one known here, got \"awq\""));
  folder_.write("in/config.json",
                R"({"quantization_config":{"quant_method":"fp8","weight_block_size":[0,128]}})");
  EXPECT_TRUE(has(error_of<DataError>([&] { run(CheckpointFormat::kF32); }),
                  "weight_block_size must be two numbers from 1 to 2^20, got [0,128]"));
  folder_.write("in/config.json", "{\"a\":1,\"a\":2}");
  EXPECT_TRUE(has(error_of<DataError>([&] { run(CheckpointFormat::kF32); }), "\"a\" twice"));
}

TEST_F(Folder, OtherBlockSizesAreCastBackAsClaimed) {
  const MadeTensor weight{"m.weight", StDType::kF8E4M3, {3, 4}, std::string(12, '\x38')};
  given({weight, {"m.weight_scale_inv", StDType::kF32, {2, 2}, bytes_of<float>({1, 2, 4, 8})}},
        {bf16_tensor("b", {1})});
  folder_.write("in/config.json",
                R"({"quantization_config":{"quant_method":"fp8","weight_block_size":[2,3]}})");
  run(CheckpointFormat::kF32);
  EXPECT_EQ(values_of<float>(result(kOne).at("m.weight")),
            (std::vector<float>{1, 1, 1, 2, 1, 1, 1, 2, 4, 4, 4, 8}));
}

TEST_F(Folder, B65TiedEmbeddingsAreNotedNotInvented) {
  const auto warnings = [&](const char* config, const std::vector<MadeTensor>& tensors) {
    given(tensors, {bf16_tensor("b", {1})});
    folder_.write("in/config.json", config);
    std::string all;
    for (const std::string& warning : run(CheckpointFormat::kF32).warnings) all += warning + "\n";
    return all;
  };
  const MadeTensor embedding = bf16_tensor("model.embed_tokens.weight", {4, 4});
  const MadeTensor head = bf16_tensor("lm_head.weight", {4, 4});
  EXPECT_EQ(warnings(R"({"tie_word_embeddings":true})", {embedding}), "");
  EXPECT_EQ(result(kOne).size(), 1u);
  EXPECT_TRUE(has(warnings(R"({"tie_word_embeddings":true})", {embedding, head}),
                  "tie_word_embeddings = true, yet there is an lm_head.weight"));
  EXPECT_EQ(result(kOne).at("lm_head.weight").dtype, StDType::kF32);
  EXPECT_TRUE(has(warnings(R"({"tie_word_embeddings":false})", {embedding}),
                  "tie_word_embeddings = false, yet there is no lm_head.weight"));
  EXPECT_EQ(result(kOne).size(), 1u);
  EXPECT_TRUE(has(warnings(R"({"text_config":{"tie_word_embeddings":false}})", {embedding}),
                  "no lm_head.weight"));
}

TEST_F(Folder, OtherFilesAreCopiedAndNoLinkLeadsOut) {
  given({bf16_tensor("a", {1})}, {bf16_tensor("b", {1})});
  folder_.write("secret", "secret");
  folder_.write("in/tokenizer.json", "{}");
  folder_.write("in/sub/deep/x.txt", std::string(3000000, 'x'));
  folder_.write("in/.gitattributes", "hidden");
  folder_.write("in/.git/config", "hidden");
  folder_.write("in/extra.safetensors", "not in the index");
  folder_.write("in/empty", "");
  std::filesystem::create_symlink("../secret", in() + "/leak.txt");
  std::filesystem::create_symlink("..", in() + "/leak");
  std::filesystem::create_symlink("tokenizer.json", in() + "/inside.json");
  std::filesystem::create_symlink("nowhere", in() + "/dangling");
  ConvertOptions options;
  options.to = CheckpointFormat::kF32;
  options.dry_run = true;
  const ConvertReport forecast = convert(in(), out(), options);
  EXPECT_FALSE(folder_.exists("out"));
  options.dry_run = false;
  const ConvertReport report = convert(in(), out(), options);
  EXPECT_EQ(folder_.list("out"), (std::vector<std::string>{"empty", "inside.json", kOne, kTwo,
                                                           kIndex, "sub", "tokenizer.json"}));
  EXPECT_EQ(folder_.read("out/inside.json"), "{}");
  EXPECT_FALSE(std::filesystem::is_symlink(out() + "/inside.json"));
  EXPECT_EQ(folder_.read("out/sub/deep/x.txt").size(), 3000000u);
  std::string all;
  for (const std::string& warning : report.warnings) all += warning + "\n";
  EXPECT_TRUE(has(all, "\"leak.txt\" is not copied: it is a link out of the folder"));
  EXPECT_TRUE(has(all, "\"leak\" is not copied"));
  EXPECT_TRUE(has(all, "\"dangling\" is not copied"));
  EXPECT_TRUE(has(all, "\"extra.safetensors\" is not copied"));
  // The forecast named every file with its size.
  int64_t bytes = 0;
  for (const OutputFile& file : forecast.files) {
    EXPECT_EQ(static_cast<int64_t>(std::filesystem::file_size(out() + "/" + file.name)), file.bytes)
        << file.name;
    bytes += file.bytes;
  }
  EXPECT_EQ(forecast.files.size(), 7u);
  EXPECT_EQ(forecast.bytes_written, bytes);
  EXPECT_EQ(report.bytes_written, bytes);
}

// Shards, index and config.json are read through links wherever they lead; the output has none.
TEST_F(Folder, LinksAreFollowedForReadingOnly) {
  given({bf16_tensor("a", {3})}, {bf16_tensor("b", {3})});
  folder_.write("in/config.json", "{}");
  std::filesystem::create_directory(folder_ / "links");
  for (const char* file : {kOne, kTwo, kIndex, "config.json"}) {
    std::filesystem::create_symlink(in() + "/" + file, folder_ / "links/" + file);
  }
  std::map<std::string, std::string> before;
  for (const std::string& file : folder_.list("in")) before[file] = folder_.read("in/" + file);
  ConvertOptions options;
  options.to = CheckpointFormat::kF32;
  convert(folder_ / "links", out(), options);
  options.to = CheckpointFormat::kF16;
  options.overwrite = true;
  convert(folder_ / "links", out(), options);
  for (const std::string& file : folder_.list("out")) {
    EXPECT_FALSE(std::filesystem::is_symlink(out() + "/" + file)) << file;
  }
  for (const auto& [file, bytes] : before) EXPECT_TRUE(folder_.read("in/" + file) == bytes) << file;
  EXPECT_EQ(inspect(folder_ / "links").tensors.size(), 2u);
}

TEST_F(Folder, AConfigThatIsNoObjectIsRefused) {
  given({bf16_tensor("a", {1})}, {bf16_tensor("b", {1})});
  for (const auto& [text, type] : {std::pair("[]", "array"), {"null", "null"}, {"3", "number"}}) {
    folder_.write("in/config.json", text);
    const std::string what = error_of<DataError>([&] { run(CheckpointFormat::kF32); });
    EXPECT_TRUE(
        has(what, "/config.json: the file must hold a JSON object, got " + std::string(type)))
        << what;
    EXPECT_THROW(inspect(in()), DataError);
  }
  EXPECT_FALSE(folder_.exists("out"));
}

TEST_F(Folder, TheLinksOfADownloadCacheAreFollowed) {
  write_checkpoint(folder_, "models--x/blobs/b1.safetensors", {bf16_tensor("a", {3})});
  folder_.write("models--x/blobs/b2", "tokens");
  std::filesystem::create_directories(folder_ / "models--x/snapshots/rev");
  const std::string snapshot = folder_ / "models--x/snapshots/rev";
  std::filesystem::create_symlink("../../blobs/b1.safetensors", snapshot + "/model.safetensors");
  std::filesystem::create_symlink("../../blobs/b2", snapshot + "/vocab.txt");
  ConvertOptions options;
  options.to = CheckpointFormat::kF32;
  convert(snapshot, out(), options);
  EXPECT_EQ(folder_.list("out"), (std::vector<std::string>{"model.safetensors", "vocab.txt"}));
}

TEST_F(Folder, RoundTripOfPlainFormatsIsExact) {
  given({bf16_tensor("a", {300, 7})}, {bf16_tensor("b", {1})});
  run(CheckpointFormat::kF32);
  ConvertOptions options;
  options.to = CheckpointFormat::kBF16;
  convert(out(), folder_ / "back", options);
  EXPECT_TRUE(result(kOne, "back").at("a") == bf16_tensor("a", {300, 7}));
  EXPECT_EQ(folder_.read(std::string("back/") + kOne), folder_.read(std::string("in/") + kOne));
}

}  // namespace
}  // namespace tilekernels
