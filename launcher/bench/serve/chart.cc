#include "launcher/bench/serve/chart.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"

namespace bulkhead {
namespace {

constexpr int kWidth = 620;
constexpr int kHeight = 300;
constexpr int kLeft = 70;
constexpr int kRight = 20;
constexpr int kTop = 50;
constexpr int kBottom = 46;
constexpr int kBarHeight = 26;
constexpr double kLabelEdge = 0.8 * kWidth;
constexpr double kTextWidth = 6.6;  // of a letter, roughly
constexpr const char* kColors[] = {"#1f6feb", "#d1570a", "#2da44e", "#8250df",
                                   "#bf3989", "#9a6700", "#57606a", "#0f8b8d"};

const char* ColorOf(size_t i) { return kColors[i % std::size(kColors)]; }

// 1, 2 or 5 times a power of ten, so that about five steps reach `most`.
double StepOf(double most) {
  const double raw = most / 5;
  const double power = std::pow(10, std::floor(std::log10(raw)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (raw <= factor * power * (1 + 1e-9)) return factor * power;
  }
  return 10 * power;
}

std::string Number(double value) {
  return value >= 1e5 ? absl::StrFormat("%.3g", value) : absl::StrFormat("%.6g", value);
}

std::string SvgBegin(const std::string& title, int height) {
  return absl::StrFormat(
      "<svg viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"%s\">\n"
      "<text x=\"0\" y=\"18\" class=\"title\">%s</text>\n",
      kWidth, height, EscapeHtml(title), EscapeHtml(title));
}

void AddLegend(const std::vector<std::string>& names, std::string* svg) {
  double x = 0;
  for (size_t i = 0; i < names.size(); ++i) {
    absl::StrAppendFormat(svg,
                          "<rect x=\"%.0f\" y=\"27\" width=\"10\" height=\"10\" fill=\"%s\"/>"
                          "<text x=\"%.0f\" y=\"36\">%s</text>\n",
                          x, ColorOf(i), x + 14, EscapeHtml(names[i]));
    x += 30 + kTextWidth * static_cast<double>(names[i].size());
  }
}

// What a chart's axes reach, and where its points lie.
struct Frame {
  double most_x = 0;
  double most_y = 0;
  double X(double x) const { return kLeft + x / most_x * (kWidth - kLeft - kRight); }
  double Y(double y) const { return kHeight - kBottom - y / most_y * (kHeight - kTop - kBottom); }
};

void AddGrid(const Frame& frame, const std::string& x_label, const std::string& y_label,
             std::string* svg) {
  const double x_step = StepOf(frame.most_x);
  for (double x = 0; x <= frame.most_x * (1 + 1e-9); x += x_step) {
    absl::StrAppendFormat(svg,
                          "<line class=\"grid\" x1=\"%.1f\" y1=\"%d\" x2=\"%.1f\" y2=\"%d\"/>"
                          "<text class=\"mid\" x=\"%.1f\" y=\"%d\">%s</text>\n",
                          frame.X(x), kTop, frame.X(x), kHeight - kBottom, frame.X(x),
                          kHeight - kBottom + 15, Number(x));
  }
  const double y_step = StepOf(frame.most_y);
  for (double y = 0; y <= frame.most_y * (1 + 1e-9); y += y_step) {
    absl::StrAppendFormat(svg,
                          "<line class=\"grid\" x1=\"%d\" y1=\"%.1f\" x2=\"%d\" y2=\"%.1f\"/>"
                          "<text class=\"end\" x=\"%d\" y=\"%.1f\">%s</text>\n",
                          kLeft, frame.Y(y), kWidth - kRight, frame.Y(y), kLeft - 6, frame.Y(y) + 4,
                          Number(y));
  }
  const int middle = (kTop + kHeight - kBottom) / 2;
  absl::StrAppendFormat(svg,
                        "<text class=\"mid\" x=\"%d\" y=\"%d\">%s</text>\n"
                        "<text class=\"mid\" x=\"12\" y=\"%d\" transform=\"rotate(-90 12 %d)\">%s"
                        "</text>\n",
                        (kLeft + kWidth - kRight) / 2, kHeight - 10, EscapeHtml(x_label), middle,
                        middle, EscapeHtml(y_label));
}

void AddSeries(const Frame& frame, const Series& series, const char* color, std::string* svg) {
  std::string path;
  for (size_t i = 0; i < series.points.size(); ++i) {
    const double x = frame.X(series.points[i].first);
    const double y = frame.Y(series.points[i].second);
    absl::StrAppendFormat(&path, "%s%.1f %.1f", path.empty() ? "M" : "L", x, y);
    if (!series.connected || !series.labels.empty()) {
      absl::StrAppendFormat(svg, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"%s\" fill=\"%s\"/>\n", x, y,
                            series.labels.empty() ? "1.8" : "4", color);
    }
    if (i < series.labels.size()) {
      const bool near_edge = x > kLabelEdge;  // where the text would be cut off
      absl::StrAppendFormat(svg, "<text%s x=\"%.1f\" y=\"%.1f\">%s</text>\n",
                            near_edge ? " class=\"end\"" : "", x + (near_edge ? -7 : 7), y - 6,
                            EscapeHtml(series.labels[i]));
    }
  }
  if (!series.connected || path.empty()) return;
  absl::StrAppendFormat(svg, "<path d=\"%s\" fill=\"none\" stroke=\"%s\" stroke-width=\"2\"/>\n",
                        path, color);
}

}  // namespace

std::string EscapeHtml(absl::string_view text) {
  return absl::StrReplaceAll(text,
                             {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}, {"\"", "&quot;"}});
}

std::string XyChart(const std::string& title, const std::string& x_label,
                    const std::string& y_label, const std::vector<Series>& series) {
  Frame frame;
  std::vector<std::string> names;
  for (const Series& one : series) {
    names.push_back(one.name);
    for (const auto& [x, y] : one.points) {
      frame.most_x = std::max(frame.most_x, x);
      frame.most_y = std::max(frame.most_y, y);
    }
  }
  if (!(frame.most_x > 0)) frame.most_x = 1;
  frame.most_y = frame.most_y > 0 ? 1.05 * frame.most_y : 1;
  std::string svg = SvgBegin(title, kHeight);
  if (names.size() > 1) AddLegend(names, &svg);
  AddGrid(frame, x_label, y_label, &svg);
  for (size_t i = 0; i < series.size(); ++i) AddSeries(frame, series[i], ColorOf(i), &svg);
  return svg + "</svg>\n";
}

std::string StackedBars(const std::string& title, const std::string& x_label,
                        const std::vector<std::string>& names, const std::vector<Bar>& bars) {
  double most = 0;
  size_t longest = 0;
  for (const Bar& bar : bars) {
    double sum = 0;
    for (const double part : bar.parts) sum += part;
    most = std::max(most, sum);
    longest = std::max(longest, bar.label.size());
  }
  if (!(most > 0)) most = 1;
  const int height = kTop + static_cast<int>(bars.size()) * kBarHeight + 40;
  const double left = std::min(kWidth / 2.0, 10 + kTextWidth * static_cast<double>(longest));
  const double scale = (kWidth - kRight - left) / most;
  std::string svg = SvgBegin(title, height);
  AddLegend(names, &svg);
  const int bottom = height - 40;
  const double step = StepOf(most);
  for (double x = 0; x <= most * (1 + 1e-9); x += step) {
    absl::StrAppendFormat(&svg,
                          "<line class=\"grid\" x1=\"%.1f\" y1=\"%d\" x2=\"%.1f\" y2=\"%d\"/>"
                          "<text class=\"mid\" x=\"%.1f\" y=\"%d\">%s</text>\n",
                          left + x * scale, kTop, left + x * scale, bottom, left + x * scale,
                          bottom + 15, Number(x));
  }
  for (size_t i = 0; i < bars.size(); ++i) {
    const int y = kTop + static_cast<int>(i) * kBarHeight;
    absl::StrAppendFormat(&svg, "<text class=\"end\" x=\"%.1f\" y=\"%d\">%s</text>\n", left - 6,
                          y + 16, EscapeHtml(bars[i].label));
    double x = left;
    for (size_t k = 0; k < bars[i].parts.size(); ++k) {
      const double width = std::max(0.0, bars[i].parts[k]) * scale;
      absl::StrAppendFormat(&svg,
                            "<rect x=\"%.1f\" y=\"%d\" width=\"%.1f\" height=\"%d\" fill=\"%s\">"
                            "<title>%s: %s</title></rect>\n",
                            x, y + 3, width, kBarHeight - 6, ColorOf(k), EscapeHtml(names[k]),
                            Number(bars[i].parts[k]));
      x += width;
    }
  }
  absl::StrAppendFormat(&svg, "<text class=\"mid\" x=\"%.1f\" y=\"%d\">%s</text>\n",
                        (left + kWidth - kRight) / 2, height - 8, EscapeHtml(x_label));
  return svg + "</svg>\n";
}

std::string PageBegin(const std::string& title) {
  return absl::StrCat(
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width\">\n<title>",
      EscapeHtml(title),
      "</title>\n<style>\n"
      "body{font:15px/1.45 system-ui,sans-serif;color:#1f2328;background:#fff;margin:0}\n"
      "main{max-width:1320px;margin:0 auto;padding:24px}\n"
      "h1{font-size:24px}h2{font-size:18px;margin:28px 0 8px}\n"
      ".charts{display:grid;grid-template-columns:repeat(auto-fit,minmax(460px,1fr));gap:24px}\n"
      "svg{width:100%;height:auto;font:11px system-ui,sans-serif;fill:#1f2328}\n"
      ".title{font-size:14px;font-weight:600}.mid{text-anchor:middle}.end{text-anchor:end}\n"
      ".grid{stroke:#d8dee4;stroke-width:1}\n"
      "table{border-collapse:collapse;margin:8px 0}\n"
      "th,td{padding:3px 12px 3px 0;text-align:right;border-bottom:1px solid #d8dee4}\n"
      "th:first-child,td:first-child{text-align:left}\n"
      "pre{background:#f6f8fa;padding:12px;overflow:auto;font-size:12px}\n"
      ".bad{background:#ffebe9;border-left:4px solid #cf222e;padding:8px 12px}\n"
      "</style></head><body><main>\n<h1>",
      EscapeHtml(title), "</h1>\n");
}

std::string HtmlTable(const std::vector<std::vector<std::string>>& rows) {
  std::string html = "<table>\n";
  for (size_t i = 0; i < rows.size(); ++i) {
    const char* cell = i == 0 ? "th" : "td";
    absl::StrAppend(&html, "<tr>");
    for (const std::string& text : rows[i]) {
      absl::StrAppend(&html, "<", cell, ">", EscapeHtml(text), "</", cell, ">");
    }
    absl::StrAppend(&html, "</tr>\n");
  }
  return html + "</table>\n";
}

}  // namespace bulkhead
