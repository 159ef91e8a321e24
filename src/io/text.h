// Words of file messages: quoting of names that a hostile file chose, joining, sizes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace tilekernels::io {

/// `text` in double quotes, control characters and bytes that are no UTF-8 escaped, cut after 120
/// bytes: safe to print whatever the file held.
std::string quote(std::string_view text);

/// "[2, 128]".
std::string shape_text(const std::vector<int64_t>& shape);

/// "path: reason", without the standard library's own words.
std::string file_system_text(const std::filesystem::filesystem_error& error);

/// Throws DataError with "[checkpoint] where: rule, got value" (row -1: the fault is in a file).
[[noreturn]] void malformed(const std::string& where, const std::string& rule,
                            const std::string& got);

}  // namespace tilekernels::io
