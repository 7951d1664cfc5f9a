// SPDX-License-Identifier: Apache-2.0
// `ampcheck audit step`: of a program that is a training loop.
#include <fmt/format.h>

#include <memory>
#include <utility>

#include "checks/scaler/library.h"
#include "checks/scaler/loop_checks.h"
#include "src/amp/scale_rule.h"
#include "tools/commands/audited_library.h"
#include "tools/commands/check_lines.h"
#include "tools/commands/commands.h"
#include "tools/commands/scaler_commands.h"
#include "tools/commands/step_program.h"
#include "tools/report/output.h"
#include "tools/report/usage_error.h"

namespace ampcheck::tools {

namespace {

using checks::scaler::CallAudit;
using checks::scaler::CheckResult;

std::string text_of(const CallAudit& audit, const std::string& target) {
  const Style style = stdout_style();
  const CheckResult* head = audit.headline();
  std::string out = check_lines(audit);
  out += fmt::format("\n{}{}{}: '{}'; {}.\n", head != nullptr ? style.red : style.green,
                     head != nullptr ? "BROKEN" : "RIGHT", style.reset, target, outcome_counts(audit));
  if (head != nullptr) out += fmt::format("{} explains the others: {}.\n", head->check->code, head->says);
  return out + fmt::format("{} runs, {} steps.\n", audit.sequences, audit.calls);
}

Json json_of(const CallAudit& audit, const std::string& target, const ScaleRule& rule) {
  const CheckResult* head = audit.headline();
  return {{"schema", "ampcheck.audit_step/1"},
          {"target", target},
          {"rule", rule.name},
          {"passed", head == nullptr},
          {"code", head == nullptr ? "" : head->check->code},
          {"runs", audit.sequences},
          {"calls", audit.calls},
          {"checks", checks_json(audit)}};
}

}  // namespace

ExitCode audit_step_command(const AuditOptions& options) {
  if (options.words.empty())
    throw UsageError(
        "[audit step] got nothing to audit, want a program in quotes or a library (ampcheck explain training-step)");
  if (options.words.size() > 1)
    throw UsageError("[audit step] got '" + options.words[1] + "' too, want one program in quotes or a library");
  const std::string named = options.scaler.rule.empty() ? "torch" : options.scaler.rule;
  require_rule("--rule", named);
  const ScaleRule& rule = scale_rule(named);
  const std::string& target = options.words.front();
  ApartLoop* apart = nullptr;
  std::unique_ptr<checks::scaler::Loop> loop;
  if (is_library(target) && !options.isolation) {
    loop = checks::scaler::library_loop(target);
  } else if (is_library(target)) {
    std::unique_ptr<ApartLoop> opened = loop_apart({target, options.timeout});
    apart = opened.get();
    loop = std::move(opened);
  } else {
    loop = step_program(target);
  }
  CallAudit audit;
  try {
    audit = checks::scaler::audit_loop(*loop, rule);
  } catch (const checks::scaler::LoopError& error) {
    throw UsageError(error.what());
  }
  write_stdout(options.json ? json_text(json_of(audit, target, rule)) : text_of(audit, target));
  if (apart != nullptr) apart->unload();
  return audit.headline() != nullptr ? ExitCode::findings : ExitCode::passed;
}

}  // namespace ampcheck::tools
