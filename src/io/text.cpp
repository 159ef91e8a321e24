// Words of file messages: quoting of names that a hostile file chose, joining, sizes.
#include "io/text.h"

#include "core/message.h"
#include "tilekernels/error.h"

namespace tilekernels::io {
namespace {

constexpr size_t kMaxQuotedBytes = 120;

// Length of the well-formed UTF-8 sequence at `text`, 0 where there is none.
size_t utf8_length(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  const size_t length = lead < 0x80   ? 1
                        : lead < 0xC2 ? 0
                        : lead < 0xE0 ? 2
                        : lead < 0xF0 ? 3
                        : lead < 0xF5 ? 4
                                      : 0;
  if (length == 0 || text.size() < length) return 0;
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
  }
  if (lead == 0xE0 && byte(1) < 0xA0) return 0;
  if (lead == 0xED && byte(1) > 0x9F) return 0;
  if (lead == 0xF0 && byte(1) < 0x90) return 0;
  if (lead == 0xF4 && byte(1) > 0x8F) return 0;
  // U+0080..U+009F are control characters too: a terminal may obey them.
  if (lead == 0xC2 && byte(1) < 0xA0) return 0;
  return length;
}

void append_hex(std::string* out, unsigned char byte) {
  constexpr char kDigits[] = "0123456789abcdef";
  *out += "\\x";
  *out += kDigits[byte >> 4];
  *out += kDigits[byte & 15];
}

}  // namespace

std::string quote(std::string_view text) {
  std::string out = "\"";
  for (size_t i = 0; i < text.size();) {
    if (out.size() > kMaxQuotedBytes) {
      out += "\"… (" + std::to_string(text.size()) + " bytes)";
      return out;
    }
    const unsigned char byte = static_cast<unsigned char>(text[i]);
    const size_t length = utf8_length(text.substr(i));
    if (length == 0 || byte < 0x20 || byte == 0x7F) {
      append_hex(&out, byte);
      ++i;
      continue;
    }
    if (byte == '"' || byte == '\\') out += '\\';
    out.append(text.substr(i, length));
    i += length;
  }
  return out + '"';
}

std::string shape_text(const std::vector<int64_t>& shape) {
  constexpr size_t kShown = 8;
  std::string out = "[";
  for (size_t i = 0; i < shape.size(); ++i) {
    if (i > 0) out += ", ";
    if (i == kShown) return out + "…] of rank " + std::to_string(shape.size());
    out += std::to_string(shape[i]);
  }
  return out + "]";
}

std::string file_system_text(const std::filesystem::filesystem_error& error) {
  return error.path1().string() + ": " + error.code().message();
}

void malformed(const std::string& where, const std::string& rule, const std::string& got) {
  throw DataError(message("checkpoint", where + ":", rule, got), -1);
}

}  // namespace tilekernels::io
