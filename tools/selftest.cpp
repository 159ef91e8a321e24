// tilekernels selftest: asks an accelerator what its vendor's pages leave open.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "commands.h"
#include "printable.h"
#include "tilekernels/ascend.h"
#include "tilekernels/device.h"

namespace tilekernels::tool {
namespace {

struct Options {
  std::string backend;
  int device = 0;
};

int run(const Options& options) {
  const std::vector<AscendAnswer> answers = ascend_selftest(options.device);
  std::printf("%s\n\n", backends()[static_cast<size_t>(Backend::kAscend)].detail.c_str());
  size_t width = 8;
  for (const AscendAnswer& answer : answers) width = std::max(width, answer.question.size());
  std::printf("%-*s  answer\n", static_cast<int>(width), "question");
  int wrong = 0;
  for (const AscendAnswer& answer : answers) {
    std::printf("%-*s  %s\n", static_cast<int>(width), answer.question.c_str(),
                printable(answer.answer, /*lines=*/true).c_str());
    if (answer.agrees) continue;
    ++wrong;
    std::printf("%-*s    kernels rely on: %s\n", static_cast<int>(width), "",
                answer.relied_on.c_str());
  }
  std::printf("\n%d of %zu answers %s not what kernels rely on.\n", wrong, answers.size(),
              wrong == 1 ? "is" : "are");
  return wrong == 0 ? kSuccess : kFailure;
}

}  // namespace

Command selftest_command(CLI::App& app) {
  auto options = std::make_shared<Options>();
  CLI::App* const parser = app.add_subcommand(
      "selftest", "Ask an accelerator what its vendor's pages leave open (docs/ascend_npu.md)");
  parser->add_option("backend", options->backend, "ascend")
      ->required()
      ->check(CLI::IsMember({"ascend"}));
  parser->add_option("--device", options->device, "Number of the NPU")->type_name("N");
  return {parser, [options] { return run(*options); }};
}

}  // namespace tilekernels::tool
