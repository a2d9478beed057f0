// Charts as inline SVG: no script, no font and no picture from elsewhere.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"

namespace bulkhead {

struct Series {
  std::string name;
  std::vector<std::pair<double, double>> points;  // x, y
  bool connected = true;                          // else single dots
  std::vector<std::string> labels;                // of each point; empty: none
};

// Axes begin at 0.
std::string XyChart(const std::string& title, const std::string& x_label,
                    const std::string& y_label, const std::vector<Series>& series);

struct Bar {
  std::string label;
  std::vector<double> parts;  // one for each of the chart's names
};

// Horizontal bars, each divided into parts.
std::string StackedBars(const std::string& title, const std::string& x_label,
                        const std::vector<std::string>& names, const std::vector<Bar>& bars);

// `text` with what HTML would take for its own escaped.
std::string EscapeHtml(absl::string_view text);

// The begin of a page up to the first heading's end; whoever writes it ends it with kPageEnd.
std::string PageBegin(const std::string& title);
inline constexpr char kPageEnd[] = "</main></body></html>\n";

// A table: the first row is its head.
std::string HtmlTable(const std::vector<std::vector<std::string>>& rows);

}  // namespace bulkhead
