// libFuzzer target for everything that a checkpoint's files say about themselves.
#include <cstddef>
#include <cstdint>

#include "parse_once.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  tilekernels::parse_once(std::string_view(reinterpret_cast<const char*>(bytes), size));
  return 0;
}
