// SPDX-License-Identifier: Apache-2.0
#include "checks/run/conclude.h"

#include <algorithm>

#include "checks/explain/further_causes.h"
#include "checks/run/settle.h"

namespace ampcheck::checks {

bool wrong_value(const CheckResult& check) {
  return is_wrong_number(check.code) || check.code == Code::ac104 || is_contract_departure(check.code) ||
         (check.code == Code::ac203 && is_of_pass(check.id));
}

bool contract_explains(const std::vector<CheckResult>& checks) {
  std::int64_t explained = 0, unexplained = 0;
  for (const CheckResult& check : checks) {
    if (check.id.at_saved) continue;  // the same tensor again, which nobody explains
    explained += is_contract_departure(check.code);
    unexplained += is_wrong_number(check.code);
  }
  return explained > 0 && 4 * unexplained <= explained;
}

void drop_departures(std::vector<CheckResult>& checks) {
  for (CheckResult& check : checks)
    if (is_contract_departure(check.code)) {
      check.find(Code::ac101);
      check.cause.clear();
    }
}

namespace {

/// A gradient that is right by the saved tensors as the kernel wrote them, and wrong by those of the formula: what the
/// first check would have seen is measured from numbers that are wrong.
void note_wrong_saved(std::vector<CheckResult>& checks) {
  for (CheckResult& check : checks) {
    if (!check.id.at_saved || check.failed > 0) continue;
    CheckId of_formula = check.id;
    of_formula.at_saved = false;
    const auto twin = std::ranges::find(checks, of_formula, &CheckResult::id);
    if (twin == checks.end() || twin->failed == 0) continue;
    check.power.clear();
    if (check.note.empty())
      check.note = "follows from the saved tensors as they were written; by the formula it is outside";
  }
}

}  // namespace

void conclude(CaseRun& run, CaseResult& result) {
  settle(run);
  quote_causes(run.checks);
  note_wrong_saved(run.checks);
  result.checks = std::move(run.checks);
  for (const CheckResult& check : result.checks)
    if (check.code != Code::none && (check.verdict > result.verdict || result.code == Code::none)) {
      result.code = check.code;
      result.verdict = std::max(result.verdict, check.verdict);
    }
  const bool nothing = std::all_of(result.checks.begin(), result.checks.end(),
                                   [](const CheckResult& check) { return check.compared == 0; });
  if (!convicts(result.verdict) && nothing && !result.checks.empty()) result.verdict = Verdict::empty;
}

}  // namespace ampcheck::checks
