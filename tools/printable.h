// Text from files and paths, made safe for a terminal.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace tilekernels::tool {

/// `text` with control characters (C1 too) and bytes that are no UTF-8 written as \xNN; a line
/// break stays where `lines` allows it.
std::string printable(std::string_view text, bool lines = false);

/// JSON in ASCII, indented: what names hold beyond it is escaped.
std::string json_text(const nlohmann::ordered_json& value);

}  // namespace tilekernels::tool
