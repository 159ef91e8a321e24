// Text from files and paths, made safe for a terminal.
#include "printable.h"

#include <cstdio>
#include <nlohmann/json.hpp>

namespace tilekernels::tool {
namespace {

// Bytes of the printable UTF-8 sequence that `text` begins with; 0 if it begins with none.
size_t printable_bytes(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  if (byte(0) < 0x80) return byte(0) >= 0x20 && byte(0) != 0x7F ? 1 : 0;
  const size_t count = byte(0) < 0xC2   ? 0
                       : byte(0) < 0xE0 ? 2
                       : byte(0) < 0xF0 ? 3
                       : byte(0) < 0xF5 ? 4
                                        : 0;
  if (count == 0 || text.size() < count) return 0;
  for (size_t i = 1; i < count; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
  }
  const bool is_c1 = byte(0) == 0xC2 && byte(1) < 0xA0;  // a terminal may obey U+0080..U+009F
  const bool is_overlong =
      (byte(0) == 0xE0 && byte(1) < 0xA0) || (byte(0) == 0xF0 && byte(1) < 0x90);
  return is_c1 || is_overlong ? 0 : count;
}

}  // namespace

std::string printable(std::string_view text, bool lines) {
  std::string out;
  while (!text.empty()) {
    const size_t count = lines && text[0] == '\n' ? 1 : printable_bytes(text);
    if (count == 0) {
      char hex[5];
      std::snprintf(hex, sizeof hex, "\\x%02x", static_cast<unsigned char>(text[0]));
      out += hex;
    }
    out += text.substr(0, count);
    text.remove_prefix(count == 0 ? 1 : count);
  }
  return out;
}

std::string counted(int64_t count, std::string_view noun) {
  return std::to_string(count) + " " + std::string(noun) + (count == 1 ? "" : "s");
}

std::string json_text(const nlohmann::ordered_json& value) {
  return value.dump(2, ' ', true, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace tilekernels::tool
