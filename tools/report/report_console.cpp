// SPDX-License-Identifier: Apache-2.0
// What a person reads: the answer first, a table of ops, and each failure in at most 12 lines.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <tuple>

#include "tools/report/device_word.h"
#include "tools/report/line_table.h"
#include "tools/report/numbers.h"
#include "tools/report/reports.h"

namespace ampcheck::tools {

namespace {

constexpr std::size_t kMostFailures = 10;    ///< shown, but for
constexpr std::size_t kMostFailingOps = 25;  ///< the first failure of each of so many ops
constexpr std::size_t kFewOps = 4;           ///< up to here the radius of every op is shown in full

/// One row of the table.
struct OpRow {
  std::string op;
  std::vector<std::string> dtypes = {};
  std::int64_t cases = 0, ran = 0, elements = 0, open = 0, blind = 0, convicted = 0;
  bool sampled = false;
  double max_ratio = 0, visible = 0;               ///< visible: largest of the checks without a formula
  std::map<std::string, std::int64_t> found = {};  ///< "BUG AC101" -> cases
  std::int64_t by_regrouping = 0;
  std::vector<std::string> regrouped = {};  ///< checks of which some elements are right by a regrouping alone

  void add(const CaseResult& result) {
    ++cases;
    if (result.verdict == Verdict::skipped) return;
    ++ran;
    if (std::find(dtypes.begin(), dtypes.end(), result.dtype) == dtypes.end()) dtypes.push_back(result.dtype);
    elements += result.elements();
    open += result.open();
    blind += result.blind();
    convicted += convicts(result.verdict);
    sampled |= result.unjudged() > 0;
    for (const CheckResult& check : result.checks) {
      max_ratio = std::max(max_ratio, check.max_ratio);
      visible = std::max(visible, check.visible);
      by_regrouping += check.by_regrouping;
      if (check.by_regrouping == 0) continue;
      const std::string subject = ampcheck::name(subject_of(check));
      if (std::find(regrouped.begin(), regrouped.end(), subject) == regrouped.end()) regrouped.push_back(subject);
    }
    // RANGE and EMPTY cases are no news.
    if (convicts(result.verdict)) ++found[fmt::format("{} {}", name(result.verdict), name(result.code))];
  }
};

std::vector<OpRow> rows_of(const Report& report) {
  std::vector<OpRow> rows;
  std::map<std::string, std::size_t> where;
  for (const CaseResult& result : report.cases) {
    const auto [at, fresh] = where.try_emplace(result.op, rows.size());
    if (fresh) rows.push_back({.op = result.op});
    rows[at->second].add(result);
  }
  return rows;
}

std::string joined(const std::vector<std::string>& words, const char* between = " ") {
  return fmt::format("{}", fmt::join(words, between));
}

std::string indices(const std::vector<std::int64_t>& index) { return fmt::format("[{}]", fmt::join(index, ",")); }

const char* plural(std::int64_t count) { return count == 1 ? "" : "s"; }

std::string head(const Report& report, const RunFacts& facts, const std::vector<OpRow>& rows) {
  const Totals totals = totals_of(report);
  const std::string short_version = facts.build.version.substr(0, facts.build.version.rfind('.'));
  std::string out =
      fmt::format("ampcheck {} · {} ({}, {} thread{}) · {}\n", short_version,
                  facts.device == Device::cpu ? "CPU"
                  : ptx::simulates_gpu()      ? "PTX"
                                              : "CUDA",
                  facts.machine.simd, facts.machine.threads, plural(facts.machine.threads), facts.device_text);
  out += fmt::format("{} op{} · {} case{} · {} elements judged, each against its own interval\n", rows.size(),
                     plural(std::ssize(rows)), grouped(totals.cases), plural(totals.cases),
                     grouped(totals.elements - totals.open));
  return out;
}

std::string verdict_text(const OpRow& row, const Style& style) {
  if (row.ran == 0) return fmt::format("{}SKIPPED{}", style.yellow, style.reset);
  if (row.convicted == 0 && row.elements > 0 && row.open == row.elements)
    return fmt::format("{}NOT JUDGED{}", style.yellow, style.reset);
  if (row.convicted == 0)
    return fmt::format("{}ROUNDING{}{}", style.green, style.reset,
                       row.visible > 0 ? " (weak mode)"
                       : row.sampled   ? " (rows sampled)"
                                       : "");
  const auto usual = std::max_element(row.found.begin(), row.found.end(),
                                      [](const auto& a, const auto& b) { return a.second < b.second; });
  const std::string others = row.found.size() == 1 ? ""
                                                   : fmt::format(" and {} other kind{}", row.found.size() - 1,
                                                                 plural(std::ssize(row.found) - 1));
  return fmt::format("{}{}{}{} in {} of {}", style.red, usual->first, style.reset, others, row.convicted, row.cases);
}

/// "exp 61 %, sum 30 %": what made the radius, largest first.
std::string shares(std::vector<Contribution> contributions, std::size_t most) {
  std::stable_sort(contributions.begin(), contributions.end(),
                   [](const auto& a, const auto& b) { return a.share > b.share; });
  std::string out;
  for (std::size_t i = 0; i < std::min(most, contributions.size()) && contributions[i].share >= kVisibleShare; ++i)
    out += fmt::format("{}{} {}", i == 0 ? "" : ", ", contributions[i].primitive, percent(contributions[i].share));
  return out;
}

const std::vector<Contribution>* coverage_of(const Report& report, const std::string& op) {
  for (const auto& [name, contributions] : report.coverage)
    if (name == op) return &contributions;
  return nullptr;
}

std::string table(const std::vector<OpRow>& rows, const Style& style) {
  std::size_t widest = 14;
  for (const OpRow& row : rows) widest = std::max(widest, row.op.size());
  std::string out = fmt::format("\n  {}{:<{}}  {:<15}{:>7}{:>11}{:>9}    verdict{}\n", style.bold, "op", widest,
                                "dtypes", "cases", "headroom", "blind", style.reset);
  for (const OpRow& row : rows) {
    const double blind = row.elements == 0 ? 0 : static_cast<double>(row.blind) / static_cast<double>(row.elements);
    out +=
        fmt::format("  {:<{}}  {:<15}{:>7}{:>11}{:>9}    {}\n", row.op, widest, joined(row.dtypes), grouped(row.cases),
                    row.ran == 0         ? "-"
                    : row.convicted != 0 ? "outside"
                                         : percent(row.max_ratio, "exact"),
                    row.ran == 0 ? "-" : percent(blind), verdict_text(row, style));
  }
  return out;
}

/// What the formula as it is written does not admit.
std::string regrouped_lines(const std::vector<OpRow>& rows) {
  std::string out;
  for (const OpRow& row : rows)
    if (row.by_regrouping > 0)
      out += fmt::format("  {}: {} of the elements, in {}\n", row.op,
                         percent(static_cast<double>(row.by_regrouping) / static_cast<double>(row.elements)),
                         joined(row.regrouped, ", "));
  return out.empty() ? "" : "\nRight only if the formula is regrouped (--as-written judges without)\n" + out;
}

std::string coverage_lines(const Report& report, const std::vector<OpRow>& rows, bool all) {
  std::string out;
  for (const OpRow& row : rows) {
    const std::vector<Contribution>* const contributions = coverage_of(report, row.op);
    if (contributions == nullptr) continue;
    std::vector<Contribution> operations;  // a branch has no width: it was taken or was not
    std::vector<std::string> invisible, not_taken;
    for (const Contribution& c : *contributions) {
      const bool branch = c.primitive.starts_with("branch"), seen = c.share >= kVisibleShare;
      if (!branch) operations.push_back(c);
      if (!seen) (branch ? not_taken : invisible).push_back(c.primitive);
    }
    const bool exact = invisible.size() == operations.size();
    if (!all && not_taken.empty() && (exact || invisible.empty())) continue;
    out += fmt::format("  {}: {}{}{}\n", row.op,
                       exact ? "nothing; every result is exact, or exact and rounded once"
                             : shares(std::move(operations), all ? 8 : 3),
                       exact || invisible.empty() ? "" : "; never visible: " + joined(invisible, ", "),
                       not_taken.empty() ? "" : "; never taken: " + joined(not_taken, ", "));
  }
  return out.empty() ? ""
                     : "\nWhat makes the intervals wide: the largest share of each operation of the formula\n" + out;
}

std::string certificate_text(const Report& report) {
  double digits = HUGE_VAL;
  for (const Certificate& certificate : report.certificates)
    if (certificate.points > 0)
      digits = std::min(digits, certificate.digits);  // otherwise there is nothing to differentiate
  if (std::isinf(digits)) return "";
  return fmt::format(" Reference certified to >= {:.0f} digits by centred differences in 100-digit arithmetic.",
                     std::floor(digits));
}

/// How many cases did not run, and the reason that most of them have.
std::string skipped_text(const Report& report, std::int64_t skipped) {
  std::map<std::string, std::int64_t> reasons;
  for (const CaseResult& result : report.cases)
    if (result.verdict == Verdict::skipped) ++reasons[result.note];
  const auto most = std::max_element(reasons.begin(), reasons.end(),
                                     [](const auto& a, const auto& b) { return a.second < b.second; });
  const std::string rest =
      reasons.size() > 1 ? fmt::format(", {} of them: {} (all reasons with --json)", grouped(most->second), most->first)
                         : ": " + most->first;
  return fmt::format("{} of {} cases skipped{}.\n", grouped(skipped),
                     grouped(static_cast<std::int64_t>(report.cases.size())), rest);
}

/// Why elements are not judged: what a tensor says of which none is, otherwise in general.
std::string why_open(const Report& report) {
  constexpr std::string_view kNone = "no element is judged: ";  // of a tensor's note (checks/judge/judge.cpp)
  std::map<std::string, std::int64_t> reasons;
  std::int64_t open = 0;
  for (const CaseResult& result : report.cases)
    for (const CheckResult& check : result.checks) {
      open += check.range;
      if (check.range > 0 && check.range == check.compared && check.note.starts_with(kNone))
        reasons[check.note.substr(kNone.size())] += check.range;
    }
  for (const auto& [reason, elements] : reasons)
    if (2 * elements > open) return reason;
  return "an intermediate leaves the compute type's range there, or the formula has no value or no bound";
}

/// Of so many elements open, that none of the others is wrong is not the news.
bool mostly_open(const Totals& totals) { return 4 * totals.open >= totals.elements; }

bool several_ops(const Report& report) {
  return std::ranges::any_of(report.cases, [&](const CaseResult& c) { return c.op != report.cases.front().op; });
}

std::string closing(const Report& report, const RunFacts& facts, const Style& style) {
  const Totals totals = totals_of(report);
  std::string out = "\n";
  if (report.interrupted || report.cases.size() < facts.planned) {
    const std::string all = facts.planned == 0 ? "" : " of " + grouped(static_cast<std::int64_t>(facts.planned));
    out += fmt::format("{}Interrupted{} after {}{} cases, {}; {} failed.\n", style.yellow, style.reset,
                       grouped(totals.cases), all, duration(report.seconds), grouped(totals.failed));
  } else if (totals.failed != 0) {
    out += fmt::format("{}{} of {} cases failed{} in {}.{}\n", style.red, grouped(totals.failed), grouped(totals.cases),
                       style.reset, duration(report.seconds), certificate_text(report));
  } else if (totals.passed == 0) {
    out +=
        fmt::format("{}Nothing ran{}: {} selected, all skipped.\n", style.yellow, style.reset, grouped(totals.cases));
  } else if (totals.elements == 0) {
    out +=
        fmt::format("{}Nothing to judge{}: {} case{} without an element, right in guards, inputs and return codes.\n",
                    style.yellow, style.reset, grouped(totals.passed), plural(totals.passed));
  } else if (totals.open == totals.elements) {
    out += fmt::format("{}Nothing was judged{}: {}.\n", style.yellow, style.reset, why_open(report));
  } else if (mostly_open(totals)) {
    out += fmt::format("{}No finding, but {} of the elements could not be judged{} in {}.{}\n", style.yellow,
                       percent(static_cast<double>(totals.open) / static_cast<double>(totals.elements)), style.reset,
                       duration(report.seconds), certificate_text(report));
  } else {
    const std::string which =
        totals.skipped == 0 ? ""
                            : fmt::format(": the {} case{} that ran,", grouped(totals.passed), plural(totals.passed));
    out += fmt::format("{}All clear{}{} in {}.{}\n", style.green, style.reset, which, duration(report.seconds),
                       certificate_text(report));
    if (!facts.hint.empty()) out += facts.hint;
  }
  constexpr std::int64_t kFewest = 30;  // of fewer calls no rate is worth a line
  if (totals.repeated >= kFewest)  // none in n calls: with 95 % the rate is below 3 / n (Hanley & Lippman-Hand 1983)
    out += fmt::format("{} repeated calls{} gave the same bits: a fault in one call of {} would have shown (95 %).\n",
                       grouped(totals.repeated), several_ops(report) ? " of each op, or more," : "",
                       grouped(totals.repeated / 3));
  if (totals.open != 0 && totals.open != totals.elements)
    out += fmt::format("{} element{} not judged: {}.\n", grouped(totals.open), totals.open == 1 ? " was" : "s were",
                       why_open(report));
  if (totals.sampled != 0) {
    std::int64_t judged = 0;
    for (const CaseResult& result : report.cases)
      if (result.unjudged() > 0) judged += result.elements();
    out +=
        fmt::format("{}Sampled{}: {} case{} too large to judge whole; {} of the elements there ({}) were not judged.\n",
                    style.yellow, style.reset, grouped(totals.sampled), totals.sampled == 1 ? " was" : "s were",
                    unjudged_share(totals.unjudged, judged), grouped(totals.unjudged));
  }
  if (totals.skipped != 0) out += skipped_text(report, totals.skipped);
  if (totals.unusual != 0)
    out +=
        fmt::format("{} unusual element{}: allowed by the derived interval, outside the one calibrated by replays.\n",
                    grouped(totals.unusual), plural(totals.unusual));
  return out;
}

/// Failing cases that show the same thing: one op, code and tensor. The first one is shown.
struct FailureGroup {
  const CaseResult* first = nullptr;
  std::int64_t more = 0;
};

std::vector<FailureGroup> failures_of(const Report& report) {
  std::vector<FailureGroup> groups;
  std::map<std::tuple<std::string, Code, std::optional<CheckId>>, std::size_t> where;
  for (const CaseResult& result : report.cases) {
    if (!convicts(result.verdict)) continue;
    const CheckResult* const check = deciding_check(result);
    const std::optional<CheckId> what = check == nullptr ? std::nullopt : std::optional(subject_of(*check));
    const auto [at, fresh] = where.try_emplace({result.op, result.code, what}, groups.size());
    if (fresh)
      groups.push_back({&result});
    else
      ++groups[at->second].more;
  }
  return groups;
}

std::string all_failures(const Report& report, const RunFacts& facts, const Style& style) {
  std::string out;
  for (const CaseResult& result : report.cases)
    if (convicts(result.verdict)) out += "\n" + console_failure(result, facts, style);
  return out;
}

/// The first failure of each op, then what else there is room for, in the order of the run.
std::vector<bool> shown_of(const std::vector<FailureGroup>& groups) {
  std::vector<bool> shown(groups.size());
  std::set<std::string> ops;
  for (std::size_t i = 0; i < groups.size(); ++i)
    if (ops.size() < kMostFailingOps && ops.insert(groups[i].first->op).second) shown[i] = true;
  std::size_t count = ops.size();
  for (std::size_t i = 0; i < groups.size() && count < kMostFailures; ++i)
    if (!shown[i]) {
      shown[i] = true;
      ++count;
    }
  return shown;
}

std::string first_failures(const Report& report, const RunFacts& facts, const Style& style) {
  const std::vector<FailureGroup> groups = failures_of(report);
  const std::vector<bool> shown = shown_of(groups);
  std::string out;
  std::int64_t hidden = 0;
  for (std::size_t i = 0; i < groups.size(); ++i) {
    hidden += groups[i].more + (shown[i] ? 0 : 1);
    if (!shown[i]) continue;
    out += "\n" + console_failure(*groups[i].first, facts, style);
    if (groups[i].more != 0)
      out += fmt::format("  the same in {} more case{}\n", groups[i].more, plural(groups[i].more));
  }
  if (hidden != 0)
    out += fmt::format("\n... and {} more failing case{} (all with --verbose, --json or -o json:FILE)\n", hidden,
                       plural(hidden));
  return out;
}

std::string first_line(const CaseResult& result, const CheckResult* check, const Style& style) {
  const std::string left = fmt::format("{}  {}  {} {}", name(result.verdict), name(result.code), result.op,
                                       check == nullptr ? "" : check->name());
  const std::string right = result.code == Code::ac101  ? "certified: no order of evaluation gives this"
                            : result.code == Code::none ? ""
                                                        : text_of(result.code).title;
  return fmt::format("{}{:<68}{}  {}\n", style.red, left, style.reset, right);
}

std::string element_lines(const CheckResult& check) {
  if (check.worst.empty()) return "";
  const Element& worst = check.worst.front();
  const FloatFormat& format = info(check.dtype).format ? *info(check.dtype).format : kFp64;
  const auto number = [&](double value, std::uint64_t bits) {
    return fmt::format("{} ({})", short_decimal(format, value), hex_bits(format, bits));
  };
  const auto off = std::isfinite(worst.ulp) ? fmt::format("off by {} ulp", rounded_decimal(worst.ulp, 3))
                                            : std::string("not comparable in ulps");
  const bool calls = check.code == Code::ac401 || check.code == Code::ac404;  // of which neither is what is wanted
  std::string out = fmt::format("  worst   {}   got {}   {} {}   {}\n", indices(worst.index),
                                number(worst.got, worst.got_bits), calls ? "in the other call" : "want",
                                number(worst.want, worst.want_bits), calls ? "want the same bits" : off);
  if (calls) return out;
  if (worst.interval_from.empty() && worst.low == 0 && worst.high == 0) return out;
  const std::string low = short_decimal(format, worst.low), high = short_decimal(format, worst.high);
  const bool form = !worst.interval_from.empty() && !worst.interval_from.starts_with("differences");
  out += fmt::format("  allowed {}{}\n", low == high ? low : fmt::format("[{}, {}]", low, high),
                     form                          ? fmt::format(" (form '{}')", worst.interval_from)
                     : worst.interval_from.empty() ? ""
                                                   : fmt::format(" ({})", worst.interval_from));
  return out;
}

std::string where_line(const CheckResult& check) {
  if (check.failed == 0) return "";
  if (is_stray_write(check.code))
    return fmt::format("  where   {} launch{}\n", grouped(check.failed),
                       check.failed == 1 ? "" : "es");  // counted where it happened
  std::string out = fmt::format("  where   {} of {} elements", grouped(check.failed), grouped(check.compared));
  const std::size_t listed = std::min<std::size_t>(check.worst.size(), 4);
  if (listed > 1) out += ", for example";
  for (std::size_t i = 1; i < listed; ++i) out += " " + indices(check.worst[i].index);
  return out + "\n";
}

/// Names of the other failing checks of the case.
std::string also_line(const CaseResult& result, const CheckResult* shown) {
  std::vector<std::string> names;
  std::size_t more = 0;
  for (const CheckResult& check : result.checks) {
    if (&check == shown || !convicts(check.verdict)) continue;
    if (names.size() < 3)
      names.push_back(fmt::format("{} ({})", check.name(), name(check.code)));
    else
      ++more;
  }
  if (names.empty()) return "";
  return fmt::format("  also    {}{}\n", joined(names, ", "), more == 0 ? "" : fmt::format(" and {} more", more));
}

/// Words of any length as one line.
std::string one_line(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

/// Which elements the formula as written does not admit; of a built-in op all usual forms are listed, and say nothing.
std::string admitted(const CaseResult& result, const CheckResult& check) {
  const std::string words =
      admitted_words(check.by_regrouping, result.plugin.empty() ? 0 : check.by_forms, check.compared);
  return words.empty() ? "" : "admitted " + words;
}

/// What a type without infinity holds in the place of numbers that are too large.
std::string saturated(const CheckResult& check) {
  std::string out;
  if (check.saturated > 0)
    out = fmt::format("{} of {} saturated (at {})", grouped(check.saturated), grouped(check.compared),
                      info(check.dtype).format->max_finite());
  if (check.nans > 0) out += fmt::format("{}{} NaN", out.empty() ? "" : ", ", grouped(check.nans));
  return out;
}

/// The columns of a power curve.
std::string curve(const std::array<std::string, 4>& shown) {
  return fmt::format("{:>8}{:>7}{:>7}{:>7}", shown[0], shown[1], shown[2], shown[3]);
}

std::array<std::string, 4> shares(const std::vector<double>& power) {
  std::array<std::string, 4> out;
  for (std::size_t i = 0; i < std::min(out.size(), power.size()); ++i) out[i] = fmt::format("{:.0f} %", 100 * power[i]);
  return out;
}

}  // namespace

std::string console_failure(const CaseResult& result, const RunFacts& facts, const Style& style) {
  const CheckResult* const check = deciding_check(result);
  std::string out = first_line(result, check, style);
  out += fmt::format("  case    '{}'\n", result.name);
  if (check != nullptr) {
    out += element_lines(*check) + where_line(*check);
    if (!check->cause.empty())
      out += fmt::format("  cause   {}\n", one_line(check->cause));
    else if (result.explained && is_wrong_number(check->code))
      out += "  cause   no explanation found\n";
    if (!check->note.empty()) out += fmt::format("  note    {}\n", one_line(check->note));
  }
  if (!result.note.empty()) out += fmt::format("  note    {}\n", one_line(result.note));
  out += also_line(result, check);
  if (!result.smallest.empty()) out += fmt::format("  smallest failing case: '{}'\n", result.smallest);
  if (!result.values.empty()) out += fmt::format("  minimal data: {}\n", one_line(result.values));
  out += fmt::format("  again   {}{}{}\n", style.bold, replay_line(result, facts), style.reset);
  if (result.code != Code::none) out += fmt::format("  why     ampcheck explain {}\n", name(result.code));
  return out;
}

std::string console_checks(const CaseResult& result, const Style& style) {
  std::size_t widest = 5;
  for (const CheckResult& check : result.checks) widest = std::max(widest, check.name().size());
  const bool measured =
      std::any_of(result.checks.begin(), result.checks.end(), [](const CheckResult& c) { return !c.power.empty(); });
  std::string out = fmt::format("\n  {}{:<{}}  {:>12}{:>11}{:>9}{:>9}{}    verdict{}\n", style.bold, "check", widest,
                                "compared", "headroom", "blind", "unusual",
                                measured ? curve({"0.1 %", "1 %", "10 %", "100 %"}) : "", style.reset);
  for (const CheckResult& check : result.checks) {
    const double blind =
        check.compared == 0 ? 0 : static_cast<double>(check.blind) / static_cast<double>(check.compared);
    const bool bad = convicts(check.verdict);
    out += fmt::format("  {:<{}}  {:>12}{:>11}{:>9}{:>9}{}    {}{}{}{}\n", check.name(), widest,
                       grouped(check.compared), bad ? "outside" : percent(check.max_ratio, "exact"), percent(blind),
                       grouped(check.unusual), measured ? curve(shares(check.power)) : "", bad ? style.red : "",
                       name(check.verdict), bad ? style.reset : "",
                       (check.code == Code::none ? "" : std::string(" ") + name(check.code)) +
                           (bad || check.note.empty() ? "" : "  " + one_line(check.note)));
    if (check.range > 0) out.insert(out.size() - 1, fmt::format("  {} left open", grouped(check.range)));
    if (const std::string words = admitted(result, check); !words.empty()) out.insert(out.size() - 1, "  " + words);
    if (const std::string words = saturated(check); !words.empty()) out.insert(out.size() - 1, "  " + words);
    if (check.unjudged > 0) out.insert(out.size() - 1, fmt::format("  {} not judged", grouped(check.unjudged)));
  }
  if (measured)
    out +=
        "  0.1 % to 100 %: share of the non-zero elements at which an error of that share of the value would be seen\n";
  return out;
}

std::string console_report(const Report& report, const RunFacts& facts, const Style& style) {
  const std::vector<OpRow> rows = rows_of(report);
  std::string out = head(report, facts, rows);
  out += table(rows, style);
  out += regrouped_lines(rows);
  out += coverage_lines(report, rows, facts.verbose || rows.size() <= kFewOps);
  out += line_tables(report.cases, style);
  out += facts.verbose ? all_failures(report, facts, style) : first_failures(report, facts, style);
  for (const std::string& note : report.notes) out += "\nnote: " + note + "\n";
  return out + closing(report, facts, style);
}

}  // namespace ampcheck::tools
