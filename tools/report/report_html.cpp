// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
// A check or a gate as one page that loads nothing: ops with how much of their allowed error they used, the spread of
// that over the cases, each finding, and every case.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <optional>
#include <set>

#include "tools/report/failing_cases.h"
#include "tools/report/html_page.h"
#include "tools/report/numbers.h"
#include "tools/report/plain_text.h"
#include "tools/report/reports.h"

namespace ampcheck::tools {

namespace {

constexpr std::size_t kMostFindings = 200, kMostCases = 4000;  ///< a page of 1 MB at most
constexpr std::size_t kMostHistories = 60;                     ///< up to 20 states each, 300 B a state
constexpr std::size_t kMostMaps = 20;                          ///< of the findings, the first ones: 25 kB each at most

std::string escaped(std::string_view text) { return html_escaped(one_line(text)); }

/// Cases by the share of the allowed error that they used: tenths, and those outside.
using Spread = std::array<std::int64_t, 11>;

struct OpSummary {
  std::set<std::string> dtypes;
  std::int64_t cases = 0, failed = 0, skipped = 0, elements = 0, blind = 0, regrouped = 0, by_forms = 0;
  double share = 0;                           ///< largest of the cases inside
  std::map<std::string, std::int64_t> found;  ///< by code
  Spread spread = {};
};

/// Largest share of the allowed error over a case's tensors.
double share_of(const CaseResult& result) {
  double out = 0;
  for (const CheckResult& check : result.checks)
    if (is_of_pass(check.id) && check.failed == 0 && std::isfinite(check.max_ratio))
      out = std::max(out, check.max_ratio);
  return out;
}

std::vector<std::pair<std::string, OpSummary>> ops_of(const Report& report) {
  std::vector<std::pair<std::string, OpSummary>> out;
  for (const CaseResult& result : report.cases) {
    auto known = std::ranges::find(out, result.op, &std::pair<std::string, OpSummary>::first);
    if (known == out.end()) known = out.insert(out.end(), {result.op, OpSummary{}});
    OpSummary& op = known->second;
    op.dtypes.insert(result.dtype);
    ++op.cases;
    op.elements += result.elements();
    op.blind += result.blind();
    for (const CheckResult& check : result.checks) {
      if (!is_of_pass(check.id)) continue;
      op.regrouped += check.by_regrouping;
      if (!result.plugin.empty()) op.by_forms += check.by_forms;  // of a built-in op all usual forms are listed
    }
    if (result.verdict == Verdict::skipped) {
      ++op.skipped;
      continue;
    }
    if (convicts(result.verdict)) {
      ++op.failed;
      ++op.found[std::string(name(result.verdict)) + " " + name(result.code)];
      ++op.spread.back();
      continue;
    }
    const double share = share_of(result);
    op.share = std::max(op.share, share);
    ++op.spread[static_cast<std::size_t>(std::clamp(share * 10, 0.0, 9.0))];
  }
  return out;
}

std::string verdict_of(const OpSummary& op) {
  if (op.failed == 0) return op.skipped == op.cases ? "SKIPPED" : "ROUNDING";
  std::string out;
  for (const auto& [kind, count] : op.found)
    out += fmt::format("{}{} in {}", out.empty() ? "" : ", ", escaped(kind), grouped(count));
  return "<span class=\"bad\">" + out + "</span>";
}

std::string admitted(const OpSummary& op) {
  const std::string words = admitted_words(op.regrouped, op.by_forms, op.elements);
  return words.empty() ? "-" : words;
}

std::string op_table(const std::vector<std::pair<std::string, OpSummary>>& ops) {
  std::string out =
      "<h2>Ops</h2><p>Headroom: how much of the allowed error the cases inside used at most. Admitted: elements that "
      "are right only if the formula is regrouped, or in a further form that the op declares.</p><table><tr><th>op</th>"
      "<th>dtypes</th><th>cases</th><th>headroom</th><th>blind</th><th>admitted</th><th>verdict</th></tr>";
  for (const auto& [op_name, op] : ops) {
    std::string dtypes;
    for (const std::string& dtype : op.dtypes) dtypes += (dtypes.empty() ? "" : " ") + dtype;
    out += fmt::format(
        "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>", escaped(op_name),
        dtypes, grouped(op.cases), op.failed + op.skipped == op.cases ? "-" : share_bar(op.share, "exact"),
        op.elements == 0 ? "-" : percent(static_cast<double>(op.blind) / static_cast<double>(op.elements)),
        admitted(op), verdict_of(op));
  }
  return out + "</table>";
}

std::string histogram(const std::string& title, const Spread& spread) {
  constexpr double kHeight = 90, kStep = 29;
  const std::int64_t most = std::max<std::int64_t>(1, *std::ranges::max_element(spread));
  std::string out = fmt::format("<div>{}<svg viewBox=\"0 0 330 {}\" role=\"img\">", escaped(title), kHeight + 30);
  for (std::size_t i = 0; i < spread.size(); ++i) {
    const double x = 5 + kStep * static_cast<double>(i);
    const double height =
        spread[i] == 0 ? 0 : std::max(2.0, kHeight * static_cast<double>(spread[i]) / static_cast<double>(most));
    if (spread[i] > 0)
      out += fmt::format(
          "<rect class=\"bar\" x=\"{:.0f}\" y=\"{:.1f}\" width=\"{:.0f}\" height=\"{:.1f}\"/><text x=\"{:.0f}\" "
          "y=\"{:.1f}\" text-anchor=\"middle\">{}</text>",
          x, kHeight + 12 - height, kStep - 4, height, x + (kStep - 4) / 2, kHeight + 9 - height, grouped(spread[i]));
    out += fmt::format("<text x=\"{:.0f}\" y=\"{:.0f}\" text-anchor=\"middle\">{}</text>", x + (kStep - 4) / 2,
                       kHeight + 26, i + 1 == spread.size() ? "out" : fmt::format("{}", 10 * (i + 1)));
  }
  return out + "</svg></div>";
}

std::string histograms(const std::vector<std::pair<std::string, OpSummary>>& ops) {
  std::string out =
      "<h2>Cases by the share of the allowed error that they used</h2><p>In percent, up to the number below; out: "
      "outside, or another finding.</p><div class=\"grid\">";
  for (const auto& [op_name, op] : ops) out += histogram(op_name, op.spread);
  return out + "</div>";
}

std::string row(const char* what, const std::string& html) {
  return fmt::format("<tr><th>{}</th><td>{}</td></tr>", what, html);
}
/// Nothing where nothing is said.
std::string said(const char* what, const std::string& text) { return text.empty() ? "" : row(what, escaped(text)); }

/// Squares that cover a bin the more, the farther its elements are off: it reads without colours.
std::string squares(const ErrorMap& map, double cell) {
  std::string out = "<path class=\"bar\" d=\"";
  for (std::size_t i = 0; i < map.levels.size(); ++i) {
    const int level = map.levels[i] - '0';
    if (level == 0) continue;
    const auto columns = static_cast<std::size_t>(map.bin_columns);
    const double side = cell * level / 5, pad = (cell - side) / 2;
    out += fmt::format("M{:g} {:g}h{:g}v{:g}h-{:g}z", cell * static_cast<double>(i % columns) + pad,
                       cell * static_cast<double>(i / columns) + pad, side, side, side);
  }
  return out + "\"/>";
}

/// Where the elements outside lie, in the first tensor that has some; nothing where no values are wrong.
std::string heat_map(const CaseResult& result) {
  const auto mapped = std::ranges::find_if(
      result.checks, [&](const CheckResult& check) { return check.failed > 0 && check.map.has_value(); });
  if (mapped == result.checks.end()) return "";
  const std::optional<ErrorMap>& map = mapped->map;
  constexpr double kCell = 10;
  const double width = kCell * static_cast<double>(map->bin_columns),
               height = kCell * static_cast<double>(map->bin_rows);
  const auto marked =
      static_cast<std::int64_t>(std::ranges::count_if(map->levels, [](char level) { return level != '0'; }));
  const std::string says = fmt::format(
      "{}: {} of {} bins of {} by {} elements hold an element outside", escaped(mapped->name()), grouped(marked),
      grouped(map->bin_rows * map->bin_columns), grouped(map->rows), grouped(map->columns));
  return row("map", fmt::format("<svg viewBox=\"0 0 {:g} {:g}\" width=\"{:g}\" role=\"img\" aria-label=\"{}\"><rect "
                                "class=\"band\" width=\"{:g}\" height=\"{:g}\"/>{}</svg>{}; the larger a square, the "
                                "farther: up to 2, 16, 256, 65,536 ulp, and more",
                                width, height, width, says, width, height, squares(*map, kCell), says));
}

std::string finding(const CaseResult& result, const RunFacts& facts, bool with_map) {
  const CheckResult* const check = deciding_check(result);
  std::string out = fmt::format("<h3><span class=\"bad\">{} {}</span> {}</h3><table>", name(result.verdict),
                                name(result.code), escaped(text_of(result.code).title));
  out += row("case", "<code>" + escaped(result.name) + "</code>");
  if (check != nullptr) {
    out += row("check", escaped(check->name()));
    for (std::size_t i = 0; i < std::min<std::size_t>(3, check->worst.size()); ++i) {
      const Element& e = check->worst[i];
      std::string at;
      for (const std::int64_t index : e.index) at += (at.empty() ? "" : ",") + std::to_string(index);
      out += row(i == 0 ? "worst" : "",
                 fmt::format("[{}] got {}, want {}, allowed [{}, {}], off by {} ulp", at, rounded_decimal(e.got, 9),
                             rounded_decimal(e.want, 9), rounded_decimal(e.low, 9), rounded_decimal(e.high, 9),
                             rounded_decimal(e.ulp, 3)));
    }
    out += row("where", fmt::format("{} of {} elements", grouped(check->failed), grouped(check->compared)));
    if (with_map) out += heat_map(result);
    out += said("cause", check->cause) + said("note", check->note);
  }
  out += said("smallest", result.smallest) + said("data", result.values);
  return out + row("again", "<code>" + escaped(replay_line(result, facts)) + "</code>") + "</table>";
}

std::string findings(const Report& report, const RunFacts& facts) {
  const std::vector<const CaseResult*> failing = failing_cases(report);
  if (failing.empty()) return "";
  std::string out = "<h2>Findings</h2>";
  for (std::size_t i = 0; i < std::min(failing.size(), kMostFindings); ++i)
    out += finding(*failing[i], facts, i < kMostMaps);
  if (failing.size() > kMostFindings)
    out += fmt::format("<p>{} more are in the list of cases.</p>",
                       grouped(static_cast<std::int64_t>(failing.size() - kMostFindings)));
  return out;
}

std::string gate_table(const RunFacts& facts) {
  if (facts.gate.empty()) return "";
  std::string out = "<h2>Gate</h2><table><tr><th>op</th><th>verdict</th><th></th></tr>";
  for (const GateLine& line : facts.gate)
    out += fmt::format("<tr><td>{}</td><td{}>{}</td><td>{}</td></tr>", escaped(line.op),
                       line.failed ? " class=\"bad\"" : "", escaped(line.verdict), escaped(line.text));
  return out + "</table>";
}

/// A bar for each state, with its number above and its day below: it reads without colours.
std::string history(const ErrorHistory& h) {
  constexpr double kHeight = 60, kStep = 62;
  const double most = std::ranges::max(h.states, {}, &ErrorHistory::At::largest).largest;
  std::string out = fmt::format("<div>{} {}<svg viewBox=\"0 0 {:g} {:g}\" width=\"{:g}\" role=\"img\">", escaped(h.op),
                                escaped(h.tensor), kStep * static_cast<double>(h.states.size()), kHeight + 32,
                                kStep * static_cast<double>(h.states.size()));
  for (std::size_t i = 0; i < h.states.size(); ++i) {
    const ErrorHistory::At& state = h.states[i];
    const double x = kStep * static_cast<double>(i),
                 height = std::max(1.0, most > 0 ? kHeight * state.largest / most : 0);  // none has a foot
    out += fmt::format(
        "<g><title>{}</title><rect class=\"bar\" x=\"{:g}\" y=\"{:.1f}\" width=\"{:g}\" height=\"{:.1f}\"/><text "
        "x=\"{:g}\" "
        "y=\"{:.1f}\" text-anchor=\"middle\">{}</text><text x=\"{:g}\" y=\"{:g}\" text-anchor=\"middle\">{}</text></g>",
        escaped(state.on.empty() ? "this run" : state.on + ": " + state.reason), x + 4, kHeight + 14 - height,
        kStep - 8, height, x + kStep / 2, kHeight + 11 - height, rounded_decimal(state.largest, 3), x + kStep / 2,
        kHeight + 28, escaped(state.on.empty() ? "now" : state.on));
  }
  return out + "</svg></div>";
}

std::string histories(const RunFacts& facts) {
  if (facts.histories.empty()) return "";
  std::string out =
      "<h2>History</h2><p>The largest error of each tensor in ulp, at each acceptance (its reason is shown under the "
      "pointer) and now.</p><div class=\"grid\">";
  for (std::size_t i = 0; i < std::min(facts.histories.size(), kMostHistories); ++i) out += history(facts.histories[i]);
  out += "</div>";
  if (facts.histories.size() > kMostHistories)
    out += fmt::format("<p>{} more tensors are left out here; the baselines have all.</p>",
                       grouped(static_cast<std::int64_t>(facts.histories.size() - kMostHistories)));
  return out;
}

std::string case_table(const Report& report) {
  std::string out =
      "<h2>Cases</h2><details><summary>All of them</summary><table><tr><th>verdict</th><th>case</th><th>headroom</th>"
      "<th>seconds</th></tr>";
  for (std::size_t i = 0; i < std::min(report.cases.size(), kMostCases); ++i) {
    const CaseResult& result = report.cases[i];
    const bool failed = convicts(result.verdict);
    out += fmt::format("<tr><td{}>{} {}</td><td>{}</td><td>{}</td><td>{:.3f}</td></tr>", failed ? " class=\"bad\"" : "",
                       name(result.verdict), name(result.code), escaped(result.name),
                       failed                               ? "outside"
                       : result.verdict == Verdict::skipped ? "-"
                                                            : percent(share_of(result), "exact"),
                       result.seconds);
  }
  out += "</table>";
  if (report.cases.size() > kMostCases)
    out += fmt::format("<p>{} more cases are left out here; -o json:FILE has all.</p>",
                       grouped(static_cast<std::int64_t>(report.cases.size() - kMostCases)));
  return out + "</details>";
}

}  // namespace

std::string html_report(const Report& report, const RunFacts& facts) {
  const auto ops = ops_of(report);
  const Totals totals = totals_of(report);
  std::string out = html_head("ampcheck check");
  out += fmt::format(
      "<h1>{}</h1><p>{} of {} cases failed, {} skipped; {} elements judged, each against its own interval. ampcheck "
      "{}, "
      "{}.{}</p>",
      totals.failed > 0 ? "Findings" : "No finding", grouped(totals.failed), grouped(totals.cases),
      grouped(totals.skipped), grouped(totals.elements - totals.open), escaped(facts.build.version),
      escaped(facts.device_text), report.interrupted ? " The run was interrupted." : "");
  out += gate_table(facts) + histories(facts) + op_table(ops) + findings(report, facts) + histograms(ops) +
         case_table(report);
  for (const std::string& note : report.notes) out += "<p>" + escaped(note) + "</p>";
  return out + "</body></html>\n";
}

}  // namespace ampcheck::tools
