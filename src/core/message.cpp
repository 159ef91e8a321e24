// The wording of every error, in one place; the only file that formats with fmt.
#include "core/message.h"

#include <fmt/format.h>

namespace tilekernels {

std::string message(std::string_view op, std::string_view argument, std::string_view rule,
                    std::string_view value) {
  return fmt::format("[{}] {} {}, got {}", op, argument, rule, value);
}

std::string message(std::string_view op, std::string_view argument, std::string_view rule,
                    int64_t value) {
  return fmt::format("[{}] {} {}, got {}", op, argument, rule, value);
}

std::string message(std::string_view op, std::string_view sentence) {
  return fmt::format("[{}] {}", op, sentence);
}

std::string counted(int64_t count, std::string_view noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

std::string to_text(float value) { return fmt::format("{}", value); }

}  // namespace tilekernels
