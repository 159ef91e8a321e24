// Tables over many tensors: equal rows of a model's layers become one line.
#include "groups.h"

#include <algorithm>
#include <cstdio>

#include "printable.h"

namespace tilekernels::tool {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// Columns that a text takes on a terminal, counting one for every UTF-8 sequence.
size_t columns(const std::string& text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  }));
}

// "0-60", "1, 3", "0-2, 60-61, …".
std::string ranges(std::vector<int64_t> numbers) {
  std::sort(numbers.begin(), numbers.end());
  numbers.erase(std::unique(numbers.begin(), numbers.end()), numbers.end());
  std::string text;
  int shown = 0;
  for (size_t i = 0; i < numbers.size(); ++shown) {
    size_t j = i;
    while (j + 1 < numbers.size() && numbers[j + 1] == numbers[j] + 1) ++j;
    if (!text.empty()) text += ", ";
    if (shown == 3) return text + "…";
    text += std::to_string(numbers[i]);
    if (j > i) text += (j == i + 1 ? ", " : "-") + std::to_string(numbers[j]);
    i = j + 1;
  }
  return text;
}

}  // namespace

size_t NameGroups::place(std::string_view name, const std::string& key) {
  std::vector<std::string> parts = {""};
  std::vector<int64_t> numbers;
  for (size_t i = 0; i < name.size();) {
    const bool starts = is_digit(name[i]) && (i == 0 || name[i - 1] == '.');
    size_t end = i;
    while (end < name.size() && is_digit(name[end])) ++end;
    if (starts && end - i < 10 && (end == name.size() || name[end] == '.')) {
      numbers.push_back(std::stoll(std::string(name.substr(i, end - i))));
      parts.emplace_back();
      i = end;
    } else {
      parts.back() += name[i++];
    }
  }
  std::string id = key;
  for (const std::string& part : parts) id += '\0' + part;
  const auto [found, is_new] = place_of_.emplace(std::move(id), groups_.size());
  if (!is_new) {
    Group& group = groups_[found->second];
    for (size_t i = 0; i < numbers.size(); ++i) group.numbers[i].push_back(numbers[i]);
    return found->second;
  }
  Group group;
  group.parts = std::move(parts);
  for (const int64_t number : numbers) group.numbers.push_back({number});
  groups_.push_back(std::move(group));
  return groups_.size() - 1;
}

std::string NameGroups::label(size_t group) const {
  const Group& g = groups_[group];
  std::string text = printable(g.parts[0]);
  for (size_t i = 0; i < g.numbers.size(); ++i) {
    const std::string range = ranges(g.numbers[i]);
    const bool single = range.find_first_not_of("0123456789") == std::string::npos;
    text += single ? range : "{" + range + "}";
    text += printable(g.parts[i + 1]);
  }
  return text;
}

void print_table(const std::vector<std::string>& headings,
                 const std::vector<std::vector<std::string>>& rows) {
  std::vector<size_t> widths;
  std::vector<bool> right;
  std::vector<std::string> titles;
  for (const std::string& heading : headings) {
    right.push_back(heading[0] == '>');
    titles.push_back(right.back() ? heading.substr(1) : heading);
    widths.push_back(columns(titles.back()));
  }
  for (const auto& row : rows) {
    for (size_t c = 0; c < row.size(); ++c) widths[c] = std::max(widths[c], columns(row[c]));
  }
  const auto print = [&](const std::vector<std::string>& row) {
    std::string line;
    for (size_t c = 0; c < row.size(); ++c) {
      const std::string pad(widths[c] - columns(row[c]), ' ');
      line += (c == 0 ? "" : "  ") + (right[c] ? pad + row[c] : row[c] + pad);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    std::printf("%s\n", line.c_str());
  };
  print(titles);
  for (const auto& row : rows) print(row);
}

std::string shape_text(const std::vector<int64_t>& shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) text += (i == 0 ? "" : ", ") + std::to_string(shape[i]);
  return text + "]";
}

}  // namespace tilekernels::tool
