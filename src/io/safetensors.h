// The safetensors format: element types, header and index, read as hostile, written the same
// every time.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "io/file.h"

namespace tilekernels::io {

/// Element types of the format. F4 holds two elements a byte, F6 four in three bytes; shapes count
/// elements.
enum class StDType : int32_t {
  kBool,
  kF4,
  kF6E2M3,
  kF6E3M2,
  kU8,
  kI8,
  kF8E5M2,
  kF8E4M3,
  kF8E8M0,
  kF8E4M3Fnuz,
  kF8E5M2Fnuz,
  kI16,
  kU16,
  kF16,
  kBF16,
  kI32,
  kU32,
  kF32,
  kC64,
  kF64,
  kI64,
  kU64,
};
inline constexpr int kNumStDTypes = 22;

/// "F8_E4M3".
std::string_view name(StDType dtype);
/// Bits of one element.
int bits(StDType dtype);

/// One tensor of a file: bytes [begin, end) of the data section.
struct TensorEntry {
  std::string name;
  StDType dtype = StDType::kF32;
  std::vector<int64_t> shape;
  int64_t begin = 0;
  int64_t end = 0;

  int64_t bytes() const { return end - begin; }
  int64_t numel() const;
};

/// A file's header. `tensors` lie in the order of their data, without gaps.
struct Header {
  std::vector<TensorEntry> tensors;
  std::vector<std::pair<std::string, std::string>> metadata;
  /// Where the data section begins in the file.
  int64_t data_start = 0;

  int64_t data_bytes() const { return tensors.empty() ? 0 : tensors.back().end; }
  int64_t file_bytes() const { return data_start + data_bytes(); }
};

/// The format's own limit on the header's length, and ours on names and ranks.
inline constexpr int64_t kMaxHeaderBytes = 100'000'000;
inline constexpr size_t kMaxNameBytes = 1024;
inline constexpr size_t kMaxRankInFile = 32;

/// Bytes of a tensor.
/// Errors: DataError naming `where` for a negative extent, more than 2^63 - 1 bytes, an F4 tensor
/// whose last dimension is odd, or F6 elements that do not fill whole bytes.
int64_t tensor_bytes(StDType dtype, const std::vector<int64_t>& shape, const std::string& where);

/// The header's JSON, `text`, of a file named `where` with `data_bytes` after it.
/// Errors: DataError naming file, tensor, rule and value for everything the format forbids.
Header parse_header(std::string_view text, int64_t data_bytes, const std::string& where);

/// Reads and checks the header of an open file.
Header read_header(const File& file);

/// The first bytes of a file with these tensors, in this order: length and JSON, padded with
/// spaces to 8 bytes. Sets every `begin`, `end` and `data_start`.
std::string build_header(Header* header);

/// A sharded checkpoint's index.
struct Index {
  /// Tensor name and shard file name, in the file's order.
  std::vector<std::pair<std::string, std::string>> weight_map;
  /// The "metadata" object as JSON text, empty when there was none.
  std::string metadata;
};

inline constexpr int64_t kMaxIndexBytes = int64_t{64} << 20;

/// Errors: DataError for bad JSON, a missing weight_map, and a shard that is not a plain file name
/// ending in .safetensors: nothing may lead out of the folder.
Index parse_index(std::string_view text, const std::string& where);

/// The index with metadata's "total_size" set to `total_bytes`; other metadata is kept.
std::string build_index(const Index& index, int64_t total_bytes);

}  // namespace tilekernels::io
