// SPDX-License-Identifier: Apache-2.0
// Pages in one HTML file: no script, nothing loaded from anywhere, plots as inline SVG, light and dark.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace ampcheck::tools {

std::string html_escaped(const std::string& text);

/// From the doctype to the opened body. A policy in the head lets a browser load and run nothing.
std::string html_head(const std::string& title);

/// A bar of a share from 0 to 1 beside its number, which says the same without colours. `zero`: what
/// it says where there is none.
std::string share_bar(double share, const char* zero = "0 %");

/// A line over the steps; gaps where a value is not finite. `style`: "low" (drawn through) or "ref" (dashed).
struct PlotLine {
  const char* style;
  std::vector<double> values;
};
/// A mark at the foot, and what it says.
struct PlotMark {
  std::size_t at = 0;
  std::string says;
};
/// What stands at the ends of the lower edge; a band of values, shaded.
struct PlotFrame {
  std::string first, last;
  double band_low = 0, band_high = 0;  ///< both 0: none
};

/// Lines over their common numbers of values. `label`: of the values at the left edge.
std::string line_plot(const std::vector<PlotLine>& lines, const std::function<std::string(double)>& label,
                      const std::vector<PlotMark>& marks, const PlotFrame& frame);

}  // namespace ampcheck::tools
