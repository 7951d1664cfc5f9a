// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
// Reports of a line or row a case: CSV, TAP, concise text, Markdown.
#include <fmt/format.h>

#include <algorithm>

#include "tools/report/failing_cases.h"
#include "tools/report/markdown_text.h"
#include "tools/report/numbers.h"
#include "tools/report/plain_text.h"
#include "tools/report/reports.h"

namespace ampcheck::tools {

namespace {

constexpr std::size_t kMostMarkdown = 900'000;  ///< bytes; GitHub drops a summary of more than 1 MiB

/// A cell of CSV. One that begins as a formula of a spreadsheet gets a quote in front.
std::string cell(std::string_view text) {
  std::string plain = one_line(text);
  if (!plain.empty() && std::string_view("=+-@").find(plain.front()) != std::string_view::npos) plain.insert(0, "'");
  if (plain.find_first_of("\",") == std::string::npos) return plain;
  std::string out = "\"";
  for (const char c : plain) out += c == '"' ? std::string("\"\"") : std::string(1, c);
  return out + "\"";
}

/// A text in a line of TAP, where # begins a directive.
std::string tap_text(std::string_view text) {
  std::string out;
  for (const char c : one_line(text)) {
    if (c == '#' || c == '\\') out += '\\';
    out += c;
  }
  return out;
}

/// A text in single quotes of YAML.
std::string yaml_text(std::string_view text) {
  std::string out = "'";
  for (const char c : one_line(text)) out += c == '\'' ? std::string("''") : std::string(1, c);
  return out + "'";
}

const char* outcome(const CaseResult& result) {
  return convicts(result.verdict) ? "fail" : result.verdict == Verdict::skipped ? "skip" : "pass";
}

std::string totals_line(const Report& report) {
  const Totals totals = totals_of(report);
  return fmt::format("{} of {} cases failed, {} skipped; {} of {} elements were not judged, {} more are blind",
                     totals.failed, totals.cases, totals.skipped, grouped(totals.open), grouped(totals.elements),
                     grouped(totals.blind));
}

std::string markdown_row(const CaseResult& result, const RunFacts& facts) {
  const CheckResult* const check = deciding_check(result);
  const Element* const worst = check == nullptr || check->worst.empty() ? nullptr : &check->worst.front();
  return fmt::format("| {} | {} | {} | {} | {} |\n", name(result.code), markdown_code(result.name),
                     markdown_word(short_reason(result)),
                     worst == nullptr ? "" : markdown_word(fmt::format("{} ulp", rounded_decimal(worst->ulp, 3))),
                     markdown_code(replay_line(result, facts)));
}

/// What was admitted that the formula as written does not admit, of the first ops.
std::string admitted_markdown(const Report& report) {
  constexpr std::size_t kMostOps = 20;
  const auto ops = admitted_of_ops(report);
  if (ops.empty()) return "";
  std::string out;
  for (std::size_t k = 0; k < std::min(kMostOps, ops.size()); ++k)
    out += fmt::format("{}{}: {}", k == 0 ? "" : "; ", markdown_word(ops[k].first), markdown_word(ops[k].second));
  if (ops.size() > kMostOps) out += fmt::format("; and {} more ops", ops.size() - kMostOps);
  return "\nAdmitted beyond the formula as written, of the elements: " + out + ".\n";
}

std::string gate_markdown(const RunFacts& facts) {
  if (facts.gate.empty()) return "";
  std::string out = "\n| op | verdict | |\n|---|---|---|\n";
  for (const GateLine& line : facts.gate)
    out += fmt::format("| {} | {} | {} |\n", markdown_word(line.op), line.verdict, markdown_word(line.text));
  return out;
}

}  // namespace

std::string csv_report(const Report& report, const RunFacts&) {
  std::string out = "outcome,verdict,code,op,dtype,case,elements,blind,open,seconds,reason\r\n";
  for (const CaseResult& result : report.cases)
    out += fmt::format("{},{},{},{},{},{},{},{},{},{:.6f},{}\r\n", outcome(result), name(result.verdict),
                       name(result.code), cell(result.op), cell(result.dtype), cell(result.name), result.elements(),
                       result.blind(), result.open(), result.seconds, cell(short_reason(result)));
  return out;
}

std::string tap_report(const Report& report, const RunFacts& facts) {
  std::string out = fmt::format("TAP version 14\n1..{}\n", report.cases.size() + facts.gate.size());
  std::size_t number = 0;
  for (const CaseResult& result : report.cases) {
    const bool failed = convicts(result.verdict);
    out += fmt::format("{} {} - {}{}\n", failed ? "not ok" : "ok", ++number, tap_text(result.name),
                       result.verdict == Verdict::skipped ? " # SKIP " + tap_text(result.note) : "");
    if (failed)
      out += fmt::format("  ---\n  verdict: {}\n  code: {}\n  message: {}\n  again: {}\n  ...\n", name(result.verdict),
                         name(result.code), yaml_text(short_reason(result)), yaml_text(replay_line(result, facts)));
  }
  for (const GateLine& line : facts.gate)
    out +=
        fmt::format("{} {} - gate {}\n", line.failed ? "not ok" : "ok", ++number, tap_text(line.op + ": " + line.text));
  return out;
}

std::string concise_report(const Report& report, const RunFacts& facts) {
  std::string out;
  for (const GateLine& line : facts.gate)
    if (line.failed) out += fmt::format("{}: {} {}\n", one_line(line.op), line.verdict, one_line(line.text));
  for (const CaseResult* result : failing_cases(report))
    out += fmt::format("{}: {} {}\n", one_line(result->name), name(result->code), one_line(short_reason(*result)));
  return out + totals_line(report) + "\n";
}

std::string markdown_report(const Report& report, const RunFacts& facts) {
  const std::vector<const CaseResult*> failing = failing_cases(report);
  std::string out = fmt::format("## ampcheck: {}\n\n{}.\n", failing.empty() ? "no findings" : "findings",
                                markdown_word(totals_line(report)));
  out += admitted_markdown(report);
  out += gate_markdown(facts);
  if (!failing.empty()) out += "\n| code | case | finding | worst | again |\n|---|---|---|--:|---|\n";
  std::size_t shown = 0;
  for (const CaseResult* result : failing) {
    const std::string row = markdown_row(*result, facts);
    if (out.size() + row.size() > kMostMarkdown) break;
    out += row;
    ++shown;
  }
  if (shown < failing.size()) out += fmt::format("\n{} more findings do not fit here.\n", failing.size() - shown);
  std::string notes;
  for (const std::string& note : report.notes) {
    const std::string line = "- " + markdown_word(shortened(note, 2000)) + "\n";
    if (out.size() + notes.size() + line.size() <= kMostMarkdown) notes += line;
  }
  if (!notes.empty()) out += "\n<details><summary>Notes</summary>\n\n" + notes + "\n</details>\n";
  return out;
}

}  // namespace ampcheck::tools
