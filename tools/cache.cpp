// tilekernels cache: the folder of kernels compiled at run time.
#include "tilekernels/cache.h"

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "cases/compile.h"
#include "commands.h"
#include "select.h"
#include "tilekernels/error.h"

namespace tilekernels::tool {
namespace {

std::string folder() {
  const std::string path = cache_dir();
  return path.empty() ? "no folder (HOME is not set)" : path;
}

void print_head() {
  std::printf("%-18s %-8s %9s %7s %7s %9s  %s\n", "op", "arch", "registers", "spilled", "shared",
              "bytes", "constants");
}

void print_kernel(const CompiledKernel& kernel) {
  if (kernel.op.empty()) {
    std::printf("damaged: %s (the next use replaces it)\n", kernel.path.c_str());
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
  std::printf("%zu kernels, %lld KiB in %s\n", kernels.size(),
              static_cast<long long>((bytes + 1023) / 1024), folder().c_str());
  return kSuccess;
}

int clear() {
  const int64_t count = clear_cache();
  std::printf("removed %lld kernels from %s\n", static_cast<long long>(count), folder().c_str());
  return kSuccess;
}

// Compiles what the selected cases need for one architecture; how many kernels that were.
size_t warm_arch(const std::string& arch, const std::vector<Selection>& selections) {
  const CompileOnly compile_only(arch);
  size_t printed = 0;
  for (const Selection& selection : selections) {
    try {
      for (const cases::Case* test : selection.cases) {
        cases::compile_case(*test);
        for (; printed < compile_only.kernels().size(); ++printed) {
          print_kernel(compile_only.kernels()[printed]);
        }
      }
    } catch (const Unsupported& error) {
      std::printf("%s\n", error.what());
    }
  }
  return printed;
}

int warm(std::vector<std::string> archs, const std::vector<std::string>& selectors) {
  const std::vector<Selection> selections = select_cases(selectors, /*bench=*/true);
  if (archs.empty()) archs = device_archs();
  if (archs.empty()) throw BackendError("no CUDA device here: name an architecture by --arch");
  print_head();
  size_t count = 0;
  for (const std::string& arch : archs) count += warm_arch(arch, selections);
  std::printf("%zu kernels ready in %s\n", count, folder().c_str());
  return count > 0 ? kSuccess : kFailure;
}

}  // namespace

Command cache_command(CLI::App& app) {
  struct Options {
    std::vector<std::string> archs;
    std::vector<std::string> selectors;
  };
  auto options = std::make_shared<Options>();
  CLI::App* const parser =
      app.add_subcommand("cache", "List, fill or clear the folder of compiled CUDA kernels");
  parser->require_subcommand(1);
  CLI::App* const list_parser = parser->add_subcommand("list", "Show the kernels in the folder");
  CLI::App* const warm_parser = parser->add_subcommand(
      "warm", "Compile the kernels of the benchmark shapes, with or without a GPU");
  warm_parser->add_option("ops", options->selectors, "Ops or beginnings of case ids; all if none");
  warm_parser->add_option("--arch", options->archs,
                          "sm_90a, sm_100a or sm_103a; the devices here if none");
  CLI::App* const clear_parser = parser->add_subcommand("clear", "Remove the kernels");
  return {parser, [=] {
            if (list_parser->parsed()) return list();
            if (clear_parser->parsed()) return clear();
            return warm(options->archs, options->selectors);
          }};
}

}  // namespace tilekernels::tool
