// SPDX-License-Identifier: Apache-2.0
// `ampcheck audit scaler`: of a log, of a built-in rule, or of a program that is a scaler.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "checks/scaler/call_checks.h"
#include "checks/scaler/library.h"
#include "src/amp/scale_rule.h"
#include "tools/commands/audited_library.h"
#include "tools/commands/check_lines.h"
#include "tools/commands/commands.h"
#include "tools/commands/scaler_commands.h"
#include "tools/commands/scaler_program.h"
#include "tools/report/json.h"
#include "tools/report/numbers.h"
#include "tools/report/output.h"
#include "tools/report/usage_error.h"

namespace ampcheck::tools {

namespace {

using checks::scaler::CallAudit;
using checks::scaler::CheckResult;

bool is_rule(const std::string& target) {
  return std::ranges::any_of(scale_rules(), [&](const ScaleRule& rule) { return target == rule.name; });
}

std::string text_of(const CallAudit& audit, const std::string& target, const ScaleRule& rule) {
  const Style style = stdout_style();
  std::string out = check_lines(audit);
  const CheckResult* head = audit.headline();
  out += fmt::format("\n{}{}{}: '{}' under the rule {} ({}); {}.\n", head != nullptr ? style.red : style.green,
                     head != nullptr ? "BROKEN" : "RIGHT", style.reset, target, rule.name, rule.source,
                     outcome_counts(audit));
  if (head != nullptr) out += fmt::format("{} explains the others: {}.\n", head->check->code, head->says);
  out += head != nullptr ? "Sequences of calls are searched once these pass.\n"
                         : fmt::format("All sequences of calls up to length {} and 200 longer ones: {} calls.\n",
                                       audit.longest, grouped(audit.calls));
  return out;
}

Json json_of(const CallAudit& audit, const std::string& target, const ScaleRule& rule) {
  const CheckResult* head = audit.headline();
  Json out = {{"schema", "ampcheck.audit_scaler/1"},
              {"target", target},
              {"rule", rule.name},
              {"passed", head == nullptr},
              {"code", head == nullptr ? "" : head->check->code},
              {"sequences", audit.sequences},
              {"calls", audit.calls},
              {"longest", audit.longest},
              {"checks", checks_json(audit)}};
  return out;
}

}  // namespace

ExitCode audit_scaler_command(const AuditOptions& options) {
  const std::string& log = options.scaler.log;
  if (options.words.size() > 1 || (options.words.size() == 1 && !log.empty()))
    throw UsageError("[audit scaler] got '" + options.words.back() +
                     "' too, want a rule, a library, a program in quotes, or --log FILE");
  if (!log.empty()) return audit_scaler_log(options);
  if (options.words.empty())
    throw UsageError("[audit scaler] got nothing to audit, want a rule, a library, a program in quotes, or --log FILE");
  const std::string target = options.words.front();
  const bool built_in = is_rule(target), library = is_library(target);
  if (!built_in && !library && target.find_first_of(" /") == std::string::npos) require_rule("audit scaler", target);
  const std::string named = options.scaler.rule.empty() ? (built_in ? target : "torch") : options.scaler.rule;
  require_rule("--rule", named);
  const ScaleRule& rule = scale_rule(named);
  ApartSubject* apart = nullptr;
  std::unique_ptr<checks::scaler::Subject> subject;
  if (library && !options.isolation) {
    subject = checks::scaler::library_scaler(target);
  } else if (library) {
    std::unique_ptr<ApartSubject> opened = scaler_apart({target, options.timeout});
    apart = opened.get();
    subject = std::move(opened);
  } else {
    subject = built_in ? checks::scaler::built_in_scaler(scale_rule(target)) : scaler_program(target);
  }
  // A program is asked for longer sequences where time is no matter.
  const std::optional<int> longest = options.set == checks::CaseSet::all ? std::optional(8) : std::nullopt;
  const CallAudit audit = checks::scaler::audit_calls(*subject, rule, longest);
  write_stdout(options.json ? json_text(json_of(audit, target, rule)) : text_of(audit, target, rule));
  if (apart != nullptr) apart->unload();
  return audit.headline() != nullptr ? ExitCode::findings : ExitCode::passed;
}

}  // namespace ampcheck::tools
