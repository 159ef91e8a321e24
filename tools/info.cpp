// tilekernels info: the build, the machine, the backends, the settings in force.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "commands.h"
#include "machine.h"
#include "printable.h"
#include "tilekernels/cache.h"
#include "tilekernels/config.h"
#include "tilekernels/version.h"

extern char** environ;

namespace tilekernels::tool {
namespace {

struct Setting {
  const char* variable;
  std::string in_force;
  const char* meaning;
};

std::string text_of(const char* variable, const char* otherwise) {
  const char* text = std::getenv(variable);
  return text != nullptr && *text != '\0' ? text : otherwise;
}

std::vector<Setting> settings() {
  const std::optional<Backend> backend = get_backend();
  const std::string target = get_cpu_target();
  return {
      {"TILEKERNELS_BACKEND", backend ? std::string(name(*backend)) : "by device",
       "the backend that every call runs on"},
      {"TILEKERNELS_NUM_THREADS", std::to_string(get_num_threads()), "threads of the cpu backend"},
      {"TILEKERNELS_CPU_TARGET", target.empty() ? "none" : target,
       "instruction set of the cpu backend"},
      {"TILEKERNELS_CHECK_DATA", get_check_data() ? "1" : "0",
       "whether faults in the data are reported"},
      {"TILEKERNELS_CACHE_DIR", cache_dir().empty() ? "none" : cache_dir(),
       "folder of compiled kernels"},
      {"TILEKERNELS_CUDA_LIBRARY", text_of("TILEKERNELS_CUDA_LIBRARY", "libcuda.so.1"),
       "driver of the cuda backend"},
      {"TILEKERNELS_NVRTC_LIBRARY", text_of("TILEKERNELS_NVRTC_LIBRARY", "searched"),
       "compiler of CUDA kernels"},
      {"TILEKERNELS_ASCENDCL_LIBRARY", text_of("TILEKERNELS_ASCENDCL_LIBRARY", "searched"),
       "runtime of Ascend NPUs"},
      {"TILEKERNELS_ACLRTC_LIBRARY", text_of("TILEKERNELS_ACLRTC_LIBRARY", "searched"),
       "compiler of Ascend kernels"},
  };
}

// A wrong variable keeps the library from reading any. Each is reported and taken out of this
// process's environment, so that the rest can be shown.
std::vector<std::string> drop_wrong_variables() {
  constexpr const char* kRead[] = {"TILEKERNELS_BACKEND", "TILEKERNELS_NUM_THREADS",
                                   "TILEKERNELS_CPU_TARGET", "TILEKERNELS_CHECK_DATA"};
  std::vector<std::string> errors;
  for (;;) {
    try {
      get_backend();
      return errors;
    } catch (const std::invalid_argument& error) {
      const std::string text = error.what();
      const auto* const wrong =
          std::find_if(std::begin(kRead), std::end(kRead), [&](const char* variable) {
            return text.find(variable) != std::string::npos && std::getenv(variable) != nullptr;
          });
      if (wrong == std::end(kRead)) throw;
      errors.push_back(text);
      ::unsetenv(*wrong);
    }
  }
}

bool is_set(const char* variable) { return !text_of(variable, "").empty(); }

// Variables of ours in the environment that no setting reads: most likely misspelt.
std::vector<std::string> unknown_variables(const std::vector<Setting>& known) {
  std::vector<std::string> unknown;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    const std::string variable = text.substr(0, text.find('='));
    if (variable.rfind("TILEKERNELS_", 0) != 0) continue;
    bool found = false;
    for (const Setting& setting : known) found = found || variable == setting.variable;
    if (!found) unknown.push_back(variable);
  }
  return unknown;
}

std::string megabytes(int64_t bytes) {
  return bytes == 0 ? "unknown" : std::to_string(bytes >> 20) + " MiB";
}

void print_text(const std::vector<std::string>& errors) {
  const Machine here = machine();
  std::printf("tilekernels %s\n", version());
  std::printf("  built     %s, %s\n", build_type().c_str(), compiler().c_str());
  std::printf("\nMachine\n");
  std::printf("  cpu       %s\n", here.cpu.c_str());
  std::printf("  system    %s\n", here.system.c_str());
  std::printf("  cores     %d\n", here.cores);
  std::printf("  cache     %s (last level)\n", megabytes(here.cache_bytes).c_str());
  std::string targets;
  for (const std::string& target : cpu_targets()) targets += (targets.empty() ? "" : ", ") + target;
  std::printf("  targets   %s (instruction sets the cpu backend can use here, best first)\n",
              targets.empty() ? "none" : targets.c_str());

  std::printf("\nBackends\n");
  bool any_absent = false;
  for (const BackendStatus& status : backends()) {
    any_absent = any_absent || !status.available;
    std::printf("  %-9s %-3s %s\n", std::string(name(status.backend)).c_str(),
                status.available ? "yes" : "no", status.detail.c_str());
  }
  if (any_absent) {
    std::printf(
        "  Nothing more is needed: tensors in host memory run on cpu, or on the reference where\n"
        "  cpu says no, with the same results.\n");
  }

  std::printf("\nSettings in force\n");
  const std::vector<Setting> known = settings();
  const std::vector<std::string> unknown = unknown_variables(known);
  size_t name_width = 0;
  size_t value_width = sizeof("ignored") - 1;
  for (const Setting& setting : known) {
    name_width = std::max(name_width, std::strlen(setting.variable));
    value_width = std::max(value_width, setting.in_force.size());
  }
  for (const std::string& variable : unknown) name_width = std::max(name_width, variable.size());
  const auto print_setting = [&](const char* variable, const char* in_force, const char* meaning,
                                 const char* remark) {
    std::printf("  %-*s  %-*s  %s%s\n", static_cast<int>(name_width), variable,
                static_cast<int>(value_width), in_force, meaning, remark);
  };
  for (const Setting& setting : known) {
    print_setting(setting.variable, printable(setting.in_force).c_str(), setting.meaning,
                  is_set(setting.variable) ? " (set)" : "");
  }
  for (const std::string& variable : unknown) {
    print_setting(printable(variable).c_str(), "ignored", "no such setting", "");
  }
  for (const std::string& error : errors) {
    std::printf("  wrong, every other command refuses it: %s\n", printable(error).c_str());
  }
  std::printf(
      "\nNext: tilekernels verify (checks every op here), tilekernels bench (times them).\n");
}

void print_json(const std::vector<std::string>& errors) {
  nlohmann::ordered_json info = record_head("info");
  const std::vector<Setting> known = settings();
  for (const Setting& setting : known) {
    info["settings"].push_back({{"variable", setting.variable},
                                {"in_force", setting.in_force},
                                {"set", is_set(setting.variable)}});
  }
  info["unknown_variables"] = unknown_variables(known);
  info["errors"] = errors;
  std::fputs(json_text(info).c_str(), stdout);
}

}  // namespace

Command info_command(CLI::App& app) {
  auto json = std::make_shared<bool>(false);
  CLI::App* const parser =
      app.add_subcommand("info", "Show the build, the machine, the backends and the settings");
  parser->add_flag("--json", *json, "Print JSON");
  return {parser, [json] {
            const std::vector<std::string> errors = drop_wrong_variables();
            if (*json) {
              print_json(errors);
            } else {
              print_text(errors);
            }
            return errors.empty() ? kSuccess : kUsage;
          }};
}

}  // namespace tilekernels::tool
