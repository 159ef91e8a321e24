// A checkpoint on disk: its shards' headers, index, config.json and the files beside them.
#pragma once

#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "io/json.h"
#include "io/safetensors.h"
#include "tilekernels/quant.h"

namespace tilekernels::checkpoint {

/// A tensor of a source: shard number and place in the shard's header.
struct TensorRef {
  int shard = -1;
  int tensor = -1;
  bool found() const { return shard >= 0; }
  friend bool operator==(const TensorRef&, const TensorRef&) = default;
};

struct Shard {
  std::string file_name;
  std::string path;
  io::Header header;
};

/// A file that is copied as it is: where it goes, relative to the folder, and where its bytes are.
struct SideFile {
  std::string name;
  std::string path;
  int64_t bytes = 0;
};

/// What config.json says about quantization.
struct QuantClaim {
  bool present = false;
  std::string method;     ///< "fp8"; empty when not given
  std::string fmt;        ///< "e4m3"; empty when not given
  std::string scale_fmt;  ///< "ue8m0"; empty when not given
  BlockSize block = {128, 128};
};

struct Source {
  std::string path;
  bool is_folder = false;
  std::vector<Shard> shards;
  std::optional<io::Index> index;
  std::optional<io::Json> config;
  QuantClaim claim;
  std::vector<SideFile> side_files;
  std::vector<std::string> warnings;
  std::unordered_map<std::string, TensorRef> by_name;

  const io::TensorEntry& tensor(TensorRef ref) const {
    return shards[static_cast<size_t>(ref.shard)].header.tensors[static_cast<size_t>(ref.tensor)];
  }
  /// The tensor of that name, or one that is not `found`.
  TensorRef find(const std::string& name) const;
  /// Opens a shard and checks that it is still the file whose header was read.
  io::File open(int shard) const;
};

inline constexpr char kIndexName[] = "model.safetensors.index.json";
inline constexpr char kConfigName[] = "config.json";

/// Reads every header of a .safetensors file or of a folder.
/// Errors: std::invalid_argument when `path` is neither; DataError for malformed or contradictory
/// files.
Source open_source(const std::string& path);

/// The tensor that scales an FP8 weight, under any of its known names.
/// Errors: DataError when there are several.
TensorRef find_scale(const Source& source, const std::string& weight);

}  // namespace tilekernels::checkpoint
