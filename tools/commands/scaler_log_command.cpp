// SPDX-License-Identifier: Apache-2.0
// `ampcheck audit scaler --log FILE`: is the loss scale of this run healthy?
#include <fmt/format.h>

#include <cstdio>
#include <iostream>
#include <iterator>

#include "checks/scaler/answers.h"
#include "src/amp/scale_rule.h"
#include "src/error.h"
#include "src/file_bytes.h"
#include "src/suggestion.h"
#include "tools/choose/command_table.h"
#include "tools/commands/scaler_commands.h"
#include "tools/report/json.h"
#include "tools/report/numbers.h"
#include "tools/report/output.h"

namespace ampcheck::tools {

namespace {

using checks::scaler::Answer;
using checks::scaler::Evidence;
using checks::scaler::Health;
using checks::scaler::LogAudit;

std::string text_of_log(const std::string& path) {
  if (path == "-") return {std::istreambuf_iterator<char>(std::cin), std::istreambuf_iterator<char>()};
  require_readable(path);
  return read_bytes(path, "--log");
}

const char* colour(Health health, const Style& style) {
  return health == Health::broken ? style.red : health == Health::harmless ? style.green : style.yellow;
}

/// Text behind a first column, broken at blanks.
std::string wrapped_at(std::size_t indent, const std::string& text) {
  const auto width = static_cast<std::size_t>(help_width());
  std::string out;
  std::size_t column = indent;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find(' ', at), text.size());
    if (column > indent && column + 1 + end - at > width) {
      out += "\n" + std::string(indent, ' ');
      column = indent;
    } else if (column > indent) {
      out += ' ';
      ++column;
    }
    out += text.substr(at, end - at);
    column += end - at;
    at = end + 1;
  }
  return out;
}

std::string kinds_text(const LogAudit& audit) {
  std::string out;
  for (const auto& [number, lines] : audit.log.by_grammar) {
    const std::string kind =
        number < 0 ? audit.log.columns : checks::scaler::log_grammars()[static_cast<std::size_t>(number)].name;
    out += fmt::format("{}{} of '{}'", out.empty() ? "" : ", ", grouped(lines), kind);
  }
  return out.empty() ? "none of a known kind" : out;
}

/// What of the file was read, and what was not.
std::string reading_text(const LogAudit& audit) {
  const checks::scaler::Log& log = audit.log;
  std::string out = fmt::format("{} lines: {}", grouped(log.lines), kinds_text(audit));
  if (!log.torn.empty()) out += fmt::format("; {} cut off, the first is line {}", log.torn.size(), log.torn.front());
  if (log.unread > 0)
    out += fmt::format("; {} that say nothing of the scale, the first is line {}, {}", grouped(log.unread),
                       log.first_unread, quoted_text(log.unread_text));
  if (log.cut_off) out += "; the file ends within a line";
  return out;
}

std::string answer_text(const Answer& answer, const Style& style) {
  constexpr std::size_t kIndent = 23;
  std::string out = fmt::format("  {:<9}{}{:<12}{}", answer.question, colour(answer.health, style), name(answer.health),
                                style.reset) +
                    wrapped_at(kIndent, answer.text) + "\n";
  for (const Evidence& e : answer.evidence) {
    const std::string where =
        e.step ? fmt::format("step {}{}", *e.step, e.line > 0 ? fmt::format(", line {}", e.line) : "")
               : fmt::format("line {}", e.line);
    out += std::string(kIndent, ' ') + fmt::format("{}: {}\n", where, e.what);
  }
  if (!answer.advice.empty())
    out +=
        std::string(kIndent, ' ') + style.bold + "try " + style.reset + wrapped_at(kIndent + 4, answer.advice) + "\n";
  return out;
}

std::string text_of(const LogAudit& audit, const std::string& path) {
  const Style style = stdout_style();
  const Answer& head = audit.headline();
  std::string out = fmt::format("{}{}{}  {}\n", colour(head.health, style), name(head.health), style.reset,
                                path == "-" ? "standard input" : path);
  out += "  " + wrapped_at(2, reading_text(audit)) + "\n";
  if (!audit.rule_declared)
    out +=
        "  " +
        wrapped_at(2, fmt::format("rule taken: {} ({}); another one by --rule", audit.rule.name, audit.rule.source)) +
        "\n";
  out += "\n";
  for (const Answer& answer : audit.answers) out += answer_text(answer, style);
  return out;
}

Json json_of(const LogAudit& audit, const std::string& path) {
  const checks::scaler::Log& log = audit.log;
  Json out = {{"schema", "ampcheck.audit_scaler_log/1"},
              {"file", path},
              {"verdict", name(audit.headline().health)},
              {"kind", audit.headline().kind},
              {"rule", audit.rule.name},
              {"rule_declared", audit.rule_declared},
              {"lines", log.lines},
              {"kinds_of_lines", Json::array()},
              {"torn_lines", log.torn},
              {"unread_lines", log.unread},
              {"first_unread_line", log.first_unread},
              {"cut_off", log.cut_off},
              {"steps", audit.timeline.steps},
              {"skips", audit.timeline.skips},
              {"skips_before", audit.timeline.earlier_skips},
              {"answers", Json::array()}};
  for (const auto& [number, lines] : log.by_grammar)
    out["kinds_of_lines"].push_back(
        {{"name", number < 0 ? log.columns : checks::scaler::log_grammars()[static_cast<std::size_t>(number)].name},
         {"lines", lines}});
  for (const Answer& answer : audit.answers) {
    Json entry = {{"question", answer.question}, {"verdict", name(answer.health)}, {"kind", answer.kind},
                  {"text", answer.text},         {"advice", answer.advice},        {"evidence", Json::array()}};
    for (const Evidence& e : answer.evidence)
      entry["evidence"].push_back(
          {{"line", e.line}, {"step", e.step ? Json(*e.step) : Json(nullptr)}, {"what", e.what}});
    out["answers"].push_back(std::move(entry));
  }
  return out;
}

}  // namespace

checks::scaler::ColumnNames columns_of(const std::map<std::string, std::string>& columns) {
  checks::scaler::ColumnNames out;
  for (const auto& [name, quantity] : columns) {
    const auto known = checks::scaler::find_quantity(quantity);
    if (!known) throw UsageError("[--columns] got '" + quantity + "', want one of " + checks::scaler::quantity_names());
    out[name] = *known;
  }
  return out;
}

void require_rule(const std::string& flag, const std::string& rule) {
  std::vector<std::string> names;
  std::string list;
  for (const ScaleRule& known : scale_rules()) {
    if (rule == known.name) return;
    names.emplace_back(known.name);
    list += (list.empty() ? "" : ", ") + names.back();
  }
  throw UsageError("[" + flag + "] got '" + rule + "'" + did_you_mean(rule, names) + ", want one of " + list);
}

ExitCode audit_scaler_log(const AuditOptions& options) {
  const ScalerAuditOptions& scaler = options.scaler;
  if (!scaler.rule.empty()) require_rule("--rule", scaler.rule);
  for (const ReportFile& report : options.reports) require_writable(report.path);
  const LogAudit audit = checks::scaler::audit_log(text_of_log(scaler.log), scaler.rule, columns_of(scaler.columns));
  if (audit.nothing_read() && audit.log.refusal == nullptr) {
    write_stderr(
        fmt::format("ampcheck: [--log] '{}': none of its {} lines says a loss scale, a skipped step, a loss or "
                    "a norm in a form that is known (ampcheck explain loss-scale)\n",
                    scaler.log, grouped(audit.log.lines)));
    return ExitCode::nothing_ran;
  }
  for (const ReportFile& report : options.reports) write_file(report.path, report.text(audit, scaler.log));
  write_stdout(options.json ? json_text(json_of(audit, scaler.log)) : text_of(audit, scaler.log));
  const Health health = audit.headline().health;
  return health == Health::broken        ? ExitCode::findings
         : health == Health::cannot_tell ? ExitCode::nothing_ran
                                         : ExitCode::passed;
}

}  // namespace ampcheck::tools
