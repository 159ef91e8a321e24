// Compiled kernels on disk: one file a key, whole or absent, one compilation among processes.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>

#include "runtime/jit/compile.h"
#include "tilekernels/cache.h"

namespace tilekernels::jit {

/// How long a process waits for another one that compiles the same kernel before it compiles it
/// itself: a holder that died has let go already, this is for one that is stopped.
constexpr std::chrono::milliseconds kLockPatience{20000};

/// The kernel of that key: from the folder, else made by `make` and published there. Whatever is
/// wrong with the folder, a damaged or altered file, a folder that cannot be read or written, a
/// full disk, costs a call of `make` and a warning. An empty folder: no cache.
Compiled find_or_make(const std::string& folder, const std::string& key,
                      const std::function<Compiled()>& make,
                      std::chrono::milliseconds patience = kLockPatience);

/// The file of that key.
std::string cache_file(const std::string& folder, const std::string& key);

struct CacheFile {
  std::string key;
  Compiled compiled;
};
/// What is in that file, if it is whole.
std::optional<CacheFile> read_cache_file(const std::string& path);

/// A kernel as `list_cache` shows it, but for its path.
CompiledKernel describe(const std::string& key, const Compiled& compiled);

}  // namespace tilekernels::jit
