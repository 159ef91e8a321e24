// What info prints and records keep about the machine and the build.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace tilekernels::tool {

struct Machine {
  std::string cpu;      ///< "AMD EPYC 9654"
  std::string system;   ///< "Linux 6.1.0 x86_64"
  int cores;            ///< that this process may run on
  int64_t cache_bytes;  ///< the last-level cache that one core shares in; 0 when not told
};

Machine machine();

/// "g++ 12.2.0", "Release".
std::string compiler();
std::string build_type();

/// The time in UTC, "2026-01-31T12:00:00Z".
std::string now();

/// The head of a record: what was made ("verify", "bench"), when, by which build, on what machine
/// and under which settings.
nlohmann::ordered_json record_head(const char* kind);

}  // namespace tilekernels::tool
