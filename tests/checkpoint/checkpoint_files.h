// Small checkpoints for tests: made from rows of numbers, read back into a map.
#pragma once

#include <cmath>
#include <cstring>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "errors.h"
#include "io/safetensors.h"
#include "io/test_folder.h"
#include "io/writer.h"

namespace tilekernels {

struct MadeTensor {
  std::string name;
  io::StDType dtype = io::StDType::kF32;
  std::vector<int64_t> shape;
  std::string bytes;

  bool operator==(const MadeTensor& other) const {
    return dtype == other.dtype && shape == other.shape && bytes == other.bytes;
  }
};

template <class T>
std::string bytes_of(const std::vector<T>& values) {
  std::string bytes(values.size() * sizeof(T), '\0');
  if (!bytes.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

inline int64_t numel(const std::vector<int64_t>& shape) {
  int64_t count = 1;
  for (const int64_t extent : shape) count *= extent;
  return count;
}

/// The same pseudo-random words everywhere.
class Words {
 public:
  explicit Words(uint64_t seed) : state_(seed) {}
  uint64_t next() {
    uint64_t z = (state_ += 0x9E3779B97F4A7C15u);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
  }
  /// In (-1, 1), few of them equal.
  float real() {
    return static_cast<float>(static_cast<int64_t>(next() >> 39) - (1 << 24)) * 0x1p-24f;
  }

 private:
  uint64_t state_;
};

inline MadeTensor f32_tensor(const std::string& name, const std::vector<int64_t>& shape,
                             uint64_t seed = 1) {
  Words words(seed);
  std::vector<float> values(static_cast<size_t>(numel(shape)));
  for (float& value : values) value = words.real();
  return {name, io::StDType::kF32, shape, bytes_of(values)};
}

/// Random bf16 numbers in (-1, 1).
inline MadeTensor bf16_tensor(const std::string& name, const std::vector<int64_t>& shape,
                              uint64_t seed = 1) {
  Words words(seed);
  std::vector<uint16_t> values(static_cast<size_t>(numel(shape)));
  for (uint16_t& value : values) {
    const float real = words.real();
    uint32_t bits;
    std::memcpy(&bits, &real, 4);
    value = static_cast<uint16_t>(bits >> 16);
  }
  return {name, io::StDType::kBF16, shape, bytes_of(values)};
}

/// Random codes without NaN.
inline MadeTensor e4m3_tensor(const std::string& name, const std::vector<int64_t>& shape,
                              uint64_t seed = 1) {
  Words words(seed);
  std::vector<uint8_t> values(static_cast<size_t>(numel(shape)));
  for (uint8_t& value : values) {
    value = static_cast<uint8_t>(words.next());
    if ((value & 0x7F) == 0x7F) value ^= 1;
  }
  return {name, io::StDType::kF8E4M3, shape, bytes_of(values)};
}

inline void write_checkpoint(const TestFolder& folder, const std::string& file,
                             const std::vector<MadeTensor>& tensors) {
  io::Header header;
  header.metadata = {{"format", "pt"}};
  for (const MadeTensor& tensor : tensors) {
    header.tensors.push_back({tensor.name, tensor.dtype, tensor.shape, 0, 0});
  }
  const size_t slash = file.rfind('/');
  const std::string sub = slash == std::string::npos ? "" : "/" + file.substr(0, slash);
  std::filesystem::create_directories(folder.path() + sub);
  io::SafetensorsWriter writer(folder.path() + sub,
                               slash == std::string::npos ? file : file.substr(slash + 1), header);
  for (size_t i = 0; i < tensors.size(); ++i) {
    writer.write(i, 0, tensors[i].bytes.data(), static_cast<int64_t>(tensors[i].bytes.size()));
  }
  writer.publish(false);
}

using Tensors = std::map<std::string, MadeTensor>;

inline Tensors read_checkpoint(const std::string& path) {
  const io::File file = io::File::open_read(path);
  const io::Header header = io::read_header(file);
  Tensors tensors;
  for (const io::TensorEntry& entry : header.tensors) {
    MadeTensor tensor{entry.name, entry.dtype, entry.shape,
                      std::string(static_cast<size_t>(entry.bytes()), '\0')};
    file.read_at(header.data_start + entry.begin, tensor.bytes.data(), entry.bytes());
    tensors[entry.name] = std::move(tensor);
  }
  return tensors;
}

template <class T>
std::vector<T> values_of(const MadeTensor& tensor) {
  std::vector<T> values(tensor.bytes.size() / sizeof(T));
  if (!values.empty()) std::memcpy(values.data(), tensor.bytes.data(), tensor.bytes.size());
  return values;
}

inline bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace tilekernels
