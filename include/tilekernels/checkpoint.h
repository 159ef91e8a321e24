// Checkpoints in safetensors: what is in one, and conversion between number formats.
#pragma once

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace tilekernels {

/// The format that a checkpoint's weights are converted to.
enum class CheckpointFormat : int32_t {
  kF32,
  kF16,
  kBF16,
  kDeepseekFp8,  ///< e4m3 codes with one f32 scale a block of 128 x 128, as DeepSeek-V3 has them
};

/// "f32", "f16", "bf16", "deepseek-fp8".
std::string_view name(CheckpointFormat format);
/// The format of that name.
/// Errors: std::invalid_argument for any other name, listing those there are.
CheckpointFormat checkpoint_format_from_name(std::string_view name);
std::vector<std::string> checkpoint_formats();

/// The caller stopped the work. Nothing was published.
class Cancelled : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Told how far the work is; the default does nothing. `advance` and `cancelled` are called from
/// several threads at once.
class Progress {
 public:
  virtual ~Progress() = default;
  /// A stage begins: `total_bytes` of input are to be read.
  virtual void begin(std::string_view stage, int64_t total_bytes);
  virtual void advance(int64_t bytes);
  virtual void end();
  /// Asked after every block; true makes the call throw `Cancelled`.
  virtual bool cancelled();
};

/// What became of a tensor.
enum class TensorAction : int32_t {
  kCopied,     ///< the same bytes
  kConverted,  ///< one plain number format to another
  kQuantized,  ///< codes and scales computed
  kCastBack,   ///< codes times scales
  kRescaled,   ///< a scale, widened to f32 and given the target's name; exact
  kConsumed,   ///< a scale, used up by its weight
};
std::string_view name(TensorAction action);

/// Differences between the numbers before and after, over those that are finite on both sides.
struct ErrorFigures {
  double max_abs = 0;
  /// sqrt(sum of (after - before)^2 / sum of before^2); 0 for a tensor of zeros.
  double relative_rms = 0;
};

struct TensorReport {
  std::string name;
  std::string shard;          ///< file name in the output
  std::string source_format;  ///< "BF16", "F8_E4M3 x F32 per 128x128"
  std::string target_format;
  std::vector<int64_t> shape;
  TensorAction action = TensorAction::kCopied;
  std::string reason;  ///< why it was treated so, in a few words
  int64_t bytes_before = 0;
  int64_t bytes_after = 0;
  std::optional<ErrorFigures> error;  ///< where it was measured
  int64_t num_saturated = 0;          ///< finite numbers that the target's range cut off
  int64_t num_nan = 0;                ///< NaN in the result
  int64_t num_bad_blocks = 0;  ///< scaling blocks with a NaN or Inf in them, or with a NaN scale
};

struct OutputFile {
  std::string name;
  int64_t bytes = 0;
};

struct ConvertReport {
  std::vector<TensorReport> tensors;  ///< in the input's order
  std::vector<OutputFile> files;      ///< of the output; in a dry run those it would write; exact
  std::vector<std::string> warnings;
  int64_t bytes_read = 0;
  int64_t bytes_written = 0;
  int num_resumed = 0;  ///< shards taken over from an interrupted run
  double seconds = 0;
};

struct ConvertOptions {
  CheckpointFormat to = CheckpointFormat::kBF16;
  /// Tensors left as they are: "re:EXPRESSION" (ECMAScript, from the name's start, as
  /// compressed-tensors does) or a glob over the whole name; tested against the tensor's name and
  /// against it without ".weight". An FP8 weight keeps its scale.
  std::vector<std::string> ignore;
  /// Tensors cast to FP8 although the default leaves them: embeddings, output heads, norms, router
  /// gates. `ignore` is stronger.
  std::vector<std::string> include;
  /// Plain targets: leave floating tensors that were not quantized in their own format.
  bool keep_other = false;
  /// FP8 weights without a scale are refused unless this says that their scale is 1.
  bool missing_scale_is_one = false;
  /// Measure errors. Unset: yes when numbers are narrowed, no for cast back, whose one rounding
  /// is known.
  std::optional<bool> measure_error;
  /// Replace an existing checkpoint.
  bool overwrite = false;
  /// Take over the finished shards of an interrupted run with the same input and options.
  bool resume = false;
  /// Report what would be done and the exact sizes; write nothing. What a run checks before it
  /// writes is checked: rights, free space, other runs, unfinished work; the bytes of finished
  /// shards are not read.
  bool dry_run = false;
  /// Wait for the disk before anything gets its final name. Without it a power failure right after
  /// the end may lose data; a killed process may not.
  bool durable = true;
  /// This process converts the shards whose number is `rank` modulo `num_ranks`, into a folder
  /// that all ranks share, and publishes nothing when `num_ranks` is above 1.
  int rank = 0;
  int num_ranks = 1;
  /// Convert nothing: check what the ranks wrote and publish it.
  bool publish_only = false;
};

/// Converts a checkpoint: a .safetensors file into a file, or a folder into a folder.
///
/// Blocks of rows are read, converted by the public ops and written by several threads; memory
/// stays below 256 MiB whatever the tensors. A folder's shards keep their names; the index and
/// config.json are rewritten, other files copied. The output appears under its name, complete, in
/// one step at the end; until then the work lies beside it in ".NAME.tilekernels-partial".
///
/// Args:
///   in: a .safetensors file, or a folder with model.safetensors.index.json or .safetensors files.
///   out: a path of the same kind that does not exist, or is an empty folder, or is replaced under
///     `options.overwrite`; neither the input nor inside it.
/// Returns: what became of every tensor.
/// Errors: std::invalid_argument for paths and options; DataError (row -1) for a malformed or
///   contradictory checkpoint, a missing scale or one of another shape; Unsupported for a
///   quantization that is not known here; BackendError when the file system fails or has no room;
///   Cancelled. Nothing is then under the output's name.
/// Numerics: `per_block_cast` (kF32 scales, amax clamp 448·2^-126: small weights keep their
///   precision), `cast_back`, and one rounding to nearest even between plain formats, NaN
///   canonical.
/// Source: safetensors format; DeepSeek-V3 checkpoints; known names of scales (docs/convert.md).
ConvertReport convert(const std::string& in, const std::string& out,
                      const ConvertOptions& options = {}, Progress* progress = nullptr);

/// Numbers of a tensor that was read.
struct ValueCounts {
  int64_t num_nan = 0;
  int64_t num_inf = 0;
  int64_t num_zero = 0;
  double max_abs = 0;  ///< of the finite numbers; of codes, before their scale
};

struct TensorInfo {
  std::string name;
  std::string shard;
  std::string dtype;  ///< the format's name: "F8_E4M3"
  std::vector<int64_t> shape;
  int64_t bytes = 0;
  std::string scale;                  ///< the tensor that scales this one, or empty
  std::string scaled_tensor;          ///< the tensor that this one scales, or empty
  std::string format;                 ///< dtype and scaling: "F8_E4M3 x F32 per 128x128"
  std::optional<ValueCounts> values;  ///< of floating tensors, when they were read
};

struct Finding {
  std::string tensor;  ///< empty when it concerns the whole checkpoint
  std::string text;    ///< one sentence
};

struct CheckpointInfo {
  std::string path;
  std::string kind;          ///< "file", "folder", "sharded folder"
  std::string model;         ///< architecture and model type as config.json gives them
  std::string quantization;  ///< as config.json claims it, "none" without a claim
  std::vector<OutputFile> shards;
  std::vector<TensorInfo> tensors;
  int64_t bytes = 0;
  int64_t num_parameters = 0;  ///< elements, scales not counted
  std::vector<Finding> findings;
};

struct InspectOptions {
  /// Read the numbers, not only the headers.
  bool values = true;
};

/// Describes a checkpoint and lists what is suspicious in it: NaN and Inf, tensors of zeros, scales
/// that are zero, negative or not finite, weights and scales without each other, scales of the
/// wrong shape, scales that are no power of two where config.json claims UE8M0, and a config.json
/// that contradicts the tensors. Such findings are no errors.
///
/// Errors: as `convert`, for a path that is no checkpoint or a malformed file.
CheckpointInfo inspect(const std::string& path, const InspectOptions& options = {},
                       Progress* progress = nullptr);

}  // namespace tilekernels
