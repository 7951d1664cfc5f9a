// SPDX-License-Identifier: Apache-2.0
#include "tools/report/scaler_html.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "checks/scaler/answers.h"
#include "tools/report/html_page.h"
#include "tools/report/numbers.h"

namespace ampcheck::tools {

namespace {

using checks::scaler::Answer;
using checks::scaler::Health;
using checks::scaler::LogAudit;
using checks::scaler::Moment;
using checks::scaler::Timeline;

constexpr std::size_t kColumns = 450;  ///< two values each: a long log draws as fast as a short one

/// Of each run of values its smallest and largest, in the order in which they stand.
std::vector<double> thinned(const std::vector<double>& values, std::size_t per_column) {
  if (per_column <= 1) return values;
  std::vector<double> out;
  for (std::size_t at = 0; at < values.size(); at += per_column) {
    std::size_t least = values.size(), most = values.size();
    for (std::size_t i = at; i < std::min(at + per_column, values.size()); ++i) {
      if (!std::isfinite(values[i])) continue;
      if (least == values.size() || values[i] < values[least]) least = i;
      if (most == values.size() || values[i] > values[most]) most = i;
    }
    for (const std::size_t i : {std::min(least, most), std::max(least, most)})
      out.push_back(i == values.size() ? NAN : values[i]);
  }
  return out;
}

/// Where columns of a plot begin, and the marks of what was skipped.
class Columns {
 public:
  explicit Columns(const Timeline& t) : t_(t), per_column_((t.moments.size() + kColumns - 1) / kColumns) {
    std::size_t last = t.moments.size();
    for (std::size_t i = 0; i < t.moments.size(); ++i) {
      const Moment& m = t.moments[i];
      if (!m.skip()) continue;
      const std::size_t column = i / per_column_;
      if (column == last) continue;  // one mark says it
      last = column;
      skips_.push_back(
          {per_column_ > 1 ? 2 * column : column, fmt::format("{}: {} skipped", checks::scaler::place_of(m),
                                                              checks::scaler::count_text(m.skips, "step", "steps"))});
    }
  }

  template <class Of>
  PlotLine line(const char* style, const Of& of) const {
    std::vector<double> values;
    for (std::size_t i = 0; i < t_.moments.size(); ++i) values.push_back(of(i));
    return {style, thinned(values, per_column_)};
  }
  PlotFrame frame() const {
    return {checks::scaler::place_of(t_.moments.front()), checks::scaler::place_of(t_.moments.back())};
  }
  const std::vector<PlotMark>& skips() const { return skips_; }

 private:
  const Timeline& t_;
  std::size_t per_column_;
  std::vector<PlotMark> skips_;
};

std::string power(double v) { return fmt::format("2^{:.1f}", v); }
std::string decimal(double v) { return rounded_decimal(v, 3); }

double log2_of(std::optional<double> x) { return x && *x > 0 ? std::log2(*x) : NAN; }

std::string scale_section(const LogAudit& audit, const Columns& columns) {
  const Timeline& t = audit.timeline;
  if (!t.scale_known) return "<h2>Loss scale</h2><p>The log does not say it.</p>";
  const std::vector<double> due = checks::scaler::scale_of_rule(audit);
  const bool played = std::ranges::any_of(due, [](double x) { return std::isfinite(x); });
  PlotFrame frame = columns.frame();
  frame.band_low = audit.rule.floor > 0 ? std::log2(audit.rule.floor) : -149;
  frame.band_high = std::isfinite(audit.rule.cap) ? std::log2(audit.rule.cap) : 128;
  const PlotLine rule = columns.line("ref", [&](std::size_t i) { return log2_of(due[i]); });
  const PlotLine scale = columns.line("low", [&](std::size_t i) { return log2_of(t.moments[i].after); });
  return fmt::format(
             "<h2>Loss scale and skipped steps</h2><p>{} skipped (marks at the foot). Shaded: from the floor to the "
             "cap of the rule {}.{}</p>",
             checks::scaler::count_text(t.skips, "step was", "steps were"), html_escaped(audit.rule.name),
             played ? " Dashed: the scale that the rule has with these skips." : "") +
         line_plot({scale, rule}, power, columns.skips(), frame);
}

std::string norm_section(const Timeline& t, const Columns& columns) {
  if (!t.norm_known) return "";
  const auto norm = columns.line("low", [&](std::size_t i) {
    const Moment& m = t.moments[i];
    return log2_of(m.norm ? m.norm : m.mean_norm);
  });
  const auto scale =
      columns.line("ref", [&](std::size_t i) { return t.scale_known ? log2_of(t.moments[i].after) : NAN; });
  return "<h2>Norm of the gradients</h2><p>Drawn through: the norm. Dashed: the scale; a norm that follows it is one "
         "of "
         "scaled gradients.</p>" +
         line_plot({norm, scale}, power, {}, columns.frame());
}

std::string loss_section(const Timeline& t, const Columns& columns) {
  if (!t.loss_known) return "";
  return "<h2>Loss</h2>" +
         line_plot({columns.line("low", [&](std::size_t i) { return t.moments[i].loss.value_or(NAN); })}, decimal,
                   columns.skips(), columns.frame());
}

std::string answers_section(const LogAudit& audit) {
  std::string out = "<h2>Answers</h2><table>";
  for (const Answer& a : audit.answers) {
    std::string text = html_escaped(a.text);
    for (const auto& e : a.evidence)
      text += fmt::format("<br>{}: {}", e.step ? fmt::format("step {}", *e.step) : fmt::format("line {}", e.line),
                          html_escaped(e.what));
    if (!a.advice.empty()) text += "<br>try " + html_escaped(a.advice);
    out += fmt::format("<tr><th>{}</th><td{}>{}</td><td>{}</td></tr>", a.question,
                       a.health == Health::broken ? " class=\"bad\"" : "", name(a.health), text);
  }
  return out + "</table>";
}

}  // namespace

std::string scaler_html(const LogAudit& audit, const std::string& file) {
  const Timeline& t = audit.timeline;
  const std::string title = file == "-" ? "standard input" : file;
  std::string out = html_head("ampcheck audit scaler: " + title);
  out += fmt::format("<h1>{}: {}</h1><p>{} lines, rule {}{}</p>", html_escaped(title), name(audit.headline().health),
                     grouped(audit.log.lines), html_escaped(audit.rule.name),
                     audit.rule_declared ? "" : " (that of the log's framework)");
  if (!t.moments.empty()) {
    const Columns columns(t);
    out += scale_section(audit, columns) + norm_section(t, columns) + loss_section(t, columns);
  }
  return out + answers_section(audit) + "</body></html>\n";
}

}  // namespace ampcheck::tools
