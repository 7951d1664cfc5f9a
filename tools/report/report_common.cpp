// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <string>

#include "checks/data/file_tensors.h"
#include "checks/data/real_tensors.h"
#include "checks/run/run_case.h"
#include "src/ptx/program.h"
#include "tools/report/device_word.h"
#include "tools/report/numbers.h"
#include "tools/report/reports.h"
#include "tools/report/shell_word.h"

namespace ampcheck::tools {

namespace {

/// The data regime in a printed case name; empty for the default.
std::string range_of(const std::string& case_name) {
  constexpr std::string_view kField = ",range=";
  const std::size_t start = case_name.find(kField);
  if (start == std::string::npos) return "";
  const std::size_t from = start + kField.size();
  return case_name.substr(from, case_name.find_first_of(",)", from) - from);
}

}  // namespace

std::string replay_line(const CaseResult& result, const RunFacts& facts) {
  if (!facts.again.empty()) return facts.again;
  if (const std::size_t at = facts.again_case.find("{}"); at != std::string::npos)
    return std::string(facts.again_case).replace(at, 2, result.name);
  std::string out =
      "ampcheck replay " + (result.plugin.empty() ? "" : shell_word(result.plugin) + " ") + "'" + result.name + "'";
  if (facts.device != Device::cpu) out += std::string(" --device ") + device_word(facts.device);
  if (!facts.data.empty() && checks::is_real_range(range_of(result.name))) out += " --data " + shell_word(facts.data);
  if (!facts.inputs.empty() && checks::is_file_range(range_of(result.name)))
    out += " --inputs " + shell_word(facts.inputs);
  if (facts.as_written) out += " --as-written";
  if (ptx::decode_options().fuse) out += " --fuse";
  out += facts.accumulate;
  return out;
}

std::string admitted_words(std::int64_t by_regrouping, std::int64_t by_forms, std::int64_t elements) {
  std::string out;
  for (const auto& [count, by] : {std::pair(by_regrouping, "regrouping"), std::pair(by_forms, "declared forms")})
    if (count > 0)
      out += fmt::format("{}{} by {}", out.empty() ? "" : ", ",
                         percent(static_cast<double>(count) / static_cast<double>(std::max<std::int64_t>(elements, 1))),
                         by);
  return out;
}

std::vector<std::pair<std::string, std::string>> admitted_of_ops(const Report& report) {
  struct Counts {
    std::string op;
    std::int64_t by_regrouping = 0, by_forms = 0, elements = 0;
  };
  std::vector<Counts> ops;
  for (const CaseResult& result : report.cases) {
    auto op = std::ranges::find(ops, result.op, &Counts::op);
    if (op == ops.end()) op = ops.insert(op, {result.op});
    op->elements += result.elements();
    for (const CheckResult& check : result.checks) {
      if (!is_of_pass(check.id)) continue;
      op->by_regrouping += check.by_regrouping;
      op->by_forms += result.plugin.empty() ? 0 : check.by_forms;
    }
  }
  std::vector<std::pair<std::string, std::string>> out;
  for (const Counts& op : ops)
    if (std::string words = admitted_words(op.by_regrouping, op.by_forms, op.elements); !words.empty())
      out.emplace_back(op.op, std::move(words));
  return out;
}

std::string unjudged_share(std::int64_t unjudged, std::int64_t judged) {
  const double all = static_cast<double>(unjudged) + static_cast<double>(judged);
  const double share = all == 0 ? 0 : 100 * static_cast<double>(unjudged) / all;
  return fmt::format("{:.2f} %", judged == 0 ? share : std::min(std::floor(100 * share) / 100, 99.99));
}

namespace {

/// Calls that a case repeated with the same data: what a tensor's comparison counts, over its elements.
std::int64_t repeated_calls(const CaseResult& result) {
  std::int64_t out = 0;
  for (const CheckResult& repeats : result.checks) {
    if (repeats.id.kind != CheckId::Kind::repeats) continue;
    const auto values = std::ranges::find_if(result.checks, [&](const CheckResult& c) {
      return is_of_pass(c.id) && c.id.tensor == repeats.id.tensor && !c.id.at_saved;
    });
    const std::int64_t elements = values == result.checks.end() ? 0 : values->compared + values->unjudged;
    if (elements > 0) out = std::max(out, repeats.compared / elements);
  }
  return out;
}

/// Of the op with the fewest; 0 where calls differ.
std::int64_t repeated_calls(const Report& report) {
  std::map<std::string, std::int64_t> by_op;
  for (const CaseResult& result : report.cases) {
    by_op[result.op] += repeated_calls(result);
    if (std::ranges::any_of(result.checks, [](const CheckResult& c) { return c.code == Code::ac404; })) return 0;
  }
  std::int64_t out = by_op.empty() ? 0 : INT64_MAX;
  for (const auto& [op, calls] : by_op) out = std::min(out, calls);
  return out;
}

}  // namespace

Totals totals_of(const Report& report) {
  Totals totals;
  totals.repeated = repeated_calls(report);
  for (const CaseResult& result : report.cases) {
    ++totals.cases;
    if (convicts(result.verdict))
      ++totals.failed;
    else if (result.verdict == Verdict::skipped)
      ++totals.skipped;
    else
      ++totals.passed;
    totals.elements += result.elements();
    totals.blind += result.blind();
    totals.open += result.open();
    totals.unusual += result.unusual();
    totals.unjudged += result.unjudged();
    totals.sampled += result.unjudged() > 0;
  }
  return totals;
}

ExitCode exit_code_of(const Report& report, std::size_t planned) {
  const Totals totals = totals_of(report);
  ExitCode code = ExitCode::passed;
  // Cases without an element are right where nothing is skipped; beside skipped ones they show nothing.
  const auto empty = std::ranges::count(report.cases, Verdict::empty, &CaseResult::verdict);
  const bool none_ran = totals.failed == 0 && (totals.passed == 0 || (totals.skipped > 0 && totals.passed == empty)),
             none_judged = totals.failed == 0 && totals.elements > 0 && totals.open == totals.elements;
  if ((none_ran || none_judged) && !report.interrupted) return ExitCode::nothing_ran;
  const bool left_out = std::ranges::any_of(report.cases, checks::is_left_out);
  if (report.interrupted || report.refused > 0 || report.cases.size() < planned || left_out)
    code = worse(code, ExitCode::incomplete);
  if (totals.failed != 0) code = worse(code, ExitCode::findings);
  return code;
}

}  // namespace ampcheck::tools
