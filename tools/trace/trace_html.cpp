// SPDX-License-Identifier: Apache-2.0
// The HTML page of a trace: plots as inline SVG, no script, nothing loaded from anywhere.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "tools/report/html_page.h"
#include "tools/report/numbers.h"
#include "tools/trace/trace_file.h"

namespace ampcheck::tools {

namespace {

constexpr std::size_t kMostColumns = 150, kMostRows = 60, kHistograms = 12;

/// One cell of a heat map: what it shows, how strongly from 0 to 1, and its words.
struct Cell {
  bool known = false;
  double value = 0;
};

/// Rows are tensors, columns are steps, several to a column where there are many; `worse` of two values is kept.
struct HeatMap {
  std::vector<std::string> rows;
  std::vector<std::vector<Cell>> cells;
  std::size_t per_column = 1;
};

HeatMap heat_map(const Trace& trace, const std::vector<std::string>& rows,
                 const std::function<std::optional<double>(const TracedTensor&)>& value, bool largest) {
  HeatMap out;
  out.rows = rows;
  const std::size_t steps = static_cast<std::size_t>(trace.steps.back().step) + 1;
  out.per_column = (steps + kMostColumns - 1) / kMostColumns;
  out.cells.assign(rows.size(), std::vector<Cell>((steps + out.per_column - 1) / out.per_column));
  std::map<std::string, std::size_t> index;
  for (std::size_t i = 0; i < rows.size(); ++i) index[rows[i]] = i;
  for (const TracedTensor& t : trace.tensors) {
    const auto row = index.find(t.name());
    const auto v = value(t);
    if (row == index.end() || !v) continue;
    Cell& cell = out.cells[row->second][static_cast<std::size_t>(t.step) / out.per_column];
    cell.value = !cell.known ? *v : largest ? std::max(cell.value, *v) : std::min(cell.value, *v);
    cell.known = true;
  }
  return out;
}

std::string heat_svg(const HeatMap& map, const std::vector<MarkedTensor>& marks,
                     const std::function<double(double)>& strength, const std::function<std::string(double)>& words) {
  const double left = 330, row_height = 14;
  const std::size_t columns = map.cells.empty() ? 1 : map.cells.front().size();
  const double cell = (1080 - left) / static_cast<double>(columns),
               height = row_height * static_cast<double>(map.rows.size()) + 22;
  std::string out = fmt::format("<svg viewBox=\"0 0 1080 {}\" role=\"img\">", height);
  for (std::size_t r = 0; r < map.rows.size(); ++r) {
    const double y = row_height * static_cast<double>(r);
    out += fmt::format("<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>", left - 6, y + 11,
                       html_escaped(map.rows[r]));
    for (std::size_t c = 0; c < columns; ++c) {
      const Cell& value = map.cells[r][c];
      if (!value.known) continue;
      const double s = std::clamp(strength(value.value), 0.0, 1.0);
      const auto mark = std::find_if(marks.begin(), marks.end(), [&](const MarkedTensor& m) {
        return m.tensor == map.rows[r] && static_cast<std::size_t>(m.step) / map.per_column == c;
      });
      out += fmt::format(
          "<rect x=\"{:.2f}\" y=\"{}\" width=\"{:.2f}\" height=\"{}\" fill=\"hsl({:.0f} 75% {:.0f}%)\"{}><title>{}, "
          "step {}: {}{}</title></rect>",
          left + cell * static_cast<double>(c), y + 1, std::max(cell - 0.5, 0.5), row_height - 1.5, 140 - 140 * s,
          82 - 37 * s, mark != marks.end() ? " class=\"mark\" stroke=\"currentColor\" stroke-width=\"2\"" : "",
          html_escaped(map.rows[r]), c * map.per_column + 1, words(value.value),
          mark != marks.end() ? "; of the causal chain: " + html_escaped(mark->what) : "");
    }
  }
  return out + fmt::format(
                   "<text x=\"{}\" y=\"{}\">step 1</text><text x=\"1080\" y=\"{}\" text-anchor=\"end\">{}</text></svg>",
                   left, height - 6, height - 6, columns * map.per_column);
}

/// Exponents of one tensor over the run, with the ends of its format: overflow, smallest normal, smallest subnormal.
std::string histogram(const TracedSum& s) {
  const FloatFormat& f = format(s.sum.dtype);
  const int low = std::min(s.sum.first_exponent, std::ilogb(f.min_subnormal())) - 1;
  const int high = std::max(s.sum.first_exponent + static_cast<int>(s.sum.exponents.size()),
                            s.sum.dtype == Dtype::fp16 ? f.max_exponent() + 1 : 0) +
                   1;
  std::int64_t most = 1;
  for (const std::int64_t n : s.sum.exponents) most = std::max(most, n);
  const double width = 320, height = 90, step = width / (high - low);
  const auto x = [&](int e) { return (e - low) * step; };
  std::string out =
      fmt::format("<div>{}<svg viewBox=\"0 0 {} {}\" role=\"img\">", html_escaped(s.sum.name()), width, height);
  for (std::size_t i = 0; i < s.sum.exponents.size(); ++i) {
    const double h = 66 * static_cast<double>(s.sum.exponents[i]) / static_cast<double>(most);
    const int e = s.sum.first_exponent + static_cast<int>(i);
    out += fmt::format(
        "<rect class=\"bar\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\"><title>2^{}: "
        "{}</title></rect>",
        x(e), 70 - h, std::max(step - 0.5, 0.5), h, e, grouped(s.sum.exponents[i]));
  }
  const auto edge = [&](int e, const char* what) {
    if (e > low && e < high)
      out += fmt::format(
          "<line class=\"edge\" x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"2\" y2=\"72\"/><text x=\"{0:.1f}\" y=\"84\" "
          "text-anchor=\"middle\">{1}</text>",
          x(e), what);
  };
  edge(std::ilogb(f.min_subnormal()), "0");
  edge(f.min_exponent(), "normal");
  edge(f.max_exponent() + 1, "inf");
  return out + fmt::format("</svg>{} zero, {} flushed</div>",
                           percent(static_cast<double>(s.sum.zero) /
                                   static_cast<double>(std::max<std::int64_t>(s.sum.elements, 1))),
                           percent(s.sum.flushed_share()));
}

/// The first kMostRows of those wanted, in the order of their use.
std::vector<std::string> rows_of(const std::vector<const TracedSum*>& worst, const std::vector<MarkedTensor>& marks,
                                 const std::function<bool(const TracedSum&)>& wanted) {
  std::vector<const TracedSum*> rows;
  for (const TracedSum* s : worst)  // what is marked is there in any case
    if (std::any_of(marks.begin(), marks.end(), [&](const MarkedTensor& m) { return m.tensor == s->sum.name(); }) &&
        wanted(*s))
      rows.push_back(s);
  for (const TracedSum* s : worst)
    if (rows.size() < kMostRows && wanted(*s) && std::find(rows.begin(), rows.end(), s) == rows.end())
      rows.push_back(s);
  std::sort(rows.begin(), rows.end());  // as summed() has them
  std::vector<std::string> out;
  for (const TracedSum* s : rows) out.push_back(s->sum.name());
  return out;
}

std::string loss_section(const Trace& trace) {
  PlotLine low{"low", {}}, fp64{"ref", {}}, scale{"low", {}};
  PlotLine from{"ref", {}}, to{"ref", {}};
  const ScaleWindows windows = trace.dtype == name(Dtype::fp16) ? scale_windows(trace) : ScaleWindows();
  std::vector<PlotMark> skips;
  const PlotFrame frame{"step 1", fmt::format("{}", trace.steps.size())};
  for (std::size_t i = 0; i < trace.steps.size(); ++i) {
    const TracedStep& s = trace.steps[i];
    low.values.push_back(s.loss);
    fp64.values.push_back(s.fp64_loss.value_or(NAN));
    scale.values.push_back(std::log2(s.scale));
    if (!s.stepped) skips.push_back({i, fmt::format("step {} skipped", i + 1)});
    const auto of = windows.by_step.find(s.step);  // of a step not looked at: the last one that was
    const bool held = of == windows.by_step.end() && i > 0, some = of != windows.by_step.end() && !of->second.none();
    from.values.push_back(held ? from.values.back() : some ? static_cast<double>(*of->second.low) : NAN);
    to.values.push_back(held ? to.values.back() : some ? static_cast<double>(*of->second.high) : NAN);
  }
  return "<h2>Loss</h2><p class=\"key\"><span><i style=\"border-color:var(--low)\"></i>" + trace.dtype +
         "</span><span><i style=\"border-color:var(--ref);border-top-style:dashed\"></i>fp64</span></p>" +
         line_plot(
             {low, fp64}, [](double v) { return rounded_decimal(v, 3); }, {}, frame) +
         fmt::format("<h2>Loss scale and skipped steps</h2><p>{} of {} steps skipped (marks at the foot).{}</p>",
                     skips.size(), trace.steps.size(),
                     windows.by_step.empty()
                         ? ""
                         : " Between the dashed lines no gradient loses anything, in the steps looked at.") +
         line_plot(
             {from, to, scale}, [](double v) { return fmt::format("2^{:.1f}", v); }, skips, frame);
}

std::string chain_section(const std::string& title, const std::vector<MarkedTensor>& marks) {
  if (title.empty()) return "";
  std::string out = "<h2>Causal chain</h2><p>" + html_escaped(title) + "</p>";
  if (marks.empty()) return out;
  out += "<ol>";
  for (const MarkedTensor& m : marks)
    out += fmt::format("<li>step {}: {}{}</li>", m.step + 1, m.tensor.empty() ? "" : html_escaped(m.tensor) + ": ",
                       html_escaped(m.what));
  return out + "</ol>";
}

}  // namespace

std::string trace_html(const Trace& trace) { return marked_trace_html(trace, "", {}); }

std::string marked_trace_html(const Trace& trace, const std::string& title, const std::vector<MarkedTensor>& marks) {
  const std::vector<TracedSum> sums = summed(trace);
  std::string out = html_head(fmt::format("ampcheck trace: {} in {}", trace.model, trace.dtype_text()));
  out += fmt::format("<h1>{}, scaler {}</h1><p>seed {}, {} steps, {} tensors{}</p>",
                     html_escaped(net_in(trace.model, trace.dtype_text(), trace.autocast, trace.autocast_tables)),
                     html_escaped(trace.scaler), trace.seed, trace.steps.size(), grouped(std::ssize(trace.tensors)),
                     trace.torn ? "; the run was cut off" : "");
  out += chain_section(title, marks);
  if (trace.missing) out += "<p>" + html_escaped(missing_text(*trace.missing)) + "</p>";
  if (trace.steps.empty()) return out + "<p>No whole step.</p></body></html>\n";
  out += loss_section(trace);
  const std::vector<const TracedSum*> worst = worst_first(sums);
  const auto gradients = rows_of(worst, marks, [](const TracedSum& s) {
    return checks::train::is_gradient(s.sum.phase_number()) && s.sum.dtype != Dtype::fp32 && s.sum.nonzero > 0 &&
           !s.sum.noise;
  });
  if (!gradients.empty())
    out +=
        "<h2>Gradients flushed to zero</h2><p>Share of the elements that are zero although the exact value is not; "
        "light green: none, dark red: 10 % and more.</p>" +
        heat_svg(
            heat_map(
                trace, gradients,
                [](const TracedTensor& t) { return t.nonzero > 0 ? std::optional(t.flushed_share()) : std::nullopt; },
                true),
            marks, [](double share) { return share == 0 ? 0 : 0.25 + share * 7.5; },
            [](double share) { return percent(share); });
  std::vector<const TracedSum*> tightest;
  for (const TracedSum& s : sums) tightest.push_back(&s);
  std::stable_sort(tightest.begin(), tightest.end(), [](const TracedSum* a, const TracedSum* b) {
    return a->least_headroom.value_or(INFINITY) < b->least_headroom.value_or(INFINITY);
  });
  const auto low = rows_of(tightest, marks, [](const TracedSum& s) {
    return s.sum.dtype != Dtype::fp32 && s.least_headroom &&
           !(s.sum.cast && s.sum.tensor.find("weight") != std::string::npos);
  });
  if (!low.empty())
    out +=
        "<h2>Headroom</h2><p>Powers of two between the largest element and the largest finite number; light green: "
        "2^16 "
        "and more, dark red: none.</p>" +
        heat_svg(
            heat_map(
                trace, low, [](const TracedTensor& t) { return t.inf + t.nan > 0 ? std::optional(0.0) : t.headroom(); },
                false),
            marks, [](double room) { return 1 - room / 16; },
            [](double room) { return fmt::format("2^{:.1f}", room); });
  std::vector<const TracedSum*> shown;
  for (const TracedSum* s : worst)
    if (shown.size() < kHistograms && s->sum.dtype != Dtype::fp32 && !s->sum.exponents.empty()) shown.push_back(s);
  if (!shown.empty())
    out +=
        "<h2>Exponents</h2><p>Magnitudes over the whole run, by power of two, with the ends of the format; the tensors "
        "that lose most first.</p><div class=\"grid\">";
  for (const TracedSum* s : shown) out += histogram(*s);
  if (!shown.empty()) out += "</div>";
  return out + "</body></html>\n";
}

}  // namespace ampcheck::tools
