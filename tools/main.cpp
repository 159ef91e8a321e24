// The tilekernels command: parses the line, runs one subcommand, turns errors into exit statuses.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <stdexcept>
#include <vector>

#include "commands.h"
#include "printable.h"
#include "tilekernels/version.h"

namespace tilekernels::tool {
namespace {

int run(int argc, char** argv) {
  CLI::App app("Small kernels around the matrix products of large language models.", "tilekernels");
  app.set_version_flag("--version", std::string("tilekernels ") + version());
  app.require_subcommand(0, 1);
  const std::vector<Command> commands = {
      info_command(app),    verify_command(app), bench_command(app),    convert_command(app),
      inspect_command(app), cache_command(app),  selftest_command(app),
  };
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? kSuccess : kUsage;
  }
  for (const Command& command : commands) {
    if (command.parser->parsed()) return command.run();
  }
  std::fputs(app.help().c_str(), stderr);
  return kUsage;
}

// Errors name files, whose names others chose; the log of a compiler has several lines.
int report(const std::exception& error, int status) {
  std::fprintf(stderr, "tilekernels: %s\n", printable(error.what(), /*lines=*/true).c_str());
  return status;
}

}  // namespace
}  // namespace tilekernels::tool

int main(int argc, char** argv) {
  using namespace tilekernels::tool;
  try {
    const int status = run(argc, argv);
    // A report that a full disk cut off must not look like success.
    if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
      throw std::runtime_error("standard output cannot be written");
    }
    return status;
  } catch (const std::invalid_argument& error) {
    return report(error, kUsage);
  } catch (const std::exception& error) {
    return report(error, kFailure);
  }
}
