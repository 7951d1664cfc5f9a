// SPDX-License-Identifier: Apache-2.0
#include "tools/report/html_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "tools/report/numbers.h"

namespace ampcheck::tools {

namespace {

constexpr double kWidth = 900, kLeft = 70, kHeight = 220;

constexpr const char* kStyle = R"(
:root { color-scheme: light dark; --ink: #1c2430; --soft: #6a7585; --line: #d5dae1; --paper: #ffffff; --low: #c2410c; --ref: #1d4ed8; --bar: #4b7fd1; }
@media (prefers-color-scheme: dark) { :root { --ink: #e5e9f0; --soft: #98a2b3; --line: #39424e; --paper: #14181d; --low: #fb923c; --ref: #7aa2f7; --bar: #5b8bd9; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); margin: 2rem auto; max-width: 1120px; padding: 0 1rem; }
h1 { font-size: 1.35rem; margin-bottom: .2rem; } h2 { font-size: 1.05rem; margin: 2rem 0 .3rem; } p { color: var(--soft); margin: .2rem 0 .6rem; }
svg { max-width: 100%; height: auto; display: block; } svg text { fill: var(--soft); font-size: 11px; } .axis { stroke: var(--line); }
.low { stroke: var(--low); fill: none; stroke-width: 1.6; } .ref { stroke: var(--ref); fill: none; stroke-width: 1.6; stroke-dasharray: 5 3; } .skip { stroke: var(--low); stroke-width: 1.2; }
.bar { fill: var(--bar); } .band { fill: var(--bar); opacity: .12; } .edge { stroke: var(--low); stroke-dasharray: 3 3; } .grid { display: flex; flex-wrap: wrap; gap: 1rem; } .grid div { width: 340px; font-size: .8rem; }
table { border-collapse: collapse; } td, th { text-align: left; vertical-align: top; padding: .25rem 1rem .25rem 0; } .bad { color: var(--low); font-weight: 600; }
.share { white-space: nowrap; } .share svg { display: inline; } h1, h2, h3, p, td, .grid div { overflow-wrap: anywhere; }
.key span { display: inline-block; margin-right: 1.2rem; } .key i { display: inline-block; width: 1.6rem; border-top: 2px solid; vertical-align: middle; margin-right: .4rem; }
)";

}  // namespace

std::string html_escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '&')
      out += "&amp;";
    else if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else if (c == '"')
      out += "&quot;";
    else
      out += c;
  }
  return out;
}

std::string html_head(const std::string& title) {
  return fmt::format(
      "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><meta http-equiv=\"Content-Security-Policy\" "
      "content=\"default-src 'none'; style-src 'unsafe-inline'\"><meta name=\"viewport\" "
      "content=\"width=device-width\"><title>{}</title><style>{}</style></head><body>",
      html_escaped(title), kStyle);
}

std::string share_bar(double share, const char* zero) {
  return fmt::format(
      "<span class=\"share\"><svg viewBox=\"0 0 100 10\" width=\"100\" height=\"10\" role=\"img\"><rect "
      "class=\"band\" width=\"100\" height=\"10\"/><rect class=\"bar\" width=\"{:.1f}\" height=\"10\"/></svg> "
      "{}</span>",
      100 * std::clamp(share, 0.0, 1.0), percent(share, zero));
}

std::string line_plot(const std::vector<PlotLine>& lines, const std::function<std::string(double)>& label,
                      const std::vector<PlotMark>& marks, const PlotFrame& frame) {
  double low = INFINITY, high = -INFINITY;
  std::size_t n = 1;
  for (const PlotLine& line : lines)
    for (const double v : line.values)
      if (std::isfinite(v)) {
        low = std::min(low, v);
        high = std::max(high, v);
      }
  for (const PlotLine& line : lines) n = std::max(n, line.values.size());
  if (low > high) return "<p>No finite value.</p>";
  if (low == high) {
    low -= 2;
    high += 2;
  }
  const auto x = [&](std::size_t i) {
    return kLeft +
           (kWidth - kLeft - 10) * static_cast<double>(i) / static_cast<double>(std::max<std::size_t>(n - 1, 1));
  };
  const auto y = [&](double v) { return 10 + (kHeight - 40) * (high - v) / (high - low); };
  std::string out = fmt::format("<svg viewBox=\"0 0 {} {}\" role=\"img\">", kWidth, kHeight);
  for (int i = 0; i <= 4; ++i) {
    const double v = low + (high - low) * i / 4;
    out += fmt::format(
        "<line class=\"axis\" x1=\"{}\" x2=\"{}\" y1=\"{:.1f}\" y2=\"{:.1f}\"/><text x=\"{}\" y=\"{:.1f}\" "
        "text-anchor=\"end\">{}</text>",
        kLeft, kWidth - 10, y(v), y(v), kLeft - 6, y(v) + 4, label(v));
  }
  if (frame.band_low < frame.band_high) {
    const double top = y(std::min(frame.band_high, high)), foot = y(std::max(frame.band_low, low));
    if (foot > top)
      out += fmt::format("<rect class=\"band\" x=\"{}\" y=\"{:.1f}\" width=\"{}\" height=\"{:.1f}\"/>", kLeft, top,
                         kWidth - kLeft - 10, foot - top);
  }
  for (const PlotMark& mark : marks)
    out += fmt::format(
        "<line class=\"skip\" x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"{1}\" y2=\"{2}\"><title>{3}</title></line>",
        x(mark.at), kHeight - 30, kHeight - 18, html_escaped(mark.says));
  for (const PlotLine& line : lines) {
    std::string path;
    bool pen = false;
    for (std::size_t i = 0; i < line.values.size(); ++i) {
      if (std::isfinite(line.values[i]))
        path += fmt::format("{}{:.1f} {:.1f}", pen ? "L" : "M", x(i), y(line.values[i]));
      pen = std::isfinite(line.values[i]);
    }
    out += fmt::format("<path class=\"{}\" d=\"{}\"/>", line.style, path);
  }
  return out +
         fmt::format("<text x=\"{}\" y=\"{}\">{}</text><text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text></svg>",
                     kLeft, kHeight - 4, html_escaped(frame.first), kWidth - 10, kHeight - 4, html_escaped(frame.last));
}

}  // namespace ampcheck::tools
