// Lays the bars out and writes the SVG: text, lines and rectangles.
#include "plot.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace tilekernels::tool {
namespace {

constexpr double kWidth = 920;
constexpr double kMargin = 20;
constexpr double kRow = 22;
constexpr double kBar = 14;
constexpr double kHeading = 32;
constexpr double kGlyph = 7.0;  // a generous mean width at 12 px
constexpr double kValueWidth = 130;

std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.1f", value);
  return text;
}

std::string escaped(const std::string& plain) {
  std::string text;
  for (char c : plain) {
    switch (c) {
      case '&':
        text += "&amp;";
        break;
      case '<':
        text += "&lt;";
        break;
      case '>':
        text += "&gt;";
        break;
      case '"':
        text += "&quot;";
        break;
      default:
        text += c;
    }
  }
  return text;
}

std::vector<std::string> parts_of(const std::string& label) {
  std::vector<std::string> parts;
  for (size_t begin = 0; begin <= label.size();) {
    const size_t end = std::min(label.find(',', begin), label.size());
    parts.push_back(label.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

bool contains(const std::vector<std::string>& parts, const std::string& part) {
  return std::find(parts.begin(), parts.end(), part) != parts.end();
}

struct Group {
  std::string name;
  std::string shared;  // what all labels have in common
  std::vector<Bar> bars;
};

void factor_out(Group& group) {
  if (group.bars.size() < 2) return;
  std::vector<std::string> shared;
  for (const std::string& part : parts_of(group.bars[0].label)) {
    bool everywhere = true;
    for (const Bar& bar : group.bars) {
      everywhere = everywhere && contains(parts_of(bar.label), part);
    }
    if (everywhere) shared.push_back(part);
  }
  for (const std::string& part : shared) group.shared += (group.shared.empty() ? "" : ", ") + part;
  for (Bar& bar : group.bars) {
    std::string label;
    for (const std::string& part : parts_of(bar.label)) {
      if (!contains(shared, part)) label += (label.empty() ? "" : ", ") + part;
    }
    bar.label = label;
  }
}

std::vector<Group> groups_of(const std::vector<Bar>& bars) {
  std::vector<Group> groups;
  for (const Bar& bar : bars) {
    if (groups.empty() || groups.back().name != bar.group) groups.push_back({bar.group, "", {}});
    groups.back().bars.push_back(bar);
  }
  for (Group& group : groups) factor_out(group);
  return groups;
}

std::string text_at(double x, double y, const char* kind, const std::string& plain) {
  return "<text class=\"" + std::string(kind) + "\" x=\"" + number(x) + "\" y=\"" + number(y) +
         "\">" + escaped(plain) + "</text>\n";
}

std::string vertical(double x, double top, double bottom, const char* kind) {
  return "<line class=\"" + std::string(kind) + "\" x1=\"" + number(x) + "\" y1=\"" + number(top) +
         "\" x2=\"" + number(x) + "\" y2=\"" + number(bottom) + "\"/>\n";
}

constexpr char kStyle[] =
    "<style>\n"
    "text { font: 12px -apple-system, \"Segoe UI\", \"DejaVu Sans\", sans-serif; fill: #24292f; }\n"
    ".title { font-size: 17px; font-weight: 600; }\n"
    ".note, .tick, .value { fill: #57606a; }\n"
    ".tick, .unit { text-anchor: middle; font-size: 11px; }\n"
    ".unit { font-weight: 600; }\n"
    ".op { font-weight: 600; font-size: 13px; }\n"
    ".op, .shared { paint-order: stroke; stroke: #ffffff; stroke-width: 4px; }\n"
    ".shared { font-weight: 400; font-size: 12px; fill: #57606a; }\n"
    ".label { text-anchor: end; }\n"
    ".grid { stroke: #d8dee4; }\n"
    ".limit { stroke: #24292f; stroke-dasharray: 4 3; }\n"
    "</style>\n";

}  // namespace

std::string bar_plot(const std::string& title, const std::string& subtitle, const std::string& unit,
                     const std::vector<Bar>& bars) {
  const std::vector<Group> groups = groups_of(bars);
  size_t longest = 0;
  double highest = 1;
  for (const Group& group : groups) {
    for (const Bar& bar : group.bars) {
      longest = std::max(longest, bar.label.size());
      highest = std::max({highest, bar.share, bar.mark});
    }
  }
  const double step = highest > 4      ? std::ceil(highest / 6)
                      : highest > 2    ? 1
                      : highest > 1.25 ? 0.5
                                       : 0.25;
  const double scale_end = std::ceil(highest / step - 1e-9) * step;
  const double left = kMargin + kGlyph * static_cast<double>(longest) + 10;
  const double right = std::max(kWidth, left + 500) - kMargin - kValueWidth;
  const double width = right + kValueWidth + kMargin;
  const double per_share = (right - left) / scale_end;
  const double top = 92;
  const double bottom = top + kHeading * static_cast<double>(groups.size()) +
                        kRow * static_cast<double>(bars.size()) + 6;
  const double height = bottom + kMargin;

  std::string svg = "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"" + number(width) +
                    "\" height=\"" + number(height) + "\" viewBox=\"0 0 " + number(width) + " " +
                    number(height) + "\" role=\"img\">\n" + kStyle +
                    "<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n";
  svg += text_at(kMargin, 32, "title", title);
  svg += text_at(kMargin, 53, "note", subtitle);
  for (double tick = 0; tick <= scale_end + 1e-9; tick += step) {
    const double x = left + tick * per_share;
    const bool is_unit = std::fabs(tick - 1) < 1e-9;
    svg += vertical(x, top, bottom, is_unit ? "limit" : "grid");
    const std::string percent = std::to_string(static_cast<int>(std::lround(tick * 100))) + " %";
    svg += text_at(x, top - 8, is_unit ? "unit" : "tick", is_unit ? unit : percent);
  }
  double y = top;
  for (const Group& group : groups) {
    svg += "<text class=\"op\" x=\"" + number(kMargin) + "\" y=\"" + number(y + kHeading - 10) +
           "\">" + escaped(group.name) + "<tspan class=\"shared\" dx=\"10\">" +
           escaped(group.shared) + "</tspan></text>\n";
    y += kHeading;
    for (const Bar& bar : group.bars) {
      const double length = std::max(bar.share * per_share, 1.0);
      svg += text_at(left - 8, y + kBar, "label", bar.label);
      svg += "<rect x=\"" + number(left) + "\" y=\"" + number(y + 3) + "\" width=\"" +
             number(length) + "\" height=\"" + number(kBar) + "\" rx=\"2\" fill=\"" + bar.colour +
             "\"/>\n";
      svg += "<rect x=\"" + number(left + bar.mark * per_share - 1) + "\" y=\"" + number(y + 1) +
             "\" width=\"2\" height=\"" + number(kBar + 4) + "\" fill=\"#24292f\"/>\n";
      svg += text_at(right + 12, y + kBar, "value", bar.text);
      y += kRow;
    }
  }
  return svg + "</svg>\n";
}

}  // namespace tilekernels::tool
