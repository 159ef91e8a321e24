// Element types of safetensors, sizes, and the writer's header.
#include "io/safetensors.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "core/message.h"
#include "io/json.h"
#include "io/text.h"

namespace tilekernels::io {
namespace {

struct DTypeRow {
  std::string_view name;
  int bits;
};

// In the order of StDType.
constexpr std::array<DTypeRow, kNumStDTypes> kDTypes = {{
    {"BOOL", 8},        {"F4", 4},      {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"U8", 8},
    {"I8", 8},          {"F8_E5M2", 8}, {"F8_E4M3", 8}, {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8},
    {"F8_E5M2FNUZ", 8}, {"I16", 16},    {"U16", 16},    {"F16", 16},    {"BF16", 16},
    {"I32", 32},        {"U32", 32},    {"F32", 32},    {"C64", 64},    {"F64", 64},
    {"I64", 64},        {"U64", 64},
}};

}  // namespace

std::string_view name(StDType dtype) { return kDTypes[static_cast<size_t>(dtype)].name; }
int bits(StDType dtype) { return kDTypes[static_cast<size_t>(dtype)].bits; }

int64_t TensorEntry::numel() const {
  int64_t count = 1;
  for (const int64_t extent : shape) count *= extent;
  return count;
}

int64_t tensor_bytes(StDType dtype, const std::vector<int64_t>& shape, const std::string& where) {
  if (shape.size() > kMaxRankInFile) {
    malformed(where, "the rank must be at most " + std::to_string(kMaxRankInFile),
              std::to_string(shape.size()));
  }
  int64_t numel = 1;
  int64_t product = 1;  // of the extents that are not 0: [2^40, 2^40, 0] must not wrap either
  for (const int64_t extent : shape) {
    if (extent < 0) malformed(where, "extents must not be negative", shape_text(shape));
    numel = extent == 0 ? 0 : numel;
    if (extent != 0 && __builtin_mul_overflow(product, extent, &product)) {
      malformed(where, "the number of elements must be below 2^63", shape_text(shape));
    }
  }
  if (numel != 0) numel = product;
  const int64_t width = bits(dtype);
  int64_t total_bits;
  if (__builtin_mul_overflow(product, width, &total_bits)) {
    malformed(where, "the size must be below 2^63 bits", shape_text(shape));
  }
  if (numel == 0) return 0;
  if (dtype == StDType::kF4 && (shape.empty() || shape.back() % 2 != 0)) {
    malformed(where, "F4 holds two elements a byte, so the last dimension must be even",
              shape_text(shape));
  }
  if (total_bits % 8 != 0) {
    malformed(where, std::string(name(dtype)) + " elements must fill whole bytes",
              shape_text(shape) + " of " + counted(total_bits, "bit"));
  }
  return total_bits / 8;
}

std::string build_header(Header* header) {
  int64_t offset = 0;
  Json object = Json::object();
  Json::object_t::Container& members = object.get_ref<Json::object_t&>();
  if (!header->metadata.empty()) {
    Json metadata = Json::object();
    Json::object_t::Container& pairs = metadata.get_ref<Json::object_t&>();
    for (const auto& [key, value] : header->metadata) pairs.emplace_back(key, value);
    members.emplace_back("__metadata__", std::move(metadata));
  }
  for (TensorEntry& tensor : header->tensors) {
    tensor.begin = offset;
    offset += tensor_bytes(tensor.dtype, tensor.shape, "tensor " + quote(tensor.name));
    tensor.end = offset;
    Json entry = Json::object();
    entry["dtype"] = std::string(name(tensor.dtype));
    entry["shape"] = tensor.shape;
    entry["data_offsets"] = {tensor.begin, tensor.end};
    members.emplace_back(tensor.name, std::move(entry));
  }
  std::string text = object.dump();
  text.append((8 - text.size() % 8) % 8, ' ');
  const uint64_t length = text.size();
  if (static_cast<int64_t>(length) > kMaxHeaderBytes) {
    malformed("the output's header", "the header must have at most 100000000 bytes",
              std::to_string(length));
  }
  std::string bytes(sizeof length, '\0');
  for (size_t i = 0; i < sizeof length; ++i) bytes[i] = static_cast<char>(length >> (8 * i));
  header->data_start = static_cast<int64_t>(sizeof length + length);
  return bytes + text;
}

Header read_header(const File& file) {
  const int64_t size = file.size();
  const std::string& where = file.path();
  if (size < 8) {
    malformed(where, "a safetensors file must begin with 8 bytes of header length",
              counted(size, "byte"));
  }
  unsigned char head[8];
  file.read_at(0, head, 8);
  uint64_t length = 0;
  for (size_t i = 0; i < 8; ++i) length |= uint64_t{head[i]} << (8 * i);
  if (length > static_cast<uint64_t>(kMaxHeaderBytes)) {
    malformed(where, "the header must have at most 100000000 bytes",
              std::to_string(length) + " (is this a safetensors file?)");
  }
  if (length > static_cast<uint64_t>(size - 8)) {
    malformed(where, "the header must end within the file's " + std::to_string(size) + " bytes",
              "a header of " + std::to_string(length));
  }
  std::string text(length, '\0');
  file.read_at(8, text.data(), static_cast<int64_t>(length));
  const int64_t data_start = 8 + static_cast<int64_t>(length);
  Header header = parse_header(text, size - data_start, where);
  header.data_start = data_start;
  return header;
}

Index parse_index(std::string_view text, const std::string& where) {
  const Json root = parse_json(text, where);
  if (!root.is_object()) malformed(where, "an index must be an object", root.type_name());
  const Json* map = find_member(root, "weight_map");
  if (map == nullptr || !map->is_object()) {
    malformed(where, "an index must hold an object \"weight_map\"",
              map == nullptr ? "none" : map->type_name());
  }
  Index index;
  constexpr std::string_view kSuffix = ".safetensors";
  for (const auto& [tensor, file] : map->get_ref<const Json::object_t&>()) {
    const std::string at = where + ": weight_map of " + quote(tensor);
    if (!file.is_string()) malformed(at, "a shard must be a file name", file.type_name());
    const std::string& shard = file.get_ref<const std::string&>();
    const bool plain = std::none_of(shard.begin(), shard.end(), [](char c) {
      return c == '/' || c == '\\' || static_cast<unsigned char>(c) < 0x20 || c == 0x7F;
    });
    if (!plain || shard.empty() || shard[0] == '.' || shard.size() > 255) {
      malformed(at, "a shard must be a plain file name in the index's own folder", quote(shard));
    }
    if (shard.size() <= kSuffix.size() ||
        shard.compare(shard.size() - kSuffix.size(), kSuffix.size(), kSuffix) != 0) {
      malformed(at, "a shard's name must end in .safetensors", quote(shard));
    }
    index.weight_map.emplace_back(tensor, shard);
  }
  if (const Json* metadata = find_member(root, "metadata"); metadata != nullptr) {
    if (!metadata->is_object()) {
      malformed(where, "an index's \"metadata\" must be an object", metadata->type_name());
    }
    index.metadata = metadata->dump();
  }
  if (map->empty()) malformed(where, "weight_map must name at least one tensor", "none");
  return index;
}

std::string build_index(const Index& index, int64_t total_bytes) {
  Json metadata = Json::object();
  if (!index.metadata.empty()) metadata = parse_json(index.metadata, "metadata of the index");
  metadata["total_size"] = total_bytes;
  Json map = Json::object();
  Json::object_t::Container& members = map.get_ref<Json::object_t&>();
  for (const auto& [tensor, shard] : index.weight_map) members.emplace_back(tensor, shard);
  Json root = Json::object();
  root["metadata"] = std::move(metadata);
  root["weight_map"] = std::move(map);
  return dump_json(root);
}

}  // namespace tilekernels::io
