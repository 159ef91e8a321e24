// Tables over many tensors: equal rows of a model's layers become one line.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace tilekernels::tool {

/// Collects rows by name with its numbers taken out, and by a key.
class NameGroups {
 public:
  /// The group of a tensor, in the order of first appearance.
  size_t place(std::string_view name, const std::string& key);
  size_t size() const { return groups_.size(); }
  /// "model.layers.{0-60}.mlp.up_proj.weight".
  std::string label(size_t group) const;

 private:
  struct Group {
    std::vector<std::string> parts;  // text, number, text, number, …, text
    std::vector<std::vector<int64_t>> numbers;
  };
  std::vector<Group> groups_;
  std::unordered_map<std::string, size_t> place_of_;
};

/// Prints aligned columns; a column whose heading begins with > is aligned right.
void print_table(const std::vector<std::string>& headings,
                 const std::vector<std::vector<std::string>>& rows);

/// "[1024, 4096]".
std::string shape_text(const std::vector<int64_t>& shape);

}  // namespace tilekernels::tool
