// SPDX-License-Identifier: Apache-2.0
// `ampcheck audit scaler`: of a log, of a built-in rule, or of a program that is a scaler.
#include <fmt/format.h>

#include <algorithm>

#include "checks/scaler/call_checks.h"
#include "src/amp/scale_rule.h"
#include "tools/commands/commands.h"
#include "tools/commands/scaler_commands.h"
#include "tools/commands/scaler_program.h"
#include "tools/report/json.h"
#include "tools/report/numbers.h"
#include "tools/report/output.h"

namespace ampcheck::tools {

namespace {

using checks::scaler::CallAudit;
using checks::scaler::CheckResult;
using checks::scaler::Outcome;

bool is_rule(const std::string& target) {
  return std::ranges::any_of(scale_rules(), [&](const ScaleRule& rule) { return target == rule.name; });
}

/// Calls in few words: whole steps of a training loop are one word each, equal ones are counted.
std::string calls_text(const CheckResult& r) {
  std::vector<std::pair<std::string, int>> words;
  for (std::size_t i = 0; i < r.calls.size();) {
    const auto is = [&](std::size_t at, const char* what) {
      return i + at < r.calls.size() && r.calls[i + at] == what;
    };
    const bool whole = is(0, "scale") && i + 1 < r.calls.size() && r.calls[i + 1].starts_with("backward") &&
                       is(2, "step") && is(3, "update") && is(4, "zero");
    std::string word = whole ? "a whole step with " + r.calls[i + 1] : r.calls[i];
    i += whole ? 5 : 1;
    if (!words.empty() && words.back().first == word)
      ++words.back().second;
    else
      words.emplace_back(std::move(word), 1);
  }
  std::string out;
  for (const auto& [word, count] : words)
    out += (out.empty() ? "" : ", ") + (count > 1 ? fmt::format("{} times {}", count, word) : word);
  return out;
}

std::string text_of(const CallAudit& audit, const std::string& target, const ScaleRule& rule) {
  const Style style = stdout_style();
  std::string out;
  for (const CheckResult& r : audit.results) {
    const char* colour = r.outcome == Outcome::failed   ? style.red
                         : r.outcome == Outcome::weak   ? style.yellow
                         : r.outcome == Outcome::passed ? style.green
                                                        : style.dim;
    out +=
        fmt::format("  {:<4}{:<23}{}{:<10}{} {}\n", r.check->code, r.check->name, colour, name(r.outcome), style.reset,
                    r.outcome == Outcome::passed || r.outcome == Outcome::not_asked ? r.check->asks : r.says);
    if (!r.calls.empty()) out += fmt::format("{:38} calls: {}\n{:38} with {}\n", "", calls_text(r), "", r.setup);
  }
  const auto count = [&](Outcome outcome) {
    return std::ranges::count_if(audit.results, [&](const CheckResult& r) { return r.outcome == outcome; });
  };
  const CheckResult* head = audit.headline();
  out += fmt::format("\n{}{}{}: '{}' under the rule {} ({}); {} passed, {} weak, {} failed, {} not asked.\n",
                     head != nullptr ? style.red : style.green, head != nullptr ? "BROKEN" : "RIGHT", style.reset,
                     target, rule.name, rule.source, count(Outcome::passed), count(Outcome::weak),
                     count(Outcome::failed), count(Outcome::not_asked));
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
              {"checks", Json::array()}};
  for (const CheckResult& r : audit.results)
    out["checks"].push_back({{"code", r.check->code},
                             {"name", r.check->name},
                             {"asks", r.check->asks},
                             {"outcome", name(r.outcome)},
                             {"says", r.says},
                             {"setup", r.setup},
                             {"calls", r.calls}});
  return out;
}

}  // namespace

ExitCode audit_scaler_command(AuditOptions options) {
  const std::string& log = options.scaler.log;
  if (options.words.size() > 1 || (options.words.size() == 1 && !log.empty()))
    throw UsageError("[audit scaler] got '" + options.words.back() +
                     "' too, want a rule, a program in quotes, or --log FILE");
  if (!log.empty()) return audit_scaler_log(options);
  if (options.words.empty())
    throw UsageError("[audit scaler] got nothing to audit, want a rule, a program in quotes, or --log FILE");
  const std::string target = options.words.front();
  const bool built_in = is_rule(target);
  if (!built_in && target.find_first_of(" /") == std::string::npos) require_rule("audit scaler", target);
  const std::string named = options.scaler.rule.empty() ? (built_in ? target : "torch") : options.scaler.rule;
  require_rule("--rule", named);
  const ScaleRule& rule = scale_rule(named);
  const auto subject = built_in ? checks::scaler::built_in_scaler(scale_rule(target)) : scaler_program(target);
  const CallAudit audit = checks::scaler::audit_calls(*subject, rule);
  write_stdout(options.json ? json_text(json_of(audit, target, rule)) : text_of(audit, target, rule));
  return audit.headline() != nullptr ? ExitCode::findings : ExitCode::passed;
}

}  // namespace ampcheck::tools
