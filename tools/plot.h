// Bars of shares, as SVG.
#pragma once

#include <string>
#include <vector>

namespace tilekernels::tool {

struct Bar {
  std::string group;  ///< the op: a heading over its bars
  std::string label;  ///< the shape, "tokens=4096,hidden=7168"
  std::string colour;
  double share;      ///< the bar's length
  double mark;       ///< a second share, drawn as a stroke across the bar
  std::string text;  ///< beside the bar
};

/// A picture with one bar a line, headings where the group changes, and a line at share 1, named
/// `unit`. Parts of the labels that a whole group shares move into its heading.
std::string bar_plot(const std::string& title, const std::string& subtitle, const std::string& unit,
                     const std::vector<Bar>& bars);

}  // namespace tilekernels::tool
