// The subcommands: one function and one file each.
#pragma once

#include <functional>

namespace CLI {
class App;
}

namespace tilekernels::tool {

/// The statuses that the command ends with.
inline constexpr int kSuccess = 0;
inline constexpr int kFailure = 1;  ///< something was wrong: a mismatch, a machine, a file
inline constexpr int kUsage = 2;    ///< the command line or a setting was wrong

/// A subcommand: its parser, and what it does once its options are parsed. `run` returns the exit
/// status; std::invalid_argument that it throws is a usage error, anything else a failure.
struct Command {
  CLI::App* parser;
  std::function<int()> run;
};

Command info_command(CLI::App& app);
Command verify_command(CLI::App& app);
Command bench_command(CLI::App& app);
Command convert_command(CLI::App& app);
Command inspect_command(CLI::App& app);
Command cache_command(CLI::App& app);
Command selftest_command(CLI::App& app);

}  // namespace tilekernels::tool
