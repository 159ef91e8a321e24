// What a conversion will do to every tensor, decided from headers alone.
#include "checkpoint/plan.h"

#include <algorithm>
#include <numeric>
#include <stdexcept>
#include <unordered_map>

#include "checkpoint/config_json.h"
#include "checkpoint/policy.h"
#include "core/message.h"
#include "io/text.h"
#include "tilekernels/error.h"

namespace tilekernels::checkpoint {
namespace {

using io::StDType;

class Planner {
 public:
  Planner(const Source& source, const ConvertOptions& options)
      : source_(source),
        options_(options),
        target_(target_format(options.to)),
        ignore_(options.ignore, "ignore"),
        include_(options.include, "include") {}

  Plan make(const std::string& out_file_name) {
    plan_.target = &target_;
    plan_.warnings = source_.warnings;
    check_claim();
    pair_scales();
    for (size_t s = 0; s < source_.shards.size(); ++s) {
      const Shard& shard = source_.shards[s];
      shard_ = ShardPlan();
      shard_.file_name = source_.is_folder ? shard.file_name : out_file_name;
      shard_.header.metadata = shard.header.metadata;
      shard_.scheme = target_.scheme;
      for (size_t t = 0; t < shard.header.tensors.size(); ++t) {
        add_tensor({static_cast<int>(s), static_cast<int>(t)});
      }
      finish_shard(shard);
    }
    check_patterns();
    check_tied();
    write_texts();
    return std::move(plan_);
  }

 private:
  const io::TensorEntry& tensor(TensorRef ref) const { return source_.tensor(ref); }

  std::string at(const io::TensorEntry& entry) const {
    return source_.path + ": tensor " + io::quote(entry.name);
  }

  void check_claim() {
    const QuantClaim& claim = source_.claim;
    if (!claim.present) return;
    const std::string where = source_.path + "/config.json: quantization_config.";
    if (claim.method != "fp8") {
      throw Unsupported(message("convert", where + "quant_method",
                                "must be \"fp8\", the only one known here",
                                claim.method.empty() ? "none" : io::quote(claim.method)));
    }
    if (!claim.fmt.empty() && claim.fmt != "e4m3") {
      throw Unsupported(message("convert", where + "fmt",
                                "must be \"e4m3\", the only one known here", io::quote(claim.fmt)));
    }
  }

  // Finds the scale of every FP8 weight, in whatever shard it lies.
  void pair_scales() {
    std::vector<const io::TensorEntry*> without;
    for (const Shard& shard : source_.shards) {
      for (const io::TensorEntry& entry : shard.header.tensors) {
        if (entry.dtype != StDType::kF8E4M3) continue;
        const TensorRef scale = find_scale(source_, entry.name);
        if (scale.found()) {
          weight_of_[tensor(scale).name] = source_.find(entry.name);
          check_scale(entry, tensor(scale));
        } else if (!options_.missing_scale_is_one && ignore_.match(entry.name) == nullptr) {
          without.push_back(&entry);
        }
      }
    }
    if (without.empty()) return;
    const io::TensorEntry& first = *without.front();
    std::string names;
    for (const std::string& name : scale_names(first.name)) {
      names += (names.empty() ? "" : ", ") + name;
    }
    io::malformed(
        at(first),
        "an F8_E4M3 weight must have a scale (" + io::quote(names) +
            "), unless missing scales are to count as 1",
        "none" + (without.size() == 1
                      ? std::string()
                      : " here and for " + std::to_string(without.size() - 1) + " more weights"));
  }

  void check_scale(const io::TensorEntry& weight, const io::TensorEntry& scale) const {
    if (ignore_.match(weight.name) != nullptr) return;  // both are copied unread
    if (!is_scale_dtype(scale.dtype)) {
      io::malformed(at(scale), "the scale of an FP8 weight must be F32, F16, BF16 or F8_E8M0",
                    std::string(name(scale.dtype)));
    }
    if (weight.shape.size() < 2) {
      io::malformed(at(weight), "an FP8 weight with block scales must be a matrix",
                    io::shape_text(weight.shape));
    }
    const std::vector<int64_t> expected = scale_shape(weight.shape, source_.claim.block);
    if (scale.shape != expected) {
      io::malformed(at(scale),
                    "the scale must have shape " + io::shape_text(expected) + " for weight " +
                        io::quote(weight.name) + " of shape " + io::shape_text(weight.shape) +
                        " in blocks of " + block_text(source_.claim.block),
                    io::shape_text(scale.shape));
    }
  }

  // Adds an output tensor to the shard and returns its place.
  size_t add_output(const std::string& name, StDType dtype, const std::vector<int64_t>& shape) {
    shard_.header.tensors.push_back({name, dtype, shape, 0, 0});
    return shard_.header.tensors.size() - 1;
  }

  TensorReport& add_report(const io::TensorEntry& entry, TensorAction action,
                           const std::string& reason) {
    TensorReport report;
    report.name = entry.name;
    report.shard = shard_.file_name;
    report.shape = entry.shape;
    report.source_format = report.target_format = std::string(name(entry.dtype));
    report.action = action;
    report.reason = reason;
    report.bytes_before = entry.bytes();
    plan_.reports.push_back(std::move(report));
    return plan_.reports.back();
  }

  Job& add_job(TensorAction action, TensorRef in, size_t out) {
    Job job;
    job.action = action;
    job.in = in;
    job.out = out;
    job.report = plan_.reports.size() - 1;
    shard_.jobs.push_back(job);
    return shard_.jobs.back();
  }

  void copy(TensorRef ref, const std::string& reason) {
    const io::TensorEntry& entry = tensor(ref);
    add_report(entry, TensorAction::kCopied, reason).bytes_after = entry.bytes();
    add_job(TensorAction::kCopied, ref, add_output(entry.name, entry.dtype, entry.shape));
  }

  void add_tensor(TensorRef ref) {
    const io::TensorEntry& entry = tensor(ref);
    const auto weight = weight_of_.find(entry.name);
    if (weight != weight_of_.end()) return add_scale(ref, tensor(weight->second));
    if (entry.dtype == StDType::kF8E4M3) return add_codes(ref);
    if (is_plain_float(entry.dtype) && !is_unknown_part(entry)) return add_plain(ref);
    if (const std::string* pattern = ignore_.match(entry.name)) {
      return copy(ref, "--ignore " + *pattern);
    }
    if (is_unknown_part(entry)) {
      io::malformed(at(entry),
                    "a scale must belong to an F8_E4M3 weight, the only scaled format known here "
                    "(ignore " +
                        entry.name + " to copy it)",
                    std::string(name(entry.dtype)) + " " + io::shape_text(entry.shape) +
                        " without such a weight");
    }
    if (io::bits(entry.dtype) < 16 && entry.dtype != StDType::kU8 && entry.dtype != StDType::kI8 &&
        entry.dtype != StDType::kBool) {
      throw Unsupported(message("convert", at(entry) + ": the format",
                                "must be one that is known here (F32, F16, BF16, F8_E4M3 with "
                                "block scales) or the tensor ignored",
                                name(entry.dtype)));
    }
    copy(ref, std::string(name(entry.dtype)) + " is not converted");
  }

  void add_codes(TensorRef ref) {
    const io::TensorEntry& entry = tensor(ref);
    if (const std::string* pattern = ignore_.match(entry.name)) {
      has_codes_ = true;
      ignored_codes_ = entry.name;
      return copy(ref, "--ignore " + *pattern);
    }
    const TensorRef scale = find_scale(source_, entry.name);
    if (target_.scheme != nullptr) return keep_codes(ref, scale);
    TensorReport& report =
        add_report(entry, TensorAction::kCastBack,
                   scale.found() ? "FP8 weight" : "FP8 weight, scale taken as 1");
    if (scale.found()) {
      report.source_format = scaled_format(entry.dtype, tensor(scale).dtype, source_.claim.block);
    }
    report.target_format = std::string(name(target_.plain));
    const size_t out = add_output(entry.name, target_.plain, entry.shape);
    report.bytes_after = io::tensor_bytes(target_.plain, entry.shape, at(entry));
    Job& job = add_job(TensorAction::kCastBack, ref, out);
    job.scale = scale;
    job.block = source_.claim.block;
    job.measure_error = options_.measure_error.value_or(false);
    const std::string_view module = module_of(entry.name);
    if (module != entry.name) plain_modules_.emplace_back(module);
  }

  // Codes stay codes; a scale under another name or in another format is brought into the target's.
  void keep_codes(TensorRef ref, TensorRef scale) {
    const io::TensorEntry& entry = tensor(ref);
    const QuantScheme& scheme = *target_.scheme;
    const BlockSize block = source_.claim.block;
    if (block.rows != scheme.block.rows || block.cols != scheme.block.cols) {
      throw Unsupported(message("convert", at(entry) + ": the blocks of FP8 weights",
                                "must be " + block_text(scheme.block) + " as the target's",
                                block_text(block)));
    }
    has_codes_ = true;
    copy(ref, "already FP8");
    if (scale.found()) return;
    const std::vector<int64_t> shape = scale_shape(entry.shape, scheme.block);
    const std::string scale_name = entry.name + std::string(scheme.scale_suffix);
    add_report({scale_name, scheme.scale, shape, 0, 0}, TensorAction::kRescaled,
               "missing scale taken as 1")
        .bytes_after = io::tensor_bytes(scheme.scale, shape, at(entry));
    add_job(TensorAction::kRescaled, {}, add_output(scale_name, scheme.scale, shape));
  }

  void add_scale(TensorRef ref, const io::TensorEntry& weight) {
    const io::TensorEntry& entry = tensor(ref);
    if (ignore_.match(weight.name) != nullptr) return copy(ref, "scale of an ignored weight");
    if (target_.scheme == nullptr) {
      add_report(entry, TensorAction::kConsumed, "scale of " + weight.name).target_format = "-";
      return;
    }
    const QuantScheme& scheme = *target_.scheme;
    const std::string scale_name = weight.name + std::string(scheme.scale_suffix);
    if (entry.name == scale_name && entry.dtype == scheme.scale) {
      return copy(ref, "scale of " + weight.name);
    }
    TensorReport& report = add_report(entry, TensorAction::kRescaled, "written as " + scale_name);
    report.target_format = std::string(name(scheme.scale));
    report.bytes_after = io::tensor_bytes(scheme.scale, entry.shape, at(entry));
    add_job(TensorAction::kRescaled, ref, add_output(scale_name, scheme.scale, entry.shape));
    renamed_[entry.name] = scale_name;
  }

  void add_plain(TensorRef ref) {
    const io::TensorEntry& entry = tensor(ref);
    if (target_.scheme != nullptr) return add_castable(ref);
    if (entry.dtype == target_.plain) {
      return copy(ref, "already " + std::string(name(entry.dtype)));
    }
    if (const std::string* pattern = ignore_.match(entry.name)) {
      return copy(ref, "--ignore " + *pattern);
    }
    if (options_.keep_other) return copy(ref, "--keep-other");
    if (stays_wide(entry.name) && include_.match(entry.name) == nullptr) {
      return copy(ref, "router bias, which models read as f32");
    }
    TensorReport& report = add_report(entry, TensorAction::kConverted, "plain float");
    report.target_format = std::string(name(target_.plain));
    report.bytes_after = io::tensor_bytes(target_.plain, entry.shape, at(entry));
    add_job(TensorAction::kConverted, ref, add_output(entry.name, target_.plain, entry.shape))
        .measure_error = options_.measure_error.value_or(true);
  }

  void add_castable(TensorRef ref) {
    const io::TensorEntry& entry = tensor(ref);
    const QuantScheme& scheme = *target_.scheme;
    const CastDecision decision = decide_cast(entry, ignore_, include_);
    if (!decision.cast) {
      const std::string_view module = module_of(entry.name);
      if (entry.shape.size() == 2 && module != entry.name && decision.reason != "embedding" &&
          decision.reason != "norm") {
        plain_modules_.emplace_back(module);
      }
      return copy(ref, decision.reason);
    }
    const std::string scale_name = entry.name + std::string(scheme.scale_suffix);
    if (source_.find(scale_name).found()) {
      io::malformed(at(entry), "the name of its scale, " + io::quote(scale_name) + ", must be free",
                    "a tensor of that name");
    }
    const std::vector<int64_t> shape = scale_shape(entry.shape, scheme.block);
    TensorReport& report = add_report(entry, TensorAction::kQuantized, decision.reason);
    report.target_format = scaled_format(scheme.codes, scheme.scale, scheme.block);
    report.bytes_after = io::tensor_bytes(scheme.codes, entry.shape, at(entry)) +
                         io::tensor_bytes(scheme.scale, shape, at(entry));
    const size_t out = add_output(entry.name, scheme.codes, entry.shape);
    const size_t out_sf = add_output(scale_name, scheme.scale, shape);
    Job& job = add_job(TensorAction::kQuantized, ref, out);
    job.out_sf = out_sf;
    job.block = scheme.block;
    job.measure_error = options_.measure_error.value_or(true);
    has_codes_ = true;
    has_new_codes_ = true;
    new_scales_[entry.name] = scale_name;
  }

  // Wide elements first, so that every tensor is aligned to its element; else the input's order.
  void finish_shard(const Shard& shard) {
    if (shard_.header.tensors.empty() && !shard.header.tensors.empty()) {
      plan_.warnings.push_back(shard.file_name + " held nothing but scales and is not written");
      return;
    }
    std::vector<io::TensorEntry>& tensors = shard_.header.tensors;
    std::vector<size_t> order(tensors.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
      return io::bits(tensors[a].dtype) > io::bits(tensors[b].dtype);
    });
    std::vector<size_t> place(order.size());
    std::vector<io::TensorEntry> sorted;
    for (size_t i = 0; i < order.size(); ++i) {
      place[order[i]] = i;
      sorted.push_back(std::move(tensors[order[i]]));
    }
    tensors = std::move(sorted);
    for (Job& job : shard_.jobs) {
      job.out = place[job.out];
      if (job.action == TensorAction::kQuantized) job.out_sf = place[job.out_sf];
    }
    io::build_header(&shard_.header);
    plan_.shards.push_back(std::move(shard_));
  }

  void check_patterns() {
    for (const auto* patterns : {&ignore_, &include_}) {
      for (const std::string& text : patterns->unused()) {
        plan_.warnings.push_back(std::string(patterns == &ignore_ ? "--ignore " : "--include ") +
                                 io::quote(text) + " matches no tensor that it could change");
      }
    }
  }

  void check_tied() {
    const std::string contradiction = tied_contradiction(source_);
    if (!contradiction.empty()) {
      plan_.warnings.push_back(contradiction + "; the tensors are taken as they are");
    }
  }

  void write_texts() {
    int64_t total = 0;
    std::unordered_map<std::string, const std::string*> shard_of;
    for (const ShardPlan& shard : plan_.shards) {
      total += shard.header.data_bytes();
      for (const io::TensorEntry& entry : shard.header.tensors) {
        shard_of.emplace(entry.name, &shard.file_name);
      }
    }
    if (source_.index) {
      io::Index index;
      index.metadata = source_.index->metadata;
      const auto list = [&](const std::string& name) {
        const auto found = shard_of.find(name);
        if (found != shard_of.end()) index.weight_map.emplace_back(name, *found->second);
      };
      for (const auto& [name, file] : source_.index->weight_map) {
        const auto renamed = renamed_.find(name);
        list(renamed == renamed_.end() ? name : renamed->second);
        const auto scale = new_scales_.find(name);
        if (scale != new_scales_.end()) list(scale->second);
      }
      for (const ShardPlan& shard : plan_.shards) add_unlisted(shard, &index);
      plan_.texts.emplace_back(kIndexName, io::build_index(index, total));
    }
    if (source_.config) {
      ConfigChange change;
      change.target = &target_;
      change.is_quantized = has_codes_;
      change.keep_claim = source_.claim.present && (!has_new_codes_ || claim_fits_new_codes());
      change.plain_modules = has_codes_ ? plain_modules_ : std::vector<std::string>{};
      plan_.texts.emplace_back(kConfigName, io::dump_json(rewrite_config(*source_.config, change)));
    } else if (source_.is_folder && (has_new_codes_ || !weight_of_.empty())) {
      plan_.warnings.push_back("there is no config.json to say how the weights are quantized");
    }
  }

  // One claim speaks for all codes of the output. Errors: Unsupported when it cannot.
  bool claim_fits_new_codes() const {
    const QuantClaim& claim = source_.claim;
    const BlockSize block = target_.scheme->block;
    const bool same_block = claim.block.rows == block.rows && claim.block.cols == block.cols;
    if (!same_block && !ignored_codes_.empty()) {
      throw Unsupported(message("convert", "ignored weight " + io::quote(ignored_codes_),
                                "must have blocks of " + block_text(block) + " as the new ones",
                                block_text(claim.block)));
    }
    return same_block && claim.scale_fmt.empty();
  }

  // Scales of 1 made for weights that had none.
  static void add_unlisted(const ShardPlan& shard, io::Index* index) {
    for (const Job& job : shard.jobs) {
      if (job.action == TensorAction::kRescaled && !job.in.found()) {
        index->weight_map.emplace_back(shard.header.tensors[job.out].name, shard.file_name);
      }
    }
  }

  const Source& source_;
  const ConvertOptions& options_;
  const TargetFormat& target_;
  NamePatterns ignore_;
  NamePatterns include_;
  Plan plan_;
  ShardPlan shard_;
  std::unordered_map<std::string, TensorRef> weight_of_;
  std::unordered_map<std::string, std::string> renamed_;
  std::unordered_map<std::string, std::string> new_scales_;
  std::vector<std::string> plain_modules_;
  bool has_codes_ = false;
  std::string ignored_codes_;  // the last FP8 weight that was copied unread
  bool has_new_codes_ = false;
};

}  // namespace

std::vector<OutputFile> Plan::files(const Source& source) const {
  std::vector<OutputFile> files;
  for (const ShardPlan& shard : shards) {
    files.push_back({shard.file_name, shard.header.file_bytes()});
  }
  for (const auto& [name, text] : texts) {
    files.push_back({name, static_cast<int64_t>(text.size())});
  }
  for (const SideFile& file : source.side_files) files.push_back({file.name, file.bytes});
  return files;
}

Plan make_plan(const Source& source, const ConvertOptions& options,
               const std::string& out_file_name) {
  return Planner(source, options).make(out_file_name);
}

}  // namespace tilekernels::checkpoint
