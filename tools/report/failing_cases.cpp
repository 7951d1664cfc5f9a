// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include "tools/report/failing_cases.h"

#include <fmt/format.h>

namespace ampcheck::tools {

std::vector<const CaseResult*> failing_cases(const Report& report) {
  std::vector<const CaseResult*> out;
  for (const CaseResult& result : report.cases)
    if (convicts(result.verdict)) out.push_back(&result);
  return out;
}

std::string short_reason(const CaseResult& result) {
  const CheckResult* const check = deciding_check(result);
  if (!convicts(result.verdict) || check == nullptr) return result.note;
  const std::string title = check->code == Code::none ? "" : text_of(check->code).title;
  const std::string what = !check->cause.empty()  ? check->cause
                           : !check->note.empty() ? check->note
                                                  : fmt::format("{} of {} elements", check->failed, check->compared);
  return fmt::format("{}: {}{}{}", check->name(), title, title.empty() ? "" : "; ", what);
}

}  // namespace ampcheck::tools
