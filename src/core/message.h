// The wording of every error, in one place.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tilekernels {

/// "[op] argument rule, got value".
std::string message(std::string_view op, std::string_view argument, std::string_view rule,
                    std::string_view value);
std::string message(std::string_view op, std::string_view argument, std::string_view rule,
                    int64_t value);

/// "[op] sentence".
std::string message(std::string_view op, std::string_view sentence);

/// "1 byte", "2 bytes".
std::string counted(int64_t count, std::string_view noun);

/// The shortest text that reads back as the same float.
std::string to_text(float value);

}  // namespace tilekernels
