// The public inspection: headers, numbers and what is suspicious about them.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <filesystem>
#include <map>
#include <mutex>
#include <unordered_map>

#include "checkpoint/config_json.h"
#include "checkpoint/formats.h"
#include "checkpoint/source.h"
#include "checkpoint/values.h"
#include "core/message.h"
#include "io/text.h"
#include "numerics/formats.h"
#include "runtime/cpu/parallel.h"
#include "tilekernels/config.h"
#include "tilekernels/error.h"

namespace tilekernels {
namespace checkpoint {
namespace {

using io::StDType;

constexpr int64_t kPieceBytes = int64_t{2} << 20;

// What only scales are asked.
struct ScaleCounts {
  int64_t num_zero = 0;
  int64_t num_negative = 0;
  int64_t num_not_finite = 0;
  int64_t num_no_power = 0;
};

struct Numbers {
  ValueCounts values;
  ScaleCounts scales;
};

bool has_values(StDType dtype) {
  return is_plain_float(dtype) || dtype == StDType::kF8E4M3 || dtype == StDType::kF8E5M2;
}

void count_scales(StDType dtype, const char* in, int64_t count, ScaleCounts* counts) {
  for (int64_t i = 0; i < count; ++i) {
    float sf;
    if (dtype == StDType::kF8E8M0) {
      sf = numerics::ue8m0_to_f32(static_cast<uint8_t>(in[i]));
    } else {
      convert_plain(dtype, in + i * (io::bits(dtype) / 8), StDType::kF32, &sf, 1);
    }
    if (!std::isfinite(sf)) {
      ++counts->num_not_finite;
    } else if (sf == 0) {
      ++counts->num_zero;
    } else if (sf < 0) {
      ++counts->num_negative;
    } else if (!numerics::f32_to_ue8m0(sf).ok) {
      ++counts->num_no_power;
    }
  }
}

// "1 of 4 numbers is NaN", "2 of 4 numbers are NaN".
std::string some_are(int64_t count, int64_t total, const char* noun, const char* what) {
  return std::to_string(count) + " of " + counted(total, noun) + (count == 1 ? " is " : " are ") +
         what;
}

class Inspection {
 public:
  Inspection(const std::string& path, const InspectOptions& options, Progress* progress)
      : source_(open_source(path)), options_(options), progress_(progress) {}

  CheckpointInfo run() {
    describe();
    if (options_.values) read_values();
    for (size_t i = 0; i < info_.tensors.size(); ++i) judge(i);
    judge_checkpoint();
    return std::move(info_);
  }

 private:
  void describe() {
    info_.path = source_.path;
    info_.kind = !source_.is_folder ? "file" : source_.index ? "sharded folder" : "folder";
    if (source_.config) info_.model = describe_model(*source_.config);
    const QuantClaim& claim = source_.claim;
    info_.quantization = "none";
    if (claim.present) {
      info_.quantization = claim.method.empty() ? "of an unnamed method" : claim.method;
      if (!claim.fmt.empty()) info_.quantization += " " + claim.fmt;
      info_.quantization += ", blocks of " + block_text(claim.block);
      if (!claim.scale_fmt.empty()) info_.quantization += ", scales " + claim.scale_fmt;
    }
    for (size_t s = 0; s < source_.shards.size(); ++s) {
      const Shard& shard = source_.shards[s];
      info_.shards.push_back({shard.file_name, shard.header.file_bytes()});
      for (size_t t = 0; t < shard.header.tensors.size(); ++t) {
        const TensorRef ref{static_cast<int>(s), static_cast<int>(t)};
        const io::TensorEntry& entry = shard.header.tensors[t];
        TensorInfo tensor;
        tensor.name = entry.name;
        tensor.shard = shard.file_name;
        tensor.dtype = tensor.format = std::string(name(entry.dtype));
        tensor.shape = entry.shape;
        tensor.bytes = entry.bytes();
        place_of_[entry.name] = info_.tensors.size();
        info_.bytes += entry.bytes();
        info_.tensors.push_back(std::move(tensor));
        refs_.push_back(ref);
      }
    }
    numbers_.resize(info_.tensors.size());
    for (TensorInfo& tensor : info_.tensors) pair(&tensor);
    for (size_t i = 0; i < info_.tensors.size(); ++i) {
      if (info_.tensors[i].scaled_tensor.empty()) info_.num_parameters += entry(i).numel();
    }
  }

  const io::TensorEntry& entry(size_t i) const { return source_.tensor(refs_[i]); }

  void find(const std::string& tensor, const std::string& text) {
    info_.findings.push_back({tensor, text});
  }

  void pair(TensorInfo* tensor) {
    const io::TensorEntry& weight = source_.tensor(source_.find(tensor->name));
    if (weight.dtype != StDType::kF8E4M3) return;
    TensorRef scale;
    for (const std::string& candidate : scale_names(weight.name)) {
      const TensorRef ref = source_.find(candidate);
      if (!ref.found()) continue;
      if (scale.found()) {
        find(weight.name, "two scales: " + source_.tensor(scale).name + " and " + candidate);
        continue;
      }
      scale = ref;
    }
    if (!scale.found()) return;
    const io::TensorEntry& sf = source_.tensor(scale);
    tensor->scale = sf.name;
    info_.tensors[place_of_[sf.name]].scaled_tensor = weight.name;
    tensor->format = scaled_format(weight.dtype, sf.dtype, source_.claim.block);
  }

  // Reads all floating tensors and scales, in pieces, by several threads.
  void read_values() {
    std::vector<int64_t> first_piece = {0};
    int64_t total_bytes = 0;
    std::map<int, io::File> files;
    for (size_t i = 0; i < refs_.size(); ++i) {
      const bool reads = has_values(entry(i).dtype) || is_scale(i);
      const int64_t bytes = reads ? entry(i).bytes() : 0;
      total_bytes += bytes;
      first_piece.push_back(first_piece.back() + bytes / kPieceBytes + (bytes % kPieceBytes != 0));
      if (reads && !files.count(refs_[i].shard)) {
        files.emplace(refs_[i].shard, source_.open(refs_[i].shard));
      }
    }
    if (progress_ != nullptr) progress_->begin("read", total_bytes);
    const int64_t num_pieces = first_piece.back();
    std::atomic<int64_t> next{0};
    std::atomic<bool> stop{false};
    std::mutex mutex;
    const int64_t num_workers = std::min<int64_t>({get_num_threads(), num_pieces, 32});
    cpu::parallel_for(num_workers, 1, [&](int64_t, int64_t) {
      try {
        std::string piece;
        for (int64_t p; !stop && (p = next++) < num_pieces;) {
          const size_t i =
              static_cast<size_t>(std::upper_bound(first_piece.begin(), first_piece.end(), p) -
                                  first_piece.begin() - 1);
          const Numbers seen = read_piece(files.at(refs_[i].shard), i, p - first_piece[i], &piece);
          const std::lock_guard lock(mutex);
          add(seen, &numbers_[i]);
          if (progress_ == nullptr) continue;
          progress_->advance(static_cast<int64_t>(piece.size()));
          if (progress_->cancelled()) throw Cancelled(message("inspect", "stopped"));
        }
      } catch (...) {
        stop = true;
        throw;
      }
    });
    if (progress_ != nullptr) progress_->end();
    for (size_t i = 0; i < refs_.size(); ++i) {
      if (has_values(entry(i).dtype)) info_.tensors[i].values = numbers_[i].values;
    }
  }

  bool is_scale(size_t i) const {
    return !info_.tensors[i].scaled_tensor.empty() && is_scale_dtype(entry(i).dtype);
  }

  Numbers read_piece(const io::File& file, size_t i, int64_t number, std::string* piece) const {
    const io::TensorEntry& tensor = entry(i);
    const int64_t start = number * kPieceBytes;
    const int64_t bytes = std::min(kPieceBytes, tensor.bytes() - start);
    piece->resize(static_cast<size_t>(bytes));
    const io::Header& header = source_.shards[static_cast<size_t>(refs_[i].shard)].header;
    file.read_at(header.data_start + tensor.begin + start, piece->data(), bytes);
    const int64_t count = bytes * 8 / io::bits(tensor.dtype);
    Numbers seen;
    if (has_values(tensor.dtype)) {
      count_values(tensor.dtype, piece->data(), count, &seen.values);
    }
    if (is_scale(i)) count_scales(tensor.dtype, piece->data(), count, &seen.scales);
    return seen;
  }

  static void add(const Numbers& seen, Numbers* sum) {
    sum->values.num_nan += seen.values.num_nan;
    sum->values.num_inf += seen.values.num_inf;
    sum->values.num_zero += seen.values.num_zero;
    sum->values.max_abs = std::max(sum->values.max_abs, seen.values.max_abs);
    sum->scales.num_zero += seen.scales.num_zero;
    sum->scales.num_negative += seen.scales.num_negative;
    sum->scales.num_not_finite += seen.scales.num_not_finite;
    sum->scales.num_no_power += seen.scales.num_no_power;
  }

  void judge(size_t i) {
    const TensorInfo& tensor = info_.tensors[i];
    const io::TensorEntry& tensor_entry = entry(i);
    const int64_t count = tensor_entry.numel();
    if (!tensor.scaled_tensor.empty()) return judge_scale(i);
    if (tensor_entry.dtype == StDType::kF8E4M3 && tensor.scale.empty()) {
      find(tensor.name, "FP8 weight without a scale");
    } else if (is_unknown_part(tensor_entry)) {
      find(tensor.name, "looks like a scale, but no FP8 weight belongs to it");
    }
    if (!tensor.values) return;
    const ValueCounts& values = *tensor.values;
    if (values.num_nan > 0) find(tensor.name, some_are(values.num_nan, count, "number", "NaN"));
    if (values.num_inf > 0) {
      find(tensor.name, some_are(values.num_inf, count, "number", "infinite"));
    }
    if (count > 1 && values.num_zero == count) {
      find(tensor.name, "all " + std::to_string(count) + " numbers are zero");
    }
  }

  void judge_scale(size_t i) {
    const TensorInfo& tensor = info_.tensors[i];
    const io::TensorEntry& sf = entry(i);
    const io::TensorEntry& weight = source_.tensor(source_.find(tensor.scaled_tensor));
    if (weight.shape.size() < 2) {
      find(tensor.name, "scales " + weight.name + ", which is no matrix");
    } else if (const auto expected = scale_shape(weight.shape, source_.claim.block);
               sf.shape != expected) {
      find(tensor.name, "scale of shape " + io::shape_text(sf.shape) + ", but " + weight.name +
                            " of shape " + io::shape_text(weight.shape) + " in blocks of " +
                            block_text(source_.claim.block) + " needs " + io::shape_text(expected));
    }
    if (!is_scale_dtype(sf.dtype)) {
      find(tensor.name, "scale of unknown format " + std::string(name(sf.dtype)));
    }
    if (!options_.values) return;
    const ScaleCounts& counts = numbers_[i].scales;
    const int64_t total = sf.numel();
    const auto count = [&](int64_t n, const char* what) {
      if (n > 0) find(tensor.name, some_are(n, total, "scale", what));
    };
    count(counts.num_zero, "zero");
    count(counts.num_negative, "negative");
    count(counts.num_not_finite, "NaN or infinite");
    if (source_.claim.scale_fmt == "ue8m0") {
      count(counts.num_no_power, "no power of two, though config.json claims UE8M0");
    }
  }

  void judge_checkpoint() {
    for (const std::string& warning : source_.warnings) find("", warning);
    bool has_codes = false;
    for (size_t i = 0; i < refs_.size(); ++i) has_codes |= entry(i).dtype == StDType::kF8E4M3;
    if (source_.claim.present && source_.claim.method == "fp8" && !has_codes) {
      find("", "config.json claims fp8 quantization, but no tensor is F8_E4M3");
    }
    if (source_.config && !source_.claim.present && has_codes) {
      find("", "there are FP8 weights, but config.json has no quantization_config");
    }
    const std::string contradiction = tied_contradiction(source_);
    if (!contradiction.empty()) find("", contradiction);
  }

  Source source_;
  InspectOptions options_;
  Progress* progress_;
  CheckpointInfo info_;
  std::vector<TensorRef> refs_;
  std::unordered_map<std::string, size_t> place_of_;
  std::vector<Numbers> numbers_;
};

}  // namespace
}  // namespace checkpoint

CheckpointInfo inspect(const std::string& path, const InspectOptions& options, Progress* progress) {
  try {
    return checkpoint::Inspection(path, options, progress).run();
  } catch (const std::filesystem::filesystem_error& error) {
    throw BackendError(message("inspect", io::file_system_text(error)));
  }
}

}  // namespace tilekernels
