// tilekernels convert: a checkpoint into another number format.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>

#include "commands.h"
#include "groups.h"
#include "out_file.h"
#include "printable.h"
#include "progress.h"
#include "tilekernels/checkpoint.h"

namespace tilekernels::tool {
namespace {

struct Options {
  std::string in;
  std::string out;
  std::string to;
  std::string shard;
  std::string json;
  // DeepSeek's own names for the two paths.
  std::string in_fp8, out_bf16, in_bf16, out_fp8;
  bool no_sync = false;
  bool measure = false;
  bool no_measure = false;
  bool every = false;
  bool quiet = false;
  ConvertOptions convert;
};

void take_alias(const std::string& in, const std::string& out, const char* names,
                const char* format, Options* options) {
  if (in.empty() && out.empty()) return;
  if (in.empty() || out.empty() || !options->in.empty() || !options->out.empty()) {
    throw std::invalid_argument(std::string("[convert] ") + names +
                                " must be given together, instead of IN and OUT");
  }
  options->in = in;
  options->out = out;
  if (options->to.empty()) options->to = format;
}

// "I/N", or "auto": the rank variables of torchrun, Open MPI, MPICH and Slurm.
void take_shard(const std::string& text, ConvertOptions* options) {
  if (text.empty()) return;
  const auto number = [&](const std::string& digits) {
    if (digits.empty() || digits.size() > 6 ||
        digits.find_first_not_of("0123456789") != std::string::npos) {
      throw std::invalid_argument("[convert] shard must be I/N with 0 <= I < N, or auto, got \"" +
                                  text + "\"");
    }
    return std::stoi(digits);
  };
  if (text != "auto") {
    const size_t slash = text.find('/');
    options->rank = number(text.substr(0, slash));
    options->num_ranks = number(slash == std::string::npos ? "" : text.substr(slash + 1));
    return;
  }
  constexpr const char* kVariables[][2] = {{"RANK", "WORLD_SIZE"},
                                           {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
                                           {"PMI_RANK", "PMI_SIZE"},
                                           {"SLURM_PROCID", "SLURM_NTASKS"}};
  for (const auto& [rank, size] : kVariables) {
    if (std::getenv(rank) == nullptr || std::getenv(size) == nullptr) continue;
    options->rank = number(std::getenv(rank));
    options->num_ranks = number(std::getenv(size));
    return;
  }
  throw std::invalid_argument(
      "[convert] shard auto needs the rank variables of torchrun, mpirun or Slurm, got none");
}

std::string figure(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3g", value);
  return text;
}

void print_tensors(const ConvertReport& report, bool every) {
  struct Sum {
    const TensorReport* first = nullptr;
    int64_t count = 0;
    int64_t before = 0;
    int64_t after = 0;
    int64_t odd = 0;
    bool measured = false;
    ErrorFigures worst;
  };
  NameGroups groups;
  std::vector<Sum> sums;
  for (const TensorReport& tensor : report.tensors) {
    const std::string key =
        every ? tensor.name
              : tensor.source_format + ">" + tensor.target_format + shape_text(tensor.shape);
    const size_t g = groups.place(tensor.name, key);
    if (g == sums.size()) sums.emplace_back();
    Sum& sum = sums[g];
    if (sum.first == nullptr) sum.first = &tensor;
    ++sum.count;
    sum.before += tensor.bytes_before;
    sum.after += tensor.bytes_after;
    sum.odd += tensor.num_saturated + tensor.num_nan + tensor.num_bad_blocks;
    if (tensor.error) {
      sum.measured = true;
      sum.worst.max_abs = std::max(sum.worst.max_abs, tensor.error->max_abs);
      sum.worst.relative_rms = std::max(sum.worst.relative_rms, tensor.error->relative_rms);
    }
  }
  std::vector<std::vector<std::string>> rows;
  bool leaves_out = false;
  for (size_t g = 0; g < sums.size(); ++g) {
    const Sum& sum = sums[g];
    leaves_out |= sum.measured && sum.odd > 0;
    const TensorReport& first = *sum.first;
    const std::string formats = first.source_format == first.target_format
                                    ? first.source_format
                                    : first.source_format + " -> " + first.target_format;
    rows.push_back({groups.label(g), sum.count == 1 ? "" : std::to_string(sum.count),
                    shape_text(first.shape), formats, human_bytes(sum.before),
                    human_bytes(sum.after), sum.measured ? figure(sum.worst.max_abs) : "",
                    sum.measured ? figure(sum.worst.relative_rms) : "",
                    std::string(name(first.action)) + ": " + printable(first.reason) +
                        (sum.odd > 0 ? " (!)" : "")});
  }
  print_table({"name", ">count", "shape", "format", ">before", ">after", ">max err", ">rel rms",
               "what and why"},
              rows);
  if (leaves_out) std::printf("(!) errors leave out numbers that are not finite before or after\n");
}

// The most memory that this process had in use; 0 where the system does not say.
int64_t peak_memory_bytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.rfind("VmHWM:", 0) == 0) return std::strtoll(line.c_str() + 6, nullptr, 10) * 1024;
  }
  return 0;
}

// Numbers that a user has to know about, tensor by tensor.
std::vector<std::string> alarms(const ConvertReport& report) {
  std::vector<std::string> texts;
  for (const TensorReport& tensor : report.tensors) {
    std::string text;
    const auto count = [&](int64_t n, const char* noun, const char* what) {
      if (n > 0) text += (text.empty() ? "" : ", ") + counted(n, noun) + what;
    };
    count(tensor.num_bad_blocks, "block", " with a NaN or Inf");
    count(tensor.num_nan, "NaN", " in the result");
    count(tensor.num_saturated, "number", " beyond the target's range");
    if (!text.empty()) texts.push_back(tensor.name + ": " + text);
  }
  return texts;
}

void print_summary(const Options& options, const ConvertReport& report) {
  int64_t before = 0;
  int64_t after = 0;
  for (const TensorReport& tensor : report.tensors) {
    before += tensor.bytes_before;
    after += tensor.bytes_after;
  }
  std::printf("\n%s, %s -> %s\n", counted(std::ssize(report.tensors), "tensor").c_str(),
              human_bytes(before).c_str(), human_bytes(after).c_str());
  if (options.convert.dry_run) {
    for (const OutputFile& file : report.files) {
      std::printf("  would write %-48s %15lld byte%s\n", printable(file.name).c_str(),
                  static_cast<long long>(file.bytes), file.bytes == 1 ? "" : "s");
    }
    if (report.num_resumed > 0) {
      std::printf("  %s would be taken over from an earlier run\n",
                  counted(report.num_resumed, "finished shard").c_str());
    }
    std::printf("dry run: %s in %s would be written; nothing was\n",
                counted(report.bytes_written, "byte").c_str(),
                counted(std::ssize(report.files), "file").c_str());
    return;
  }
  if (report.num_resumed > 0) {
    std::printf("%s taken over from an earlier run\n",
                counted(report.num_resumed, "finished shard").c_str());
  }
  const double bytes = static_cast<double>(report.bytes_read + report.bytes_written);
  std::printf("read %s, wrote %s in %s: %s/s, peak memory %s\n",
              human_bytes(report.bytes_read).c_str(), human_bytes(report.bytes_written).c_str(),
              human_seconds(report.seconds).c_str(),
              human_bytes(static_cast<int64_t>(bytes / std::max(1e-9, report.seconds))).c_str(),
              human_bytes(peak_memory_bytes()).c_str());
  std::printf(options.convert.num_ranks > 1 && !options.convert.publish_only
                  ? "not published yet: run with --publish when all ranks are done\n"
                  : "%s is complete\n",
              printable(options.out).c_str());
}

std::string to_json(const Options& options, const ConvertReport& report) {
  using Json = nlohmann::ordered_json;
  Json out = {{"in", options.in},
              {"out", options.out},
              {"to", options.to},
              {"dry_run", options.convert.dry_run},
              {"seconds", report.seconds},
              {"bytes_read", report.bytes_read},
              {"bytes_written", report.bytes_written},
              {"peak_memory_bytes", peak_memory_bytes()},
              {"shards_resumed", report.num_resumed},
              {"warnings", report.warnings},
              {"files", Json::array()},
              {"tensors", Json::array()}};
  for (const OutputFile& file : report.files) {
    out["files"].push_back({{"name", file.name}, {"bytes", file.bytes}});
  }
  for (const TensorReport& tensor : report.tensors) {
    Json row = {{"name", tensor.name},
                {"shard", tensor.shard},
                {"action", name(tensor.action)},
                {"reason", tensor.reason},
                {"source", tensor.source_format},
                {"target", tensor.target_format},
                {"shape", tensor.shape},
                {"bytes_before", tensor.bytes_before},
                {"bytes_after", tensor.bytes_after},
                {"saturated", tensor.num_saturated},
                {"nan", tensor.num_nan},
                {"bad_blocks", tensor.num_bad_blocks}};
    if (tensor.error) {
      row["max_abs_error"] = tensor.error->max_abs;
      row["relative_rms_error"] = tensor.error->relative_rms;
    }
    out["tensors"].push_back(std::move(row));
  }
  return json_text(out);
}

int run_convert(Options& options) {
  take_alias(options.in_fp8, options.out_bf16, "--input-fp8-hf-path and --output-bf16-hf-path",
             "bf16", &options);
  take_alias(options.in_bf16, options.out_fp8, "--input-bf16-hf-path and --output-fp8-hf-path",
             "deepseek-fp8", &options);
  if (options.in.empty() || options.out.empty()) {
    throw std::invalid_argument("[convert] IN and OUT must be given");
  }
  if (options.to.empty()) {
    std::string known;
    for (const std::string& format : checkpoint_formats()) known += " " + format;
    throw std::invalid_argument("[convert] --to must be given, one of" + known);
  }
  options.convert.to = checkpoint_format_from_name(options.to);
  options.convert.durable = !options.no_sync;
  if (options.measure || options.no_measure) options.convert.measure_error = options.measure;
  take_shard(options.shard, &options.convert);
  OutFile json(options.json);
  ConvertReport report;
  {
    ShownProgress progress(options.quiet);
    report = convert(options.in, options.out, options.convert, &progress);
  }
  for (const std::string& warning : report.warnings) {
    std::fprintf(stderr, "warning: %s\n", printable(warning).c_str());
  }
  for (const std::string& alarm : alarms(report)) {
    std::fprintf(stderr, "warning: %s\n", printable(alarm).c_str());
  }
  if (json.is_wanted()) json.write(to_json(options, report));
  if (!options.quiet) {
    print_tensors(report, options.every);
    print_summary(options, report);
  }
  return kSuccess;
}

}  // namespace

Command convert_command(CLI::App& app) {
  CLI::App* parser =
      app.add_subcommand("convert", "Convert a safetensors checkpoint to another number format.");
  const auto options = std::make_shared<Options>();
  parser->add_option("IN", options->in, "A .safetensors file, or a folder with such files");
  parser->add_option("OUT", options->out, "The file or folder to be made");
  std::string formats;
  for (const std::string& format : checkpoint_formats()) {
    formats += (formats.empty() ? "" : ", ") + format;
  }
  parser->add_option("--to", options->to, "Target format: " + formats);
  // One value an option: what follows a list of patterns must not be taken for one.
  parser
      ->add_option("--ignore", options->convert.ignore,
                   "Leave these tensors: re:EXPRESSION or a glob; may be repeated")
      ->allow_extra_args(false);
  parser
      ->add_option("--include", options->convert.include,
                   "Cast these too, though embedding, head, norm or gate; may be repeated")
      ->allow_extra_args(false);
  parser->add_flag("--keep-other", options->convert.keep_other,
                   "Plain targets: leave floating tensors that were not FP8");
  parser->add_flag("--missing-scale-is-one", options->convert.missing_scale_is_one,
                   "Take FP8 weights without a scale as they are");
  CLI::Option* const measure =
      parser->add_flag("--measure-error", options->measure, "Measure errors of casts back too");
  parser->add_flag("--no-measure-error", options->no_measure, "Measure no errors")
      ->excludes(measure);
  parser->add_flag("--overwrite", options->convert.overwrite, "Replace an existing checkpoint");
  parser->add_flag("--resume", options->convert.resume, "Continue an interrupted run");
  parser->add_flag("--dry-run", options->convert.dry_run,
                   "Show plan and exact sizes, check that they can be written; write nothing");
  parser->add_flag("--no-sync", options->no_sync, "Do not wait for the disk");
  parser->add_option("--shard", options->shard,
                     "Convert share I/N of the shards; auto takes torchrun's, mpirun's or Slurm's");
  parser->add_flag("--publish", options->convert.publish_only,
                   "Check and publish what the shares wrote");
  parser->add_flag("--every-tensor", options->every, "One line a tensor, layers not joined");
  parser->add_option("--json", options->json, "Write the report to this file");
  parser->add_flag("-q,--quiet", options->quiet, "No progress and no report, warnings only");
  parser->add_option("--input-fp8-hf-path", options->in_fp8, "IN, as DeepSeek's script has it");
  parser->add_option("--output-bf16-hf-path", options->out_bf16, "OUT with --to bf16");
  parser->add_option("--input-bf16-hf-path", options->in_bf16, "IN");
  parser->add_option("--output-fp8-hf-path", options->out_fp8, "OUT with --to deepseek-fp8");
  return {parser, [options] { return run_convert(*options); }};
}

}  // namespace tilekernels::tool
