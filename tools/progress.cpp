// Progress of a long command on standard error: a bar on a terminal, plain lines elsewhere.
#include "progress.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "printable.h"

namespace tilekernels::tool {
namespace {

constexpr int kBarWidth = 30;
constexpr auto kBarEvery = std::chrono::milliseconds(100);
constexpr auto kLineEvery = std::chrono::seconds(5);
constexpr int kSignals[] = {SIGINT, SIGTERM, SIGHUP};

volatile sig_atomic_t g_signal = 0;

extern "C" void on_signal(int number) {
  if (g_signal != 0) _exit(128 + number);
  g_signal = number;
}

}  // namespace

ShownProgress::ShownProgress(bool quiet)
    : quiet_(quiet), on_terminal_(::isatty(STDERR_FILENO) == 1) {
  struct sigaction action = {};
  action.sa_handler = on_signal;
  ::sigemptyset(&action.sa_mask);
  for (const int number : kSignals) ::sigaction(number, &action, nullptr);
  // A file size limit is then an error of write(2), with a message and a cleanup.
  ::signal(SIGXFSZ, SIG_IGN);
}

ShownProgress::~ShownProgress() {
  // After a failure or a signal: what is printed next has a line of its own.
  if (is_within_line_) std::fputc('\n', stderr);
  for (const int number : kSignals) ::signal(number, SIG_DFL);
}

void ShownProgress::begin(std::string_view stage, int64_t total_bytes) {
  stage_ = stage;
  total_ = total_bytes;
  done_ = 0;
  start_ = Clock::now();
  next_ = start_ + (on_terminal_ ? Clock::duration(kBarEvery) : Clock::duration(kLineEvery));
}

void ShownProgress::advance(int64_t bytes) {
  done_ += bytes;
  if (quiet_) return;
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock) return;  // another thread is showing
  const Clock::time_point now = Clock::now();
  if (now < next_) return;
  next_ = now + (on_terminal_ ? Clock::duration(kBarEvery) : Clock::duration(kLineEvery));
  show(now, false);
}

void ShownProgress::end() {
  if (!quiet_) show(Clock::now(), true);
}

bool ShownProgress::cancelled() { return g_signal != 0; }

void ShownProgress::show(Clock::time_point now, bool last) {
  const double seconds = std::max(1e-9, std::chrono::duration<double>(now - start_).count());
  const int64_t done = done_;
  const double share =
      total_ > 0 ? std::min(1.0, static_cast<double>(done) / static_cast<double>(total_)) : 1.0;
  const double rate = static_cast<double>(done) / seconds;
  const std::string of = human_bytes(done) + " of " + human_bytes(total_);
  const std::string speed = human_bytes(static_cast<int64_t>(rate)) + "/s";
  const std::string left = last        ? "in " + human_seconds(seconds)
                           : share > 0 ? human_seconds(seconds / share - seconds) + " left"
                                       : std::string("…");
  is_within_line_ = on_terminal_ && !last;
  if (on_terminal_) {
    const int filled = static_cast<int>(share * kBarWidth);
    const std::string bar = std::string(static_cast<size_t>(filled), '#') +
                            std::string(static_cast<size_t>(kBarWidth - filled), '-');
    std::fprintf(stderr, "\r\033[K%s [%s] %3.0f%%  %s  %s  %s%s", stage_.c_str(), bar.c_str(),
                 share * 100, of.c_str(), speed.c_str(), left.c_str(), last ? "\n" : "");
  } else {
    std::fprintf(stderr, "%s %3.0f%%  %s  %s  %s\n", stage_.c_str(), share * 100, of.c_str(),
                 speed.c_str(), left.c_str());
  }
  std::fflush(stderr);
}

std::string human_bytes(int64_t bytes) {
  constexpr const char* kUnits[] = {"KiB", "MiB", "GiB", "TiB"};
  if (bytes < 1024) return counted(bytes, "byte");
  double value = static_cast<double>(bytes) / 1024;
  size_t unit = 0;
  while (value >= 1024 && unit + 1 < std::size(kUnits)) {
    value /= 1024;
    ++unit;
  }
  char text[32];
  std::snprintf(text, sizeof text, "%.*f %s",
                value < 10    ? 2
                : value < 100 ? 1
                              : 0,
                value, kUnits[unit]);
  return text;
}

std::string human_seconds(double seconds) {
  char text[64];
  const int64_t whole = static_cast<int64_t>(seconds + 0.5);
  if (seconds < 10) {
    std::snprintf(text, sizeof text, "%.1f s", seconds);
  } else if (whole < 60) {
    std::snprintf(text, sizeof text, "%lld s", static_cast<long long>(whole));
  } else if (whole < 3600) {
    std::snprintf(text, sizeof text, "%lldm%02llds", static_cast<long long>(whole / 60),
                  static_cast<long long>(whole % 60));
  } else {
    std::snprintf(text, sizeof text, "%lldh%02lldm", static_cast<long long>(whole / 3600),
                  static_cast<long long>(whole / 60 % 60));
  }
  return text;
}

}  // namespace tilekernels::tool
