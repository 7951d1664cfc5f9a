// SPDX-License-Identifier: Apache-2.0
#include "tools/plugins.h"
#include "tools/reports.h"

namespace ampcheck::tools {

Totals totals_of(const Report& report) {
  Totals totals;
  for (const CaseResult& result : report.cases) {
    ++totals.cases;
    if (convicts(result.verdict)) ++totals.failed;
    else if (result.verdict == Verdict::skipped) ++totals.skipped;
    else ++totals.passed;
    totals.elements += result.elements();
    totals.blind += result.blind();
    totals.unusual += result.unusual();
  }
  return totals;
}

ExitCode exit_code_of(const Report& report, std::size_t planned) {
  const Totals totals = totals_of(report);
  ExitCode code = ExitCode::passed;
  if (totals.passed + totals.failed == 0) code = worse(code, ExitCode::nothing_ran);
  if (report.interrupted || report.cases.size() < planned) code = worse(code, ExitCode::incomplete);
  if (totals.failed != 0) code = worse(code, ExitCode::findings);
  return code;
}

std::string replay_line(const CaseResult& result) {
  return "ampcheck replay " + (result.plugin.empty() ? "" : shell_word(result.plugin) + " ") + "'" + result.name + "'";
}

const CheckResult* deciding_check(const CaseResult& result) {
  for (const CheckResult& check : result.checks)
    if (check.verdict == result.verdict && (result.code.empty() || check.code == result.code)) return &check;
  for (const CheckResult& check : result.checks)
    if (check.verdict == result.verdict) return &check;
  return nullptr;
}

}  // namespace ampcheck::tools
