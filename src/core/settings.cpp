// The process's settings: start values from the environment, read once; then the setters.
#include "core/settings.h"

#include <sched.h>

#include <atomic>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <stdexcept>
#include <utility>

#include "core/message.h"
#include "numerics/scaling.h"
#include "runtime/cpu/targets.h"
#include "tilekernels/cache.h"

namespace tilekernels {
namespace {

constexpr int kMaxThreads = 1024;
constexpr int kMaxTokenAlignment = 1 << 20;
constexpr int kNoBackend = -1;

int cores_allowed() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return 1;
  const int count = CPU_COUNT(&set);
  return count < 1 ? 1 : count;
}

// An unset or empty variable is null.
const char* environment(const char* variable) {
  const char* text = std::getenv(variable);
  return text == nullptr || *text == '\0' ? nullptr : text;
}

int start_backend() {
  const char* text = environment("TILEKERNELS_BACKEND");
  if (text == nullptr) return kNoBackend;
  for (int i = 0; i < kNumBackends; ++i) {
    if (name(static_cast<Backend>(i)) == text) return i;
  }
  throw std::invalid_argument(
      message("settings", "TILEKERNELS_BACKEND", "must be reference, cpu, cuda or ascend", text));
}

int start_num_threads() {
  const char* text = environment("TILEKERNELS_NUM_THREADS");
  if (text == nullptr) return 0;
  int value = -1;
  const char* end = text + std::strlen(text);
  const auto [rest, error] = std::from_chars(text, end, value);
  if (error != std::errc() || rest != end || value < 0 || value > kMaxThreads) {
    throw std::invalid_argument(
        message("settings", "TILEKERNELS_NUM_THREADS", "must be in 0..1024", text));
  }
  return value;
}

bool start_check_data() {
  const char* text = environment("TILEKERNELS_CHECK_DATA");
  if (text == nullptr || std::strcmp(text, "1") == 0) return true;
  if (std::strcmp(text, "0") == 0) return false;
  throw std::invalid_argument(
      message("settings", "TILEKERNELS_CHECK_DATA", "must be 0 or 1", text));
}

std::string start_cpu_target() {
  const char* text = environment("TILEKERNELS_CPU_TARGET");
  return text == nullptr ? "" : text;
}

void force_cpu_target(std::string_view op, std::string_view argument, std::string_view target) {
  if (cpu::force_target(target)) return;
  std::string names;
  for (const std::string& candidate : cpu::targets()) {
    names += (names.empty() ? "" : ", ") + candidate;
  }
  throw std::invalid_argument(message(
      op, argument, names.empty() ? "must be empty here" : "must be one of " + names, target));
}

// What the environment asks for, read once.
struct StartValues {
  int backend = start_backend();
  int num_threads = start_num_threads();
  bool check_data = start_check_data();
  std::string cpu_target = start_cpu_target();
};

struct Settings {
  Settings() { reset(); }

  void reset() {
    backend = start.backend;
    num_threads = start.num_threads;
    check_data = start.check_data;
    pdl = false;
    num_sms = 0;
    token_alignment = 128;
    deterministic = false;
    for (const bool fp4 : {false, true}) {
      for (const bool e4m3_sf : {false, true}) {
        amax_clamps[fp4][e4m3_sf] = numerics::default_amax_clamp(fp4, e4m3_sf);
      }
    }
    force_cpu_target("settings", "TILEKERNELS_CPU_TARGET", start.cpu_target);
  }

  const StartValues start;
  std::atomic<int> backend;
  std::atomic<int> num_threads;
  std::atomic<bool> check_data;
  std::atomic<bool> pdl;
  std::atomic<int> num_sms;
  std::atomic<int> token_alignment;
  std::atomic<bool> deterministic;
  std::atomic<float> amax_clamps[2][2];
};

Settings& settings() {
  static Settings settings;
  return settings;
}

std::string start_cache_dir() {
  if (const char* folder = environment("TILEKERNELS_CACHE_DIR")) return folder;
  // A relative path there is to be ignored, says the XDG base directory specification.
  const char* caches = environment("XDG_CACHE_HOME");
  if (caches != nullptr && *caches == '/') {
    return std::string(caches) + "/tilekernels";
  }
  if (const char* home = environment("HOME")) return std::string(home) + "/.cache/tilekernels";
  return "";
}

struct CacheDir {
  std::mutex mutex;
  std::string folder = start_cache_dir();
};

CacheDir& cache_dir_setting() {
  static CacheDir setting;
  return setting;
}

void check_clamp(std::string_view op, std::string_view argument, bool is_e2m1, bool use_e4m3_sf,
                 float value) {
  if (!numerics::is_legal_amax_clamp(is_e2m1, use_e4m3_sf, value)) {
    const float least = numerics::min_amax_clamp(is_e2m1, use_e4m3_sf);
    throw std::invalid_argument(
        message(op, argument, "must be finite and at least " + to_text(least), to_text(value)));
  }
}

bool is_e2m1(std::string_view op, DType fmt) {
  if (fmt != DType::kE4M3 && fmt != DType::kE2M1x2) {
    throw std::invalid_argument(message(op, "fmt", "must be e4m3 or e2m1", name(fmt)));
  }
  return fmt == DType::kE2M1x2;
}

}  // namespace

void set_backend(std::optional<Backend> backend) {
  settings().backend = backend ? static_cast<int>(*backend) : kNoBackend;
}

std::optional<Backend> get_backend() {
  const int backend = settings().backend;
  if (backend == kNoBackend) return std::nullopt;
  return static_cast<Backend>(backend);
}

void set_num_threads(int num_threads) {
  if (num_threads < 0 || num_threads > kMaxThreads) {
    throw std::invalid_argument(
        message("set_num_threads", "num_threads", "must be in 0..1024", num_threads));
  }
  settings().num_threads = num_threads;
}

int get_num_threads() {
  const int num_threads = settings().num_threads;
  static const int cores = cores_allowed();
  return num_threads != 0 ? num_threads : cores;
}

std::vector<std::string> cpu_targets() { return cpu::targets(); }

void set_cpu_target(std::string_view target) {
  settings();
  force_cpu_target("set_cpu_target", "target", target);
}

std::string get_cpu_target() {
  settings();
  return cpu::target();
}

void set_check_data(bool enabled) { settings().check_data = enabled; }

bool get_check_data() { return settings().check_data; }

void set_pdl(bool enabled) { settings().pdl = enabled; }

bool get_pdl() { return settings().pdl; }

void set_num_sms(int num_sms) {
  const int most = get_device_num_sms();
  if (num_sms < 1 || num_sms > most) {
    throw std::invalid_argument(
        message("set_num_sms", "num_sms", "must be in 1.." + std::to_string(most), num_sms));
  }
  settings().num_sms = num_sms;
}

int num_sms_limit() { return settings().num_sms.load(std::memory_order_relaxed); }

void set_token_alignment(int token_alignment) {
  if (token_alignment < 1 || token_alignment > kMaxTokenAlignment) {
    throw std::invalid_argument(message("set_token_alignment", "token_alignment",
                                        "must be in 1.." + std::to_string(kMaxTokenAlignment),
                                        token_alignment));
  }
  settings().token_alignment = token_alignment;
}

int get_token_alignment() { return settings().token_alignment; }

void use_deterministic_algorithms(bool enabled) { settings().deterministic = enabled; }

bool get_deterministic_algorithms() { return settings().deterministic; }

std::string cache_dir() {
  const std::lock_guard lock(cache_dir_setting().mutex);
  return cache_dir_setting().folder;
}

void set_cache_dir(std::string folder) {
  const std::lock_guard lock(cache_dir_setting().mutex);
  cache_dir_setting().folder = std::move(folder);
}

std::string cuda_library() {
  const char* path = environment("TILEKERNELS_CUDA_LIBRARY");
  return path == nullptr ? "" : path;
}

std::string nvrtc_library() {
  const char* path = environment("TILEKERNELS_NVRTC_LIBRARY");
  return path == nullptr ? "" : path;
}

std::string ascendcl_library() {
  const char* path = environment("TILEKERNELS_ASCENDCL_LIBRARY");
  return path == nullptr ? "" : path;
}

std::string aclrtc_library() {
  const char* path = environment("TILEKERNELS_ACLRTC_LIBRARY");
  return path == nullptr ? "" : path;
}

void set_amax_clamp_for_quant(DType fmt, bool use_e4m3_sf, float value) {
  const bool fp4 = is_e2m1("set_amax_clamp_for_quant", fmt);
  check_clamp("set_amax_clamp_for_quant", "value", fp4, use_e4m3_sf, value);
  settings().amax_clamps[fp4][use_e4m3_sf] = value;
}

float get_amax_clamp_for_quant(DType fmt, bool use_e4m3_sf) {
  return settings().amax_clamps[is_e2m1("get_amax_clamp_for_quant", fmt)][use_e4m3_sf];
}

float amax_clamp_or_default(const char* op, const std::optional<float>& clamp, DType fmt,
                            bool use_e4m3_sf) {
  const bool fp4 = fmt == DType::kE2M1x2;
  if (!clamp) return settings().amax_clamps[fp4][use_e4m3_sf];
  check_clamp(op, "amax_clamp", fp4, use_e4m3_sf, *clamp);
  return *clamp;
}

void reset_runtime_config() { settings().reset(); }

}  // namespace tilekernels
