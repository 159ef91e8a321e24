// JSON of untrusted files: order kept, repeated keys refused, depth and size bounded.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace tilekernels::io {

using Json = nlohmann::ordered_json;

/// Parses `text`, which `where` (a path) held.
/// Errors: DataError for bad syntax, a repeated key, nesting deeper than 64, more than 4 million
/// values, or bytes after the value.
Json parse_json(std::string_view text, const std::string& where);

/// The member `key` of an object, or null. Linear: for objects with few keys.
const Json* find_member(const Json& object, std::string_view key);

/// Serialised as transformers writes it: two spaces of indentation and a final newline.
std::string dump_json(const Json& value);

/// On one line; bytes that are no UTF-8, as paths may hold, become U+FFFD.
std::string json_line(const Json& value);

}  // namespace tilekernels::io
