// Warnings: what the user may want to know though the call is right.
#include "core/log.h"

#include <mutex>
#include <set>
#include <utility>

#include "tilekernels/config.h"

namespace tilekernels {
namespace {

struct Log {
  std::mutex mutex;
  LogHook hook;
  std::set<std::string> said;
};

// Never destroyed: threads may outlive main.
Log& log() {
  static Log* const log = new Log;
  return *log;
}

}  // namespace

void set_log_hook(LogHook hook) {
  const std::lock_guard lock(log().mutex);
  log().hook = std::move(hook);
}

void warn_once(const std::string& sentence) {
  LogHook hook;
  {
    const std::lock_guard lock(log().mutex);
    if (!log().hook || !log().said.insert(sentence).second) return;
    hook = log().hook;
  }
  hook(sentence);
}

}  // namespace tilekernels
