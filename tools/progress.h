// Progress of a long command on standard error: a bar on a terminal, plain lines elsewhere.
#pragma once

#include <atomic>
#include <chrono>
#include <mutex>
#include <string>

#include "tilekernels/checkpoint.h"

namespace tilekernels::tool {

/// Shows stage, share, rate and time left. SIGINT, SIGTERM and SIGHUP cancel the work instead of
/// ending the process, so that nothing half-done is left behind; a second one ends it at once.
class ShownProgress : public Progress {
 public:
  explicit ShownProgress(bool quiet);
  ~ShownProgress() override;

  void begin(std::string_view stage, int64_t total_bytes) override;
  void advance(int64_t bytes) override;
  void end() override;
  bool cancelled() override;

 private:
  using Clock = std::chrono::steady_clock;
  void show(Clock::time_point now, bool last);

  bool quiet_;
  bool on_terminal_;
  std::string stage_;
  int64_t total_ = 0;
  std::atomic<int64_t> done_{0};
  bool is_within_line_ = false;  // a bar was shown, and its line has not ended
  Clock::time_point start_;
  std::mutex mutex_;
  Clock::time_point next_;
};

/// "1.50 GiB", "12 bytes".
std::string human_bytes(int64_t bytes);
/// "1h02m", "3m05s", "12 s".
std::string human_seconds(double seconds);

}  // namespace tilekernels::tool
