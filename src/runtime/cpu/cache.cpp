// Reads the cache sizes that the kernel publishes.
#include "runtime/cpu/cache.h"

#include <unistd.h>

#include <cstdio>

namespace tilekernels::cpu {
namespace {

// The largest cache of core 0, 0 when the kernel does not tell.
int64_t cache_bytes_from_sysfs() {
  int64_t largest = 0;
  for (int index = 0; index < 8; ++index) {
    char path[64];
    std::snprintf(path, sizeof(path), "/sys/devices/system/cpu/cpu0/cache/index%d/size", index);
    std::FILE* const file = std::fopen(path, "re");
    if (file == nullptr) break;
    long long kib = 0;
    char unit = 0;
    if (std::fscanf(file, "%lld%c", &kib, &unit) == 2 && unit == 'K') {
      const int64_t bytes = int64_t{kib} * 1024;
      if (bytes > largest) largest = bytes;
    }
    std::fclose(file);
  }
  return largest;
}

int64_t read_cache_bytes() {
  // sysconf comes second: on AMD it adds up the caches of all core groups.
  if (const int64_t bytes = cache_bytes_from_sysfs(); bytes > 0) return bytes;
#ifdef _SC_LEVEL3_CACHE_SIZE
  if (const long bytes = sysconf(_SC_LEVEL3_CACHE_SIZE); bytes > 0) return bytes;
  if (const long bytes = sysconf(_SC_LEVEL2_CACHE_SIZE); bytes > 0) return bytes;
#endif
  constexpr int64_t kTypical = 32 << 20;
  return kTypical;
}

}  // namespace

int64_t last_level_cache_bytes() {
  static const int64_t bytes = read_cache_bytes();
  return bytes;
}

bool should_stream(int64_t output_bytes) {
  // Widening bytes to twice as many, streaming stores were as fast as plain ones from 4 MiB of
  // output on with 32 MiB of cache (Zen 3), from 48 MiB on with 300 MiB (Sapphire Rapids); from
  // twice these sizes on they were 1.3 to 3 times as fast.
  return output_bytes >= last_level_cache_bytes() / 4;
}

}  // namespace tilekernels::cpu
