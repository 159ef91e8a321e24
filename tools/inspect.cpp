// tilekernels inspect: the tensors, formats and scales of a checkpoint, and what is suspicious.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "commands.h"
#include "groups.h"
#include "printable.h"
#include "progress.h"
#include "tilekernels/checkpoint.h"

namespace tilekernels::tool {
namespace {

struct Options {
  std::string path;
  bool no_values = false;
  bool every = false;
  bool json = false;
  bool quiet = false;
};

constexpr size_t kShownFindings = 50;

std::string short_number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.4g", value);
  return text;
}

int64_t numel(const TensorInfo& tensor) {
  int64_t count = 1;
  for (const int64_t extent : tensor.shape) count *= extent;
  return count;
}

// Of a tensor's numbers, NaN left out; NaN where nothing else is there.
double max_abs(const TensorInfo& tensor) {
  const ValueCounts& values = *tensor.values;
  if (values.num_inf > 0) return INFINITY;
  return values.num_nan > 0 && values.num_nan == numel(tensor) ? NAN : values.max_abs;
}

void print_formats(const CheckpointInfo& info) {
  struct Sum {
    int64_t tensors = 0;
    int64_t parameters = 0;
    int64_t bytes = 0;
  };
  std::map<std::string, Sum> formats;
  for (const TensorInfo& tensor : info.tensors) {
    Sum& sum = formats[tensor.scaled_tensor.empty() ? tensor.format : tensor.dtype + " scales"];
    ++sum.tensors;
    sum.parameters += numel(tensor);
    sum.bytes += tensor.bytes;
  }
  std::vector<std::vector<std::string>> rows;
  for (const auto& [format, sum] : formats) {
    const double share =
        info.bytes > 0 ? 100.0 * static_cast<double>(sum.bytes) / static_cast<double>(info.bytes)
                       : 0;
    char percent[16];
    std::snprintf(percent, sizeof percent, "%.1f %%", share);
    rows.push_back({format, std::to_string(sum.tensors), std::to_string(sum.parameters),
                    human_bytes(sum.bytes), percent});
  }
  std::printf("\nFormats\n");
  print_table({"format", ">tensors", ">numbers", ">size", ">share"}, rows);
}

void print_tensors(const CheckpointInfo& info, bool every) {
  struct Sum {
    const TensorInfo* first = nullptr;
    int64_t count = 0;
    int64_t bytes = 0;
    double max_abs = NAN;
    bool has_values = false;
  };
  NameGroups groups;
  std::vector<Sum> sums;
  for (const TensorInfo& tensor : info.tensors) {
    const std::string key =
        every ? tensor.name
              : tensor.format + shape_text(tensor.shape) + tensor.scaled_tensor.substr(0, 1);
    const size_t g = groups.place(tensor.name, key);
    if (g == sums.size()) sums.emplace_back();
    Sum& sum = sums[g];
    if (sum.first == nullptr) sum.first = &tensor;
    ++sum.count;
    sum.bytes += tensor.bytes;
    if (tensor.values) {
      sum.max_abs = std::fmax(sum.max_abs, max_abs(tensor));
      sum.has_values = true;
    }
  }
  std::vector<std::vector<std::string>> rows;
  for (size_t g = 0; g < sums.size(); ++g) {
    const Sum& sum = sums[g];
    rows.push_back({groups.label(g), sum.count == 1 ? "" : std::to_string(sum.count),
                    shape_text(sum.first->shape), sum.first->format, human_bytes(sum.bytes),
                    sum.has_values ? short_number(sum.max_abs) : ""});
  }
  std::printf("\nTensors (layers with equal tensors share a line; {0-5} are their numbers)\n");
  print_table({"name", ">count", "shape", "format", ">size", ">max |x|"}, rows);
}

void print_findings(const CheckpointInfo& info) {
  if (info.findings.empty()) {
    std::printf("\nNothing suspicious.\n");
    return;
  }
  std::printf("\nSuspicious (%zu)\n", info.findings.size());
  for (size_t i = 0; i < std::min(kShownFindings, info.findings.size()); ++i) {
    const Finding& finding = info.findings[i];
    std::printf("  %s%s%s\n", printable(finding.tensor).c_str(), finding.tensor.empty() ? "" : ": ",
                printable(finding.text).c_str());
  }
  if (info.findings.size() > kShownFindings) {
    std::printf("  and %zu more (--json lists all)\n", info.findings.size() - kShownFindings);
  }
}

nlohmann::ordered_json to_json(const CheckpointInfo& info) {
  using Json = nlohmann::ordered_json;
  Json out = {{"path", info.path},        {"kind", info.kind},
              {"model", info.model},      {"quantization", info.quantization},
              {"bytes", info.bytes},      {"parameters", info.num_parameters},
              {"shards", Json::array()},  {"tensors", Json::array()},
              {"findings", Json::array()}};
  for (const OutputFile& shard : info.shards) {
    out["shards"].push_back({{"name", shard.name}, {"bytes", shard.bytes}});
  }
  for (const TensorInfo& tensor : info.tensors) {
    Json row = {{"name", tensor.name},   {"shard", tensor.shard}, {"dtype", tensor.dtype},
                {"shape", tensor.shape}, {"bytes", tensor.bytes}, {"format", tensor.format}};
    if (!tensor.scale.empty()) row["scale"] = tensor.scale;
    if (!tensor.scaled_tensor.empty()) row["scales"] = tensor.scaled_tensor;
    if (tensor.values) {
      row["nan"] = tensor.values->num_nan;
      row["inf"] = tensor.values->num_inf;
      row["zero"] = tensor.values->num_zero;
      row["max_abs"] = tensor.values->max_abs;
    }
    out["tensors"].push_back(std::move(row));
  }
  for (const Finding& finding : info.findings) {
    out["findings"].push_back({{"tensor", finding.tensor}, {"text", finding.text}});
  }
  return out;
}

int run_inspect(const Options& options) {
  CheckpointInfo info;
  {
    ShownProgress progress(options.quiet || options.json);
    info = inspect(options.path, {!options.no_values}, &progress);
  }
  if (options.json) {
    std::fputs(json_text(to_json(info)).c_str(), stdout);
    return kSuccess;
  }
  std::printf("%s: %s of %s in %s, %s, %s\n", printable(info.path).c_str(), info.kind.c_str(),
              counted(std::ssize(info.tensors), "tensor").c_str(),
              counted(std::ssize(info.shards), "file").c_str(), human_bytes(info.bytes).c_str(),
              counted(info.num_parameters, "parameter").c_str());
  if (!info.model.empty()) std::printf("model: %s\n", printable(info.model).c_str());
  std::printf("quantization by config.json: %s\n", printable(info.quantization).c_str());
  print_formats(info);
  print_tensors(info, options.every);
  print_findings(info);
  return kSuccess;
}

}  // namespace

Command inspect_command(CLI::App& app) {
  CLI::App* parser = app.add_subcommand(
      "inspect", "Show the tensors, formats and scales of a checkpoint and what is suspicious.");
  const auto options = std::make_shared<Options>();
  parser->add_option("PATH", options->path, "A .safetensors file, or a folder with such files")
      ->required();
  parser->add_flag("--no-values", options->no_values, "Read headers only, not the numbers");
  parser->add_flag("--every-tensor", options->every, "One line a tensor, layers not joined");
  parser->add_flag("--json", options->json, "Print everything as JSON");
  parser->add_flag("-q,--quiet", options->quiet, "No progress");
  return {parser, [options] { return run_inspect(*options); }};
}

}  // namespace tilekernels::tool
