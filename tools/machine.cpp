// Reads what the system tells about itself.
#include "machine.h"

#include <sched.h>
#include <sys/utsname.h>

#include <ctime>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "cases/case.h"
#include "tilekernels/cache.h"
#include "tilekernels/config.h"
#include "tilekernels/device.h"
#include "tilekernels/version.h"

namespace tilekernels::tool {
namespace {

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// "580.159.04", of the line that the NVIDIA driver writes about itself; empty without one.
std::string driver_version() {
  std::istringstream words(first_line("/proc/driver/nvidia/version"));
  std::string word;
  while (words >> word) {
    if (word[0] >= '0' && word[0] <= '9') return word;
  }
  return "";
}

std::string cpu_model(const std::string& fallback) {
  std::ifstream file("/proc/cpuinfo");
  std::string line;
  while (std::getline(file, line)) {
    const size_t colon = line.find(": ");
    if (line.rfind("model name", 0) == 0 && colon != std::string::npos) {
      return line.substr(colon + 2);
    }
  }
  return fallback;
}

int cores_allowed() {
  cpu_set_t set;
  CPU_ZERO(&set);
  return sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 1;
}

int64_t largest_cache_bytes() {
  int64_t largest = 0;
  for (int index = 0;; ++index) {
    const std::string size =
        first_line("/sys/devices/system/cpu/cpu0/cache/index" + std::to_string(index) + "/size");
    if (size.empty()) return largest;
    const int64_t unit = size.back() == 'M' ? 1 << 20 : size.back() == 'K' ? 1 << 10 : 1;
    largest = std::max<int64_t>(largest, std::atoll(size.c_str()) * unit);
  }
}

}  // namespace

Machine machine() {
  utsname names{};
  uname(&names);
  const std::string arch = names.machine;
  return {.cpu = cpu_model(arch),
          .system = std::string(names.sysname) + " " + names.release + " " + arch,
          .cores = cores_allowed(),
          .cache_bytes = largest_cache_bytes()};
}

std::string compiler() {
#ifdef __clang__
  return "clang " __clang_version__;
#else
  return "g++ " __VERSION__;
#endif
}

std::string build_type() { return TILEKERNELS_BUILD_TYPE; }

std::string now() {
  const std::time_t seconds = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&seconds, &parts);
  char text[32];
  std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

nlohmann::ordered_json record_head(const char* kind) {
  const Machine here = machine();
  nlohmann::ordered_json head;
  head["kind"] = kind;
  head["date"] = now();
  head["version"] = version();
  head["compiler"] = compiler();
  head["build_type"] = build_type();
  head["machine"] = {{"cpu", here.cpu},
                     {"system", here.system},
                     {"cores", here.cores},
                     {"last_level_cache_bytes", here.cache_bytes}};
  const std::string nvidia_driver = driver_version();
  if (!nvidia_driver.empty()) head["nvidia_driver"] = nvidia_driver;
  head["cpu_targets"] = cpu_targets();
  head["threads"] = get_num_threads();
  for (const BackendStatus& status : backends()) {
    head["backends"].push_back({{"backend", name(status.backend)},
                                {"available", status.available},
                                {"detail", status.detail}});
  }
  // What the records of devices are true for.
  for (const cases::OpCases& op : cases::all_ops()) {
    const std::string digest = device_text_digest(op.op);
    if (!digest.empty()) head["device_text"][std::string(op.op)] = digest;
  }
  return head;
}

}  // namespace tilekernels::tool
