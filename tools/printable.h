// Text from files and paths, made safe for a terminal.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace tilekernels::tool {

/// `text` with control characters (C1 too) and bytes that are no UTF-8 written as \xNN; a line
/// break stays where `lines` allows it.
std::string printable(std::string_view text, bool lines = false);

/// "1 tensor", "2 tensors".
std::string counted(int64_t count, std::string_view noun);

/// JSON in ASCII, indented: what names hold beyond it is escaped.
std::string json_text(const nlohmann::ordered_json& value);

}  // namespace tilekernels::tool
