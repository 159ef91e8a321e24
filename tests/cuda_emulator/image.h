// What stands for a cubin: the host's shared object behind a head that says what it is.
#pragma once

#include <cstring>
#include <string>
#include <string_view>

namespace cuda_emulator {

constexpr std::string_view kImageHead = "CUDA emulator (host) object ";

inline std::string make_image(const std::string& object) {
  return std::string(kImageHead) + std::to_string(object.size()) + "\n" + object;
}

/// The object in an image; empty when it is something else.
inline std::string_view object_of(const void* image) {
  const char* text = static_cast<const char*>(image);
  if (std::strncmp(text, kImageHead.data(), kImageHead.size()) != 0) return {};
  char* end = nullptr;
  const size_t size = std::strtoul(text + kImageHead.size(), &end, 10);
  return {end + 1, size};
}

}  // namespace cuda_emulator
