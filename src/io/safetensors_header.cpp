// The parser of a safetensors header, which trusts nothing in it.
#include <algorithm>
#include <array>
#include <optional>
#include <unordered_set>

#include "core/message.h"
#include "io/json.h"
#include "io/safetensors.h"
#include "io/text.h"

namespace tilekernels::io {
namespace {

using Sax = nlohmann::json_sax<nlohmann::json>;

std::optional<StDType> dtype_from_name(std::string_view text) {
  for (int i = 0; i < kNumStDTypes; ++i) {
    if (name(static_cast<StDType>(i)) == text) return static_cast<StDType>(i);
  }
  return std::nullopt;
}

std::string range_text(const TensorEntry& tensor) { return shape_text({tensor.begin, tensor.end}); }

// Takes parser events straight into entries: a hostile header costs no more than its own length
// times a small factor, and no recursion.
class HeaderParser : public Sax {
 public:
  HeaderParser(const std::string& where, Header* header) : where_(where), header_(*header) {}

  bool null() override { return scalar("null"); }
  bool boolean(bool value) override { return scalar(value ? "true" : "false"); }
  bool number_integer(number_integer_t value) override { return scalar(std::to_string(value)); }
  bool number_float(number_float_t, const string_t& text) override { return scalar(text); }
  bool binary(binary_t&) override { return scalar("bytes"); }

  bool number_unsigned(number_unsigned_t value) override {
    if (state_ != State::kShape && state_ != State::kOffsets) return scalar(std::to_string(value));
    if (value > uint64_t{0x7FFFFFFFFFFFFFFF}) return scalar(std::to_string(value));
    const int64_t number = static_cast<int64_t>(value);
    if (state_ == State::kShape) {
      if (entry_.shape.size() == kMaxRankInFile) {
        malformed(at(), "the rank must be at most " + std::to_string(kMaxRankInFile), "more");
      }
      entry_.shape.push_back(number);
    } else {
      if (num_offsets_ == 2) malformed(at(), "data_offsets must be two numbers", "more");
      offsets_[num_offsets_++] = number;
    }
    return true;
  }

  bool string(string_t& value) override {
    if (state_ == State::kMetadata) {
      header_.metadata.emplace_back(key_, std::move(value));
      return true;
    }
    if (state_ != State::kTensor || field_ != Field::kDType) return scalar(quote(value));
    const std::optional<StDType> dtype = dtype_from_name(value);
    if (!dtype) malformed(at(), "dtype must be one of the format's names", quote(value));
    entry_.dtype = *dtype;
    return true;
  }

  bool start_object(size_t) override {
    if (state_ == State::kStart) {
      state_ = State::kRoot;
    } else if (state_ == State::kRoot) {
      seen_.fill(false);
      keys_.clear();
      num_offsets_ = 0;
      const bool metadata = key_ == "__metadata__";
      state_ = metadata ? State::kMetadata : State::kTensor;
      if (!metadata) {
        entry_ = TensorEntry();
        entry_.name = key_;
      }
    } else {
      return scalar("an object");
    }
    return true;
  }

  bool end_object() override {
    if (state_ == State::kTensor) finish_tensor();
    state_ = state_ == State::kRoot ? State::kEnd : State::kRoot;
    return true;
  }

  bool start_array(size_t) override {
    if (state_ == State::kTensor && field_ == Field::kShape) {
      state_ = State::kShape;
    } else if (state_ == State::kTensor && field_ == Field::kOffsets) {
      state_ = State::kOffsets;
    } else {
      return scalar("an array");
    }
    return true;
  }

  bool end_array() override {
    state_ = State::kTensor;
    return true;
  }

  bool key(string_t& value) override {
    if (state_ == State::kRoot) {
      name_key(value);
    } else if (state_ == State::kMetadata) {
      if (!keys_.insert(value).second) {
        malformed(where_ + ": __metadata__", "keys must differ", quote(value) + " twice");
      }
      key_ = std::move(value);
    } else {
      field_key(value);
    }
    return true;
  }

  bool parse_error(size_t position, const std::string&,
                   const nlohmann::detail::exception&) override {
    malformed(where_, "the header must be valid JSON in UTF-8",
              "an error at byte " + std::to_string(position) + " of the header");
  }

 private:
  enum class State { kStart, kRoot, kMetadata, kTensor, kShape, kOffsets, kEnd };
  enum class Field { kDType, kShape, kOffsets };

  std::string at() const { return where_ + ": tensor " + quote(entry_.name); }

  void name_key(std::string& value) {
    if (!names_.insert(value).second) {
      malformed(where_, "names of tensors must differ", quote(value) + " twice");
    }
    const std::string at_name = where_ + ": tensor " + quote(value);
    if (value.empty()) malformed(at_name, "the name must not be empty", "an empty name");
    if (value.size() > kMaxNameBytes) {
      malformed(at_name, "the name must have at most " + std::to_string(kMaxNameBytes) + " bytes",
                std::to_string(value.size()));
    }
    for (const char c : value) {
      const unsigned char byte = static_cast<unsigned char>(c);
      if (byte < 0x20 || byte == 0x7F) {
        malformed(at_name, "the name must hold no control characters",
                  "byte " + std::to_string(byte));
      }
    }
    key_ = std::move(value);
  }

  void field_key(const std::string& value) {
    constexpr std::array<std::string_view, 3> kFields = {"dtype", "shape", "data_offsets"};
    const auto found = std::find(kFields.begin(), kFields.end(), value);
    if (found == kFields.end()) {
      malformed(at(), "keys must be dtype, shape and data_offsets", quote(value));
    }
    const size_t i = static_cast<size_t>(found - kFields.begin());
    if (seen_[i]) malformed(at(), "keys must differ", quote(value) + " twice");
    seen_[i] = true;
    field_ = static_cast<Field>(i);
  }

  // A value that does not fit where it stands.
  bool scalar(const std::string& got) {
    const std::string value = got.size() > 64 ? got.substr(0, 64) + "…" : got;
    switch (state_) {
      case State::kStart:
      case State::kEnd:
        malformed(where_, "the header must be an object", value);
      case State::kRoot:
        malformed(where_ + ": " + quote(key_), "must be an object", value);
      case State::kMetadata:
        malformed(where_ + ": __metadata__ " + quote(key_), "metadata must be strings", value);
      case State::kShape:
        malformed(at(), "extents must be whole numbers from 0 to 2^63 - 1", value);
      case State::kOffsets:
        malformed(at(), "data_offsets must be whole numbers from 0 to 2^63 - 1", value);
      case State::kTensor:
        break;
    }
    constexpr std::array<const char*, 3> kRules = {"dtype must be a string",
                                                   "shape must be an array of numbers",
                                                   "data_offsets must be an array of two numbers"};
    malformed(at(), kRules[static_cast<size_t>(field_)], value);
  }

  void finish_tensor() {
    constexpr std::array<const char*, 3> kMissing = {"dtype", "shape", "data_offsets"};
    for (size_t i = 0; i < seen_.size(); ++i) {
      if (!seen_[i]) malformed(at(), std::string(kMissing[i]) + " must be given", "none");
    }
    if (num_offsets_ != 2) {
      malformed(at(), "data_offsets must be two numbers", std::to_string(num_offsets_));
    }
    entry_.begin = offsets_[0];
    entry_.end = offsets_[1];
    const std::string range = range_text(entry_);
    if (entry_.begin > entry_.end) {
      malformed(at(), "data_offsets must not run backwards", range);
    }
    const int64_t bytes = tensor_bytes(entry_.dtype, entry_.shape, at());
    if (bytes != entry_.bytes()) {
      malformed(at(),
                "data_offsets must span the " + counted(bytes, "byte") + " of " +
                    std::string(name(entry_.dtype)) + " " + shape_text(entry_.shape),
                range + " of " + std::to_string(entry_.bytes()));
    }
    header_.tensors.push_back(std::move(entry_));
  }

  const std::string& where_;
  Header& header_;
  State state_ = State::kStart;
  Field field_ = Field::kDType;
  std::string key_;
  TensorEntry entry_;
  std::array<bool, 3> seen_{};
  std::array<int64_t, 2> offsets_{};
  size_t num_offsets_ = 0;
  std::unordered_set<std::string> names_;
  std::unordered_set<std::string> keys_;
};

// The data section must be covered once: no gap, no overlap, nothing after the last tensor.
void check_cover(const Header& header, int64_t data_bytes, const std::string& where) {
  int64_t reached = 0;
  const TensorEntry* before = nullptr;
  for (const TensorEntry& tensor : header.tensors) {
    const std::string at = where + ": tensor " + quote(tensor.name);
    const std::string range = range_text(tensor);
    if (tensor.end > data_bytes) {
      malformed(
          at, "data_offsets must lie within the file's " + counted(data_bytes, "byte") + " of data",
          range + " (is the file cut short?)");
    }
    if (tensor.begin < reached) {
      malformed(at,
                "data must not overlap tensor " + quote(before->name) + ", which ends at " +
                    std::to_string(reached),
                range);
    }
    if (tensor.begin > reached) {
      malformed(at,
                "data must follow its predecessor's without a gap, at " + std::to_string(reached),
                range);
    }
    reached = tensor.end;
    before = &tensor;
  }
  if (reached != data_bytes) {
    malformed(where, "the file must end with its last tensor's data",
              counted(data_bytes - reached, "byte") + " more");
  }
}

}  // namespace

Header parse_header(std::string_view text, int64_t data_bytes, const std::string& where) {
  if (text.empty() || text[0] != '{') {
    malformed(where, "the header must begin with {",
              text.empty() ? "an empty header" : quote(text.substr(0, 1)));
  }
  // The parser would take NUL for the end of the text and ignore what follows.
  const size_t nul = text.find('\0');
  if (nul != std::string_view::npos) {
    malformed(where, "the header must be valid JSON in UTF-8",
              "a NUL at byte " + std::to_string(nul) + " of the header");
  }
  Header header;
  HeaderParser parser(where, &header);
  nlohmann::json::sax_parse(text.begin(), text.end(), &parser);
  std::stable_sort(header.tensors.begin(), header.tensors.end(),
                   [](const TensorEntry& a, const TensorEntry& b) {
                     return a.begin != b.begin ? a.begin < b.begin : a.end < b.end;
                   });
  check_cover(header, data_bytes, where);
  return header;
}

}  // namespace tilekernels::io
