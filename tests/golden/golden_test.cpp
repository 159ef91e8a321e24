// The recorded outputs of TileKernels' CUDA kernels, compared byte for byte with every backend.
//
// A file holds the cases of an op, described by the JSON under "cases" in its metadata: arguments,
// and for each tensor its key, dtype, shape and stride. Bytes that the recorded kernel never wrote
// are marked; ours are 0 there. The groups with NaN or Inf of a few cases are the one intended
// difference: kBadGroups.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "io/file.h"
#include "io/safetensors.h"
#include "paths.h"
#include "tilekernels/config.h"
#include "tilekernels/moe.h"
#include "tilekernels/quant.h"

namespace tilekernels {
namespace {

using Json = nlohmann::json;
using Bytes = std::vector<uint8_t>;
using Rows = std::set<int64_t>;

// Files, the cases that each must hold, and how many of these are of an op still to come.
struct Recorded {
  const char* file;
  size_t cases;
  size_t later;
};
constexpr Recorded kRecorded[] = {
    {"topk_gate", 16, 0},
    {"per_token_cast", 97, 0},
    {"per_token_cast_requant", 7, 0},
    {"cast_back", 36, 0},
    {"per_block_cast", 19, 0},
    {"per_token_cast_variants", 24, 12},
    {"normalize_weight", 5, 0},
    {"moe_topk_gate_forward", 27, 0},
    {"moe_topk_gate_backward", 4, 0},
};
constexpr char kLaterOp[] = "per_token_cast_and_cast_back";

// Cases with NaN and Inf in the input. A group of them has the scaling factor NaN and codes 0x7F,
// or 0 in e2m1; the recorded kernel dropped NaN and divided by Inf. Rows where that shows.
struct BadGroups {
  const char* name;
  Rows out;
  Rows out_sf;
};
const BadGroups kBadGroups[] = {
    {"c021", {0, 1, 2}, {0, 1, 2, 3}},    {"c067", {0, 1, 2}, {0, 1, 2, 3}},
    {"c022", {0, 1, 2}, {2, 3}},          {"c068", {0, 1, 2}, {2, 3}},
    {"c044", {0, 1, 2, 3}, {0, 1, 2, 3}}, {"c090", {0, 1, 2, 3}, {0, 1, 2, 3}},
    {"c045", {0, 1, 2, 3}, {2, 3}},       {"c091", {0, 1, 2, 3}, {2, 3}},
};

const BadGroups* bad_groups(const std::string& file, const std::string& name) {
  if (file != "per_token_cast") return nullptr;
  const auto* found = std::find_if(std::begin(kBadGroups), std::end(kBadGroups),
                                   [&](const BadGroups& bad) { return name == bad.name; });
  return found == std::end(kBadGroups) ? nullptr : found;
}

// A tensor as it was recorded: logical bytes, row-major.
struct Logical {
  TensorSpec spec;
  Bytes bytes;
  Bytes unwritten;  // empty, or 1 for each byte that was not written
};

struct Case {
  std::string name;
  Json args;
  std::map<std::string, Logical> inputs;
  std::map<std::string, Logical> outputs;
};

DType dtype_of(const std::string& label) {
  static const std::map<std::string, DType> kDTypes = {
      {"float32", DType::kF32}, {"bfloat16", DType::kBF16}, {"float8_e4m3fn", DType::kE4M3},
      {"int8", DType::kE2M1x2}, {"int32", DType::kI32},     {"int64", DType::kI64},
      {"bool", DType::kBool},
  };
  return kDTypes.at(label);
}

Dims dims_of(const Json& json) {
  Dims dims;
  for (const Json& extent : json) dims.push_back(extent.get<int64_t>());
  return dims;
}

class GoldenFile {
 public:
  explicit GoldenFile(const std::string& name)
      : file_(io::File::open_read(paths::kSource + "/tests/golden/" + name + ".safetensors")),
        header_(io::read_header(file_)) {
    for (const auto& [key, value] : header_.metadata) {
      if (key == "cases") read_cases(Json::parse(value));
    }
  }

  const std::vector<Case>& cases() const { return cases_; }

 private:
  Bytes bytes_of(const std::string& key) const {
    for (const io::TensorEntry& entry : header_.tensors) {
      if (entry.name != key) continue;
      Bytes bytes(static_cast<size_t>(entry.bytes()));
      file_.read_at(header_.data_start + entry.begin, bytes.data(), entry.bytes());
      return bytes;
    }
    throw std::runtime_error("no tensor " + key);
  }

  std::map<std::string, Logical> read_tensors(const Json& json) const {
    std::map<std::string, Logical> tensors;
    for (const auto& [name, tensor] : json.items()) {
      Logical logical{
          {dims_of(tensor.at("shape")), dims_of(tensor.at("stride")), dtype_of(tensor.at("dtype"))},
          bytes_of(tensor.at("key")),
          {}};
      if (tensor.contains("unwritten")) logical.unwritten = bytes_of(tensor.at("unwritten"));
      tensors.emplace(name, std::move(logical));
    }
    return tensors;
  }

  void read_cases(const Json& json) {
    for (const Json& test : json) {
      cases_.push_back({test.at("name"), test.at("args"), read_tensors(test.at("inputs")),
                        read_tensors(test.at("outputs"))});
    }
  }

  io::File file_;
  io::Header header_;
  std::vector<Case> cases_;
};

// Calls visit(logical offset, storage offset) in bytes for every element of a tensor of rank 1
// or 2.
template <class Visit>
void for_each_element(const TensorSpec& spec, const Visit& visit) {
  const int64_t size = size_bytes(spec.dtype);
  const int64_t cols = spec.rank() == 2 ? spec.size(1) : 1;
  const int64_t col_stride = spec.rank() == 2 ? spec.stride(1) : 1;
  for (int64_t m = 0; m < spec.size(0); ++m) {
    for (int64_t k = 0; k < cols; ++k) {
      visit((m * cols + k) * size, (m * spec.stride(0) + k * col_stride) * size);
    }
  }
}

// The tensor as it lay in memory, gaps filled with bytes that no result may show.
Tensor rebuild(const Logical& logical) {
  Tensor tensor(logical.spec);
  auto* to = static_cast<uint8_t*>(tensor.data());
  std::memset(to, 0xFF, static_cast<size_t>(logical.spec.storage_bytes()));
  const auto size = static_cast<size_t>(size_bytes(logical.spec.dtype));
  for_each_element(logical.spec, [&](int64_t at, int64_t stored) {
    std::memcpy(to + stored, logical.bytes.data() + at, size);
  });
  return tensor;
}

Bytes logical_bytes(const Tensor& tensor) {
  const TensorSpec& spec = tensor.spec();
  const auto size = static_cast<size_t>(size_bytes(spec.dtype));
  Bytes bytes(static_cast<size_t>(spec.numel()) * size);
  const auto* from = static_cast<const uint8_t*>(tensor.data());
  for_each_element(spec, [&](int64_t at, int64_t stored) {
    std::memcpy(bytes.data() + at, from + stored, size);
  });
  return bytes;
}

// ------------------------------ arguments

BlockSize block_of(const Json& json) { return {json.at(0).get<int>(), json.at(1).get<int>()}; }

DType format_of(const Json& args) {
  static const std::map<std::string, DType> kFormats = {{"e4m3", DType::kE4M3},
                                                        {"e2m1", DType::kE2M1x2},
                                                        {"bf16", DType::kBF16},
                                                        {"fp32", DType::kF32}};
  return kFormats.at(args.at("fmt"));
}

CastOptions options_of(const Json& args) {
  const bool col = args.value("use_tma_aligned_col_major_sf", false);
  const bool round = args.value("round_sf", false);
  const bool packed = args.value("use_packed_ue8m0", false);
  SfFormat sf;
  if (args.value("use_e4m3_sf", false)) {
    sf.kind = SfKind::kE4M3;
  } else if (round) {
    sf.kind = packed ? SfKind::kUE8M0 : SfKind::kRoundedF32;
  }
  if (packed) {
    sf.layout = col ? SfLayout::kColPacked : SfLayout::kRowPacked;
  } else {
    sf.layout = col ? SfLayout::kCol : SfLayout::kRow;
  }
  return {.sf = sf, .amax_clamp = {}};
}

SfSource source_of(const Json& args) {
  static const std::map<std::string, SfLayout> kLayouts = {
      {"f32", SfLayout::kRow},           {"col", SfLayout::kCol},
      {"packrow", SfLayout::kRowPacked}, {"packcol", SfLayout::kColPacked},
      {"packm", SfLayout::kTokenPacked}, {"e4m3", SfLayout::kRow},
  };
  return {block_of(args.at("x_block_size")), kLayouts.at(args.at("in_sf"))};
}

// ------------------------------ calls

using Results = std::map<std::string, Tensor>;

Results gate_results(const Case& test, const std::map<std::string, Tensor>& in, const Call& call) {
  const Json& args = test.args;
  const auto given = [&](const char* name) {
    const auto found = in.find(name);
    return found == in.end() ? std::nullopt : std::optional<TensorView>(found->second.view());
  };
  const MoeTopkGateOptions options{
      .use_shared_as_routed = args.value("use_shared_as_routed", false),
      .num_shared_experts = args.value("num_shared_experts", 0),
      .routed_scaling_factor = args.at("routed_scaling_factor").get<float>(),
      .ep_rank = args.at("ep_rank").get<int>(),
      .save_scores = args.value("scores_out", false)};
  const MoeTopkGateInputs inputs{.mask = given("mask"),
                                 .bias = given("bias"),
                                 .image_bias = given("image_bias"),
                                 .image_token_mask = given("image_token_mask"),
                                 .fix_routing_mask = given("fix_routing_mask"),
                                 .to_physical_map = given("to_physical_map"),
                                 .logical_count = given("logical_count"),
                                 .unmapped_topk_idx = given("unmapped"),
                                 .force_random = given("force_random")};
  const RoutingTensor routing =
      moe_topk_gate_forward(in.at("logits"), args.at("num_topk").get<int>(), options, inputs, call);
  Results results = {{"topk_idx", routing.topk_idx}, {"topk_weights", routing.topk_weights}};
  if (routing.scores) results["scores"] = *routing.scores;
  if (in.contains("unmapped")) results["unmapped"] = in.at("unmapped");
  return results;
}

Results gate_backward_results(const Case& test, const std::map<std::string, Tensor>& in,
                              const Call& call) {
  MoeTopkGateBackwardOptions options;
  if (in.contains("mask")) {
    options.mask = in.at("mask").view();
    options.grad_scores_sum = in.at("grad_scores_sum").view();
  }
  return {{"grad_logits",
           moe_topk_gate_backward(in.at("scores"), in.at("topk_idx"), in.at("topk_weights"),
                                  in.at("grad"), test.args.at("routed_scaling_factor").get<float>(),
                                  options, call)}};
}

Results pair_of(QuantTensor quant) {
  return {{"out", std::move(quant.data)}, {"out_sf", std::move(quant.sf)}};
}

Results run(const std::string& function, const Case& test, const Call& call) {
  std::map<std::string, Tensor> in;
  for (const auto& [name, logical] : test.inputs) in[name] = rebuild(logical);
  const Json& args = test.args;
  if (function == "topk_gate") {
    return {{"topk_idx", topk_gate(in.at("scores"), args.at("num_topk"), call)}};
  }
  if (function == "normalize_weight") {
    const NormalizedWeights normalized = normalize_weight(in.at("topk_weights"), call);
    return {{"denominator", normalized.denominator}, {"normalized", normalized.normalized_weights}};
  }
  if (function == "moe_topk_gate_forward") return gate_results(test, in, call);
  if (function == "moe_topk_gate_backward") return gate_backward_results(test, in, call);
  const Tensor& x = in.at("x");
  const DType fmt = format_of(args);
  if (function == "cast_back") {
    return {{"out", cast_back({x, in.at("x_sf")}, source_of(args), fmt, call)}};
  }
  const CastOptions options = options_of(args);
  if (function.starts_with("per_block_cast")) {
    const BlockSize block = block_of(args.at("block_size"));
    if (function == "per_block_cast") {
      return pair_of(per_block_cast(x, fmt, block, options, call));
    }
    if (function == "per_block_cast_with_sf_only") {
      return {{"out_sf", per_block_cast_with_sf_only(x, fmt, block, options, call)}};
    }
    if (function == "per_block_cast_with_precomputed_sf") {
      return {{"out", per_block_cast_with_precomputed_sf(x, fmt, block, in.at("sf"), call)}};
    }
  }
  const int num_per_channels = args.at("num_per_channels");
  if (function == "per_token_cast") {
    return pair_of(per_token_cast(x, fmt, num_per_channels, options, call));
  }
  if (function == "per_token_cast_requant") {
    return pair_of(
        per_token_cast({x, in.at("x_sf")}, source_of(args), fmt, num_per_channels, options, call));
  }
  if (function == "per_token_cast_with_sf_only") {
    return {{"out_sf", per_token_cast_with_sf_only(x, fmt, num_per_channels, options, call)}};
  }
  if (function == "per_token_cast_with_precomputed_sf") {
    return {
        {"out", per_token_cast_with_precomputed_sf(x, fmt, num_per_channels, in.at("sf"), call)}};
  }
  throw std::runtime_error("no such function: " + function);
}

// ------------------------------ comparison

// Rows of `got` that differ from the recorded tensor; unwritten bytes must be 0.
Rows different_rows(const Logical& want, const Bytes& got) {
  Rows rows;
  const size_t row_bytes = got.size() / static_cast<size_t>(want.spec.size(0));
  for (size_t i = 0; i < got.size(); ++i) {
    const bool written = want.unwritten.empty() || want.unwritten[i] == 0;
    if (!written) {
      EXPECT_EQ(got[i], 0) << "padding byte " << i;
    } else if (got[i] != want.bytes[i]) {
      rows.insert(static_cast<int64_t>(i / row_bytes));
    }
  }
  return rows;
}

bool is_finite(const Logical& x, size_t i) {
  if (x.spec.dtype == DType::kF32) {
    uint32_t bits;
    std::memcpy(&bits, x.bytes.data() + 4 * i, 4);
    return (bits & 0x7F800000) != 0x7F800000;
  }
  uint16_t bits;
  std::memcpy(&bits, x.bytes.data() + 2 * i, 2);
  return (bits & 0x7F80) != 0x7F80;
}

Bytes slice(const Bytes& bytes, size_t begin, size_t size) {
  const auto at = bytes.begin() + static_cast<ptrdiff_t>(begin);
  return {at, at + static_cast<ptrdiff_t>(size)};
}

// A case of kBadGroups: bad groups hold what they must, all others the recorded bytes, and the
// recorded bytes differ in just the rows that the table names.
void compare_bad_groups(const Case& test, const BadGroups& bad, const Bytes& out,
                        const Bytes& out_sf) {
  const Logical& x = test.inputs.at("x");
  const Logical& want = test.outputs.at("out");
  const Logical& want_sf = test.outputs.at("out_sf");
  EXPECT_EQ(different_rows(want, out), bad.out);
  EXPECT_EQ(different_rows(want_sf, out_sf), bad.out_sf);

  const auto num_tokens = static_cast<size_t>(x.spec.size(0));
  const auto hidden = static_cast<size_t>(x.spec.size(1));
  const auto group = test.args.at("num_per_channels").get<size_t>();
  const bool is_e2m1 = want.spec.dtype == DType::kE2M1x2;
  const size_t group_bytes = is_e2m1 ? group / 2 : group;
  const size_t sf_bytes = want_sf.spec.dtype == DType::kF32 ? 4 : 1;
  const size_t sf_pitch = out_sf.size() / num_tokens;
  const Bytes bad_sf = sf_bytes == 4 ? Bytes{0x00, 0x00, 0xC0, 0x7F} : Bytes{0xFF};
  const Bytes bad_codes(group_bytes, is_e2m1 ? 0x00 : 0x7F);
  for (size_t m = 0; m < num_tokens; ++m) {
    size_t num_bad = 0;
    for (size_t g = 0; g < hidden / group; ++g) {
      bool is_bad = false;
      for (size_t k = 0; k < group; ++k) is_bad |= !is_finite(x, m * hidden + g * group + k);
      num_bad += is_bad;
      const size_t at = (m * hidden / group + g) * group_bytes;
      const size_t sf_at = m * sf_pitch + g * sf_bytes;
      EXPECT_EQ(slice(out, at, group_bytes),
                is_bad ? bad_codes : slice(want.bytes, at, group_bytes))
          << "codes of row " << m << ", group " << g;
      EXPECT_EQ(slice(out_sf, sf_at, sf_bytes),
                is_bad ? bad_sf : slice(want_sf.bytes, sf_at, sf_bytes))
          << "scaling factor of row " << m << ", group " << g;
    }
    EXPECT_EQ(num_bad, m < 3 ? 1 : hidden / group) << "row " << m;
  }
}

// fp32 numbers >= 0: how many lie between them.
int64_t ulps_between(const Bytes& a, const Bytes& b, size_t i) {
  int32_t x;
  int32_t y;
  std::memcpy(&x, a.data() + 4 * i, 4);
  std::memcpy(&y, b.data() + 4 * i, 4);
  return std::abs(int64_t{x} - y);
}

float f32_at(const Bytes& bytes, size_t i) {
  float value;
  std::memcpy(&value, bytes.data() + 4 * i, 4);
  return value;
}

// The recorded gate takes another form of √softplus: scores, and with them weights, may differ in
// their last bits, and it loses the scores of logits below -80. Where these decide, so do the ids:
// in three rows of the extreme cases.
void compare_gate(const Case& test, std::map<std::string, Bytes>& got) {
  const bool is_extreme = test.args.value("data", "") == "extreme";
  const std::set<size_t> other_ids = is_extreme ? std::set<size_t>{1, 8, 12} : std::set<size_t>{};
  for (int64_t row : different_rows(test.outputs.at("topk_idx"), got["topk_idx"])) {
    EXPECT_TRUE(other_ids.contains(static_cast<size_t>(row))) << "ids of row " << row;
  }
  if (test.outputs.contains("unmapped")) {
    EXPECT_EQ(different_rows(test.outputs.at("unmapped"), got["unmapped"]), Rows{});
  }
  const Logical& weights = test.outputs.at("topk_weights");
  const auto num_slots = static_cast<size_t>(weights.spec.size(1));
  const auto random = test.inputs.find("force_random");
  for (size_t i = 0; i < got["topk_weights"].size() / 4; ++i) {
    const size_t row = i / num_slots;
    if (is_extreme && row == 12) continue;
    const bool is_random = random != test.inputs.end() && random->second.bytes[row] != 0;
    EXPECT_LE(ulps_between(weights.bytes, got["topk_weights"], i), is_random ? 0 : 4)
        << "weight " << i % num_slots << " of row " << row;
  }
  if (!test.outputs.contains("scores")) return;
  const Bytes& logits = test.inputs.at("logits").bytes;
  for (size_t i = 0; i < got["scores"].size() / 4; ++i) {
    const double x = f32_at(logits, i);
    const double score = f32_at(got["scores"], i);
    if (x > -80) {
      EXPECT_LE(ulps_between(test.outputs.at("scores").bytes, got["scores"], i), 3) << x;
    } else if (score != 0) {  // else a masked row
      const double exact = std::exp(x / 2);
      EXPECT_NEAR(score, exact, std::max(exact * 0x1p-22, 0x1p-149)) << x;
    }
  }
}

// The recorded gradient takes approximate divisions and exponentials: the difference relative to
// both, as the recorded package's own tests measure it. Zeros are at the same places.
void compare_gate_backward(const Case& test, const Bytes& got) {
  const Bytes& want = test.outputs.at("grad_logits").bytes;
  double difference = 0;
  double size = 0;
  for (size_t i = 0; i < got.size() / 4; ++i) {
    const double x = f32_at(got, i);
    const double y = f32_at(want, i);
    difference += (x - y) * (x - y);
    size += x * x + y * y;
    EXPECT_EQ(x == 0, y == 0) << "element " << i;
  }
  EXPECT_LT(difference, size * 1e-13);
}

void compare(const std::string& file, const Case& test, const Results& results) {
  ASSERT_EQ(results.size(), test.outputs.size());
  std::map<std::string, Bytes> got;
  for (const auto& [name, want] : test.outputs) {
    const Tensor& tensor = results.at(name);
    EXPECT_TRUE(matches(tensor.spec(), want.spec))
        << name << " is " << to_string(tensor.spec()) << ", recorded " << to_string(want.spec);
    got[name] = logical_bytes(tensor);
    ASSERT_EQ(got[name].size(), want.bytes.size()) << name;
  }
  if (file == "moe_topk_gate_forward") {
    compare_gate(test, got);
    return;
  }
  if (file == "moe_topk_gate_backward") {
    compare_gate_backward(test, got.at("grad_logits"));
    return;
  }
  if (const BadGroups* bad = bad_groups(file, test.name)) {
    compare_bad_groups(test, *bad, got.at("out"), got.at("out_sf"));
    return;
  }
  for (const auto& [name, want] : test.outputs) {
    EXPECT_EQ(different_rows(want, got.at(name)), Rows{}) << "rows of " << name << " that differ";
  }
}

void run_files(Backend backend) {
  size_t num_bad_groups = 0;
  for (const Recorded& recorded : kRecorded) {
    const GoldenFile golden(recorded.file);
    EXPECT_EQ(golden.cases().size(), recorded.cases) << recorded.file;
    size_t ran = 0;
    size_t later = 0;
    for (const Case& test : golden.cases()) {
      SCOPED_TRACE(std::string(recorded.file) + " " + test.name + " " + test.args.dump());
      const std::string function = test.args.value("fn", recorded.file);
      if (function == kLaterOp) {
        ++later;
        continue;
      }
      Backend used = Backend::kReference;
      Results results;
      ASSERT_NO_THROW(results = run(function, test, Call{.backend = backend, .ran = &used}));
      EXPECT_EQ(used, backend);
      compare(recorded.file, test, results);
      num_bad_groups += bad_groups(recorded.file, test.name) != nullptr;
      ++ran;
    }
    EXPECT_EQ(ran, recorded.cases - recorded.later) << recorded.file;
    EXPECT_EQ(later, recorded.later) << recorded.file;
    std::printf("  %s: %zu cases on %s", recorded.file, ran, std::string(name(backend)).c_str());
    if (later > 0) std::printf(", %zu of %s not run: no such op yet", later, kLaterOp);
    std::printf("\n");
  }
  EXPECT_EQ(num_bad_groups, std::size(kBadGroups));
}

bool is_available(Backend backend) { return backends()[static_cast<size_t>(backend)].available; }

TEST(Golden, Reference) { run_files(Backend::kReference); }

TEST(Golden, CpuOnEveryTarget) {
  if (!is_available(Backend::kCpu)) GTEST_SKIP() << "absent: cpu";
  for (const std::string& target : cpu_targets()) {
    SCOPED_TRACE(target);
    std::printf("%s\n", target.c_str());
    set_cpu_target(target);
    run_files(Backend::kCpu);
  }
  set_cpu_target("");
}

}  // namespace
}  // namespace tilekernels
