// JSON of untrusted files: order kept, repeated keys refused, depth and size bounded.
#include "io/json.h"

#include <unordered_set>
#include <vector>

#include "io/text.h"

namespace tilekernels::io {
namespace {

constexpr size_t kMaxDepth = 64;
constexpr int64_t kMaxValues = 4'000'000;

// Builds the value from parser events. Objects are appended to directly, since ordered_json's own
// insertion searches all earlier keys and would be quadratic in an index of 100 000 tensors.
class Builder : public nlohmann::json_sax<Json> {
 public:
  explicit Builder(const std::string& where) : where_(where) {}

  Json take() { return std::move(root_); }

  bool null() override { return put(Json(nullptr)); }
  bool boolean(bool value) override { return put(Json(value)); }
  bool number_integer(number_integer_t value) override { return put(Json(value)); }
  bool number_unsigned(number_unsigned_t value) override { return put(Json(value)); }
  bool number_float(number_float_t value, const string_t& text) override {
    // A number that no double holds would come back as Inf and be written as null.
    if (!(value - value == 0)) malformed(where_, "numbers must be finite", quote(text));
    return put(Json(value));
  }
  bool string(string_t& value) override { return put(Json(std::move(value))); }
  bool binary(binary_t&) override { return false; }
  bool start_object(size_t) override { return open(Json::object()); }
  bool start_array(size_t) override { return open(Json::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool key(string_t& value) override {
    if (!levels_.back().keys.insert(value).second) {
      malformed(where_, "keys of an object must differ", quote(value) + " twice");
    }
    levels_.back().key = std::move(value);
    return true;
  }
  bool parse_error(size_t position, const std::string&,
                   const nlohmann::detail::exception&) override {
    malformed(where_, "the file must be valid JSON in UTF-8",
              "an error at byte " + std::to_string(position));
  }

 private:
  struct Level {
    Json value;
    std::string key;
    std::unordered_set<std::string> keys;
  };

  bool put(Json value) {
    if (++num_values_ > kMaxValues) {
      malformed(where_, "there must be at most " + std::to_string(kMaxValues) + " values", "more");
    }
    if (levels_.empty()) {
      root_ = std::move(value);
      return true;
    }
    Level& level = levels_.back();
    if (level.value.is_array()) {
      level.value.get_ref<Json::array_t&>().push_back(std::move(value));
    } else {
      Json::object_t::Container& members = level.value.get_ref<Json::object_t&>();
      members.emplace_back(std::move(level.key), std::move(value));
    }
    return true;
  }

  bool open(Json value) {
    if (levels_.size() == kMaxDepth) {
      malformed(where_, "nesting must be at most " + std::to_string(kMaxDepth) + " deep", "more");
    }
    levels_.emplace_back();
    levels_.back().value = std::move(value);
    return true;
  }

  bool close() {
    Json value = std::move(levels_.back().value);
    levels_.pop_back();
    return put(std::move(value));
  }

  const std::string& where_;
  std::vector<Level> levels_;
  Json root_;
  int64_t num_values_ = 0;
};

}  // namespace

Json parse_json(std::string_view text, const std::string& where) {
  // The parser would take NUL for the end of the text and ignore what follows.
  const size_t nul = text.find('\0');
  if (nul != std::string_view::npos) {
    malformed(where, "the file must be valid JSON in UTF-8",
              "a NUL at byte " + std::to_string(nul));
  }
  Builder builder(where);
  Json::sax_parse(text.begin(), text.end(), &builder);
  return builder.take();
}

const Json* find_member(const Json& object, std::string_view key) {
  if (!object.is_object()) return nullptr;
  for (const auto& [name, value] : object.get_ref<const Json::object_t&>()) {
    if (name == key) return &value;
  }
  return nullptr;
}

std::string dump_json(const Json& value) { return value.dump(2) + "\n"; }

std::string json_line(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace tilekernels::io
