// tilekernels cache: the folder of kernels compiled at run time.
#include "tilekernels/cache.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "cases/compile.h"
#include "commands.h"
#include "out_file.h"
#include "printable.h"
#include "select.h"
#include "tilekernels/error.h"

namespace tilekernels::tool {
namespace {

std::string folder() {
  const std::string path = cache_dir();
  return path.empty() ? "no folder (HOME is not set)" : printable(path);
}

void print_head() {
  std::printf("%-18s %-8s %9s %7s %7s %9s  %s\n", "op", "arch", "registers", "spilled", "shared",
              "bytes", "constants");
}

void print_kernel(const CompiledKernel& kernel) {
  if (kernel.op.empty()) {
    std::printf("damaged: %s (the next use replaces it)\n", printable(kernel.path).c_str());
    return;
  }
  std::printf("%-18s %-8s %9d %7d %7d %9lld  %s\n", kernel.op.c_str(), kernel.arch.c_str(),
              kernel.registers, kernel.spill_bytes, kernel.shared_bytes,
              static_cast<long long>(kernel.size_bytes), kernel.constants.c_str());
}

int list() {
  const std::vector<CompiledKernel> kernels = list_cache();
  int64_t bytes = 0;
  if (!kernels.empty()) print_head();
  for (const CompiledKernel& kernel : kernels) {
    print_kernel(kernel);
    bytes += kernel.size_bytes;
  }
  std::printf("%s, %lld KiB in %s\n", counted(std::ssize(kernels), "kernel").c_str(),
              static_cast<long long>((bytes + 1023) / 1024), folder().c_str());
  return kSuccess;
}

int clear() {
  const int64_t count = clear_cache();
  std::printf("removed %s from %s\n", counted(count, "kernel").c_str(), folder().c_str());
  return kSuccess;
}

struct WarmOptions {
  std::vector<std::string> archs;
  std::vector<std::string> selectors;
  bool all_cases = false;
  int num_threads = 1;
  std::string cubins;
};

// Writes binaries and the compiler's report on them into one folder.
class CubinFolder {
 public:
  explicit CubinFolder(const std::string& path) : path_(path) {
    if (!path_.empty()) std::filesystem::create_directories(path_);
  }
  void add(const CompiledKernel& kernel) {
    if (path_.empty()) return;
    const std::string file =
        kernel.op + "-" + kernel.arch + "-" + std::to_string(report_.size()) + ".cubin";
    OutFile(path_ + "/" + file).write(kernel.cubin);
    report_.push_back({{"op", kernel.op},
                       {"arch", kernel.arch},
                       {"constants", kernel.constants},
                       {"compiler", kernel.compiler},
                       {"digest", device_text_digest(kernel.op)},
                       {"file", file},
                       {"registers", kernel.registers},
                       {"spill_bytes", kernel.spill_bytes},
                       {"stack_bytes", kernel.stack_bytes},
                       {"shared_bytes", kernel.shared_bytes}});
  }
  void finish() const {
    if (!path_.empty()) OutFile(path_ + "/kernels.json").write(report_.dump(1) + "\n");
  }

 private:
  std::string path_;
  nlohmann::ordered_json report_ = nlohmann::ordered_json::array();
};

// Compiles what the selected cases need for one architecture; how many kernels that were.
size_t warm_arch(const std::string& arch, const std::vector<Selection>& selections, int num_threads,
                 CubinFolder& cubins) {
  size_t count = 0;
  for (const Selection& selection : selections) {
    const cases::CompiledCases compiled = cases::compile_cases(arch, selection.cases, num_threads);
    for (const CompiledKernel& kernel : compiled.kernels) {
      print_kernel(kernel);
      cubins.add(kernel);
    }
    for (const std::string& text : compiled.unsupported) std::printf("%s\n", text.c_str());
    std::fflush(stdout);
    count += compiled.kernels.size();
  }
  return count;
}

// The cases that the selectors name: the shapes to be timed, and with `all` those to be checked.
std::vector<Selection> select_both(const std::vector<std::string>& selectors, bool all) {
  if (!all) return select_cases(selectors, /*bench=*/true);
  std::vector<Selection> selections = select_cases(selectors, /*bench=*/false);
  try {
    for (const Selection& timed : select_cases(selectors, /*bench=*/true)) {
      const auto same = std::find_if(selections.begin(), selections.end(),
                                     [&](const Selection& s) { return s.op == timed.op; });
      if (same == selections.end()) {
        selections.push_back(timed);
      } else {
        same->cases.insert(same->cases.end(), timed.cases.begin(), timed.cases.end());
      }
    }
  } catch (const std::invalid_argument&) {  // selectors that name no shape to be timed
  }
  return selections;
}

int warm(const WarmOptions& options) {
  const std::vector<Selection> selections = select_both(options.selectors, options.all_cases);
  const std::vector<std::string> archs = options.archs.empty() ? device_archs() : options.archs;
  if (archs.empty()) throw BackendError("no CUDA device here: name an architecture by --arch");
  CubinFolder cubins(options.cubins);
  print_head();
  size_t count = 0;
  for (const std::string& arch : archs) {
    count += warm_arch(arch, selections, options.num_threads, cubins);
  }
  cubins.finish();
  std::printf("%s ready in %s\n", counted(static_cast<int64_t>(count), "kernel").c_str(),
              folder().c_str());
  return count > 0 ? kSuccess : kFailure;
}

}  // namespace

Command cache_command(CLI::App& app) {
  auto options = std::make_shared<WarmOptions>();
  CLI::App* const parser =
      app.add_subcommand("cache", "List, fill or clear the folder of compiled CUDA kernels");
  parser->require_subcommand(1);
  CLI::App* const list_parser = parser->add_subcommand("list", "Show the kernels in the folder");
  CLI::App* const warm_parser = parser->add_subcommand(
      "warm", "Compile the kernels of the benchmark shapes, with or without a GPU");
  warm_parser->add_option("ops", options->selectors, "Ops or beginnings of case ids; all if none");
  warm_parser
      ->add_option("--arch", options->archs, "sm_90a, sm_100a or sm_103a; the devices here if none")
      ->check(CLI::IsMember({"sm_90a", "sm_100a", "sm_103a"}))
      ->allow_extra_args(false);
  warm_parser->add_flag("--all-cases", options->all_cases,
                        "Compile for the cases of verify as well: every path of every kernel");
  warm_parser->add_option("--threads", options->num_threads, "Threads that compile")
      ->check(CLI::Range(1, 256))
      ->capture_default_str()
      ->type_name("N");
  warm_parser
      ->add_option("--cubins", options->cubins,
                   "Write the binaries and kernels.json, the compiler's report on them, to FOLDER")
      ->type_name("FOLDER");
  CLI::App* const clear_parser = parser->add_subcommand("clear", "Remove the kernels");
  return {parser, [=] {
            if (list_parser->parsed()) return list();
            if (clear_parser->parsed()) return clear();
            return warm(*options);
          }};
}

}  // namespace tilekernels::tool
