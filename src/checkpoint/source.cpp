// A checkpoint on disk: its shards' headers, index, config.json and the files beside them.
#include "checkpoint/source.h"

#include <algorithm>
#include <filesystem>
#include <stdexcept>
#include <unordered_set>

#include "checkpoint/config_json.h"
#include "checkpoint/formats.h"
#include "core/message.h"
#include "io/text.h"
#include "tilekernels/error.h"

namespace tilekernels::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMaxConfigBytes = int64_t{16} << 20;
constexpr int kMaxFolderDepth = 16;
constexpr std::string_view kShardEnd = ".safetensors";
constexpr std::string_view kIndexEnd = ".safetensors.index.json";

// Whether a link's target may be copied: inside the folder, or in the blob store of a Hugging Face
// cache, whose snapshots are links into ../../blobs. A folder from elsewhere must not be able to
// name the user's own files.
bool may_follow(const fs::path& target, const fs::path& root) {
  const auto inside = [&](const fs::path& folder) {
    const fs::path relative = target.lexically_relative(folder);
    return !relative.empty() && *relative.begin() != "..";
  };
  const fs::path blobs = root.parent_path().parent_path() / "blobs";
  return inside(root) || (root.parent_path().filename() == "snapshots" && inside(blobs));
}

void collect_side_files(const fs::path& root, const fs::path& folder, int depth, Source* source) {
  std::vector<fs::directory_entry> entries(fs::directory_iterator(folder),
                                           fs::directory_iterator{});
  std::sort(entries.begin(), entries.end());
  const auto skip = [&](const fs::directory_entry& entry, const std::string& why) {
    source->warnings.push_back(io::quote(entry.path().lexically_relative(root).string()) +
                               " is not copied: " + why);
  };
  for (const fs::directory_entry& entry : entries) {
    const std::string name = entry.path().filename();
    if (name[0] == '.') continue;  // version control, download caches: no part of the model
    std::error_code error;
    const fs::path real = fs::canonical(entry.path(), error);
    if (error) {
      skip(entry, "its target cannot be reached");
      continue;
    }
    if (entry.is_symlink() && !may_follow(real, root)) {
      skip(entry, "it is a link out of the folder");
      continue;
    }
    if (fs::is_directory(real)) {
      if (entry.is_symlink()) {
        skip(entry, "it is a link to a folder");
      } else if (depth == kMaxFolderDepth) {
        skip(entry, "it is nested too deep");
      } else {
        collect_side_files(root, entry.path(), depth + 1, source);
      }
      continue;
    }
    if (!fs::is_regular_file(real)) {
      skip(entry, "it is no regular file");
      continue;
    }
    if (depth == 0) {
      const bool is_shard =
          std::any_of(source->shards.begin(), source->shards.end(),
                      [&](const Shard& shard) { return shard.file_name == name; });
      if (is_shard || name == kConfigName || (source->index && name == kIndexName)) continue;
      if (name.ends_with(kShardEnd) || name.ends_with(kIndexEnd)) {
        skip(entry, std::string(kIndexName) + " does not name it");
        continue;
      }
    } else if (name.ends_with(kShardEnd)) {
      source->warnings.push_back(io::quote(entry.path().lexically_relative(root).string()) +
                                 " is copied as it is: only the top folder is converted");
    }
    source->side_files.push_back({entry.path().lexically_relative(root).string(), real.string(),
                                  static_cast<int64_t>(fs::file_size(real))});
  }
}

void add_shard(Source* source, const std::string& folder, const std::string& file_name) {
  Shard shard;
  shard.file_name = file_name;
  shard.path = folder.empty() ? source->path : folder + "/" + file_name;
  shard.header = io::read_header(io::File::open_read(shard.path));
  source->shards.push_back(std::move(shard));
}

// The shards in the order of their names, whatever the index's order.
std::vector<std::string> shard_names(const Source& source) {
  std::vector<std::string> names;
  if (source.index) {
    std::unordered_set<std::string> seen;
    for (const auto& [tensor, file] : source.index->weight_map) {
      if (seen.insert(file).second) names.push_back(file);
    }
  } else {
    for (const auto& entry : fs::directory_iterator(source.path)) {
      const std::string name = entry.path().filename();
      if (name.ends_with(kShardEnd) && name[0] != '.' && !entry.is_directory()) {
        names.push_back(name);
      }
    }
  }
  std::sort(names.begin(), names.end());
  return names;
}

void collect_names(Source* source) {
  for (size_t s = 0; s < source->shards.size(); ++s) {
    const Shard& shard = source->shards[s];
    for (size_t t = 0; t < shard.header.tensors.size(); ++t) {
      const std::string& name = shard.header.tensors[t].name;
      const auto [entry, is_new] =
          source->by_name.emplace(name, TensorRef{static_cast<int>(s), static_cast<int>(t)});
      if (!is_new) {
        const Shard& first = source->shards[static_cast<size_t>(entry->second.shard)];
        io::malformed(source->path, "a tensor must lie in one shard",
                      io::quote(name) + " in " + first.file_name + " and " + shard.file_name);
      }
    }
  }
}

void check_index(Source* source) {
  const std::string where = source->path + "/" + kIndexName;
  std::unordered_set<std::string> indexed;
  for (const auto& [tensor, file] : source->index->weight_map) {
    const TensorRef ref = source->find(tensor);
    const std::string found =
        ref.found() ? "it in " + source->shards[static_cast<size_t>(ref.shard)].file_name
                    : "none of that name";
    if (!ref.found() || source->shards[static_cast<size_t>(ref.shard)].file_name != file) {
      io::malformed(where, "tensor " + io::quote(tensor) + " must lie in " + file, found);
    }
    indexed.insert(tensor);
  }
  for (const Shard& shard : source->shards) {
    for (const io::TensorEntry& tensor : shard.header.tensors) {
      if (!indexed.count(tensor.name)) {
        source->warnings.push_back("tensor " + io::quote(tensor.name) + " of " + shard.file_name +
                                   " is missing from " + kIndexName + "; it is kept and listed");
        source->index->weight_map.emplace_back(tensor.name, shard.file_name);
      }
    }
  }
}

}  // namespace

TensorRef Source::find(const std::string& name) const {
  const auto found = by_name.find(name);
  return found == by_name.end() ? TensorRef{} : found->second;
}

io::File Source::open(int shard) const {
  const Shard& source = shards[static_cast<size_t>(shard)];
  io::File file = io::File::open_read(source.path);
  if (file.size() != source.header.file_bytes()) {
    io::malformed(
        source.path, "the file must stay as it was when the work began",
        counted(file.size(), "byte") + " instead of " + std::to_string(source.header.file_bytes()));
  }
  return file;
}

Source open_source(const std::string& path) {
  Source source;
  source.path = path;
  while (source.path.size() > 1 && source.path.back() == '/') source.path.pop_back();
  std::error_code error;
  const fs::file_status status = fs::status(source.path, error);
  if (status.type() == fs::file_type::none) {
    throw BackendError(message("checkpoint", path + ": cannot be reached: " + error.message()));
  }
  source.is_folder = fs::is_directory(status);
  if (!source.is_folder && !fs::is_regular_file(status)) {
    throw std::invalid_argument(message("checkpoint", path + ":",
                                        "must be a .safetensors file or a folder",
                                        fs::exists(status) ? "something else" : "nothing there"));
  }
  if (!source.is_folder) {
    add_shard(&source, "", fs::path(source.path).filename());
    collect_names(&source);
    return source;
  }
  const std::string index_path = source.path + "/" + kIndexName;
  if (fs::exists(index_path)) {
    source.index = io::parse_index(io::read_small_file(index_path, io::kMaxIndexBytes), index_path);
  }
  for (const std::string& name : shard_names(source)) add_shard(&source, source.path, name);
  if (source.shards.empty()) {
    throw std::invalid_argument(
        message("checkpoint", path + ":", "must hold .safetensors files", "none"));
  }
  collect_names(&source);
  if (source.index) check_index(&source);
  const std::string config_path = source.path + "/" + kConfigName;
  if (fs::exists(config_path)) {
    source.config = io::parse_json(io::read_small_file(config_path, kMaxConfigBytes), config_path);
    if (!source.config->is_object()) {
      io::malformed(config_path, "the file must hold a JSON object", source.config->type_name());
    }
    source.claim = read_claim(*source.config, config_path);
  }
  const fs::path root = fs::canonical(source.path);
  collect_side_files(root, root, 0, &source);
  return source;
}

TensorRef find_scale(const Source& source, const std::string& weight) {
  TensorRef found;
  for (const std::string& name : scale_names(weight)) {
    const TensorRef ref = source.find(name);
    if (!ref.found()) continue;
    if (found.found()) {
      io::malformed(source.path + ": tensor " + io::quote(weight), "there must be one scale",
                    io::quote(source.tensor(found).name) + " and " + io::quote(name));
    }
    found = ref;
  }
  return found;
}

}  // namespace tilekernels::checkpoint
