// SPDX-License-Identifier: Apache-2.0
// JUnit XML as Jenkins and GitLab read it: testsuites > testsuite (an op) > testcase > failure, error or skipped.
// GitLab keeps the first of equal names and stops at 500,000 tests, so names are unique and checks are rolled up in
// time.
#include <fmt/format.h>

#include <iterator>
#include <map>
#include <vector>

#include "tools/report/numbers.h"
#include "tools/report/plain_text.h"
#include "tools/report/reports.h"

namespace ampcheck::tools {

namespace {

constexpr std::size_t kMostTestCases = 20'000;

/// Length of the valid UTF-8 sequence at the start of `text` that XML 1.0 admits; 0 if there is none.
std::size_t xml_character(std::string_view text) {
  const std::size_t length = utf8_length(text);
  if (length == 1 && static_cast<unsigned char>(text[0]) < 0x20)
    return text[0] == '\t' || text[0] == '\n' || text[0] == '\r' ? 1 : 0;
  const std::string_view character = text.substr(0, length);
  return character == "\xef\xbf\xbe" || character == "\xef\xbf\xbf" ? 0 : length;  // U+FFFE, U+FFFF
}

std::string escaped(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const std::size_t length = xml_character(text);
    switch (length == 1 ? text[0] : '\0') {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '"': out += "&quot;"; break;
      case '\'': out += "&apos;"; break;
      case '\n': out += "&#10;"; break;
      default: out += length == 0 ? std::string_view("?") : text.substr(0, length);
    }
    text.remove_prefix(std::max<std::size_t>(length, 1));
  }
  return out;
}

/// What stands inside a testcase element; empty if it passed.
std::string outcome(Verdict verdict, Code code, const std::string& message, const std::string& details) {
  if (verdict == Verdict::skipped) return fmt::format("      <skipped message=\"{}\"/>\n", escaped(message));
  if (!convicts(verdict)) return "";
  const char* const tag = verdict == Verdict::crash || verdict == Verdict::timeout ? "error" : "failure";
  return fmt::format("      <{0} type=\"{1} {2}\" message=\"{3}\">{4}</{0}>\n", tag, name(verdict), name(code),
                     escaped(message), escaped(details));
}

void add_case(std::string& out, const std::string& op, const std::string& title, double seconds,
              const std::string& inside) {
  auto end = std::back_inserter(out);
  fmt::format_to(end, "    <testcase classname=\"{}\" name=\"{}\" time=\"{:.3f}\"", escaped(op), escaped(title),
                 seconds);
  if (inside.empty())
    out += "/>\n";
  else
    fmt::format_to(end, ">\n{}    </testcase>\n", inside);
}

struct Suite {
  std::string body;
  std::size_t tests = 0, failures = 0, errors = 0, skipped = 0;
  double seconds = 0;

  void count(Verdict verdict) {
    ++tests;
    if (verdict == Verdict::skipped)
      ++skipped;
    else if (verdict == Verdict::crash || verdict == Verdict::timeout)
      ++errors;
    else if (convicts(verdict))
      ++failures;
  }
  std::string counts() const {
    return fmt::format("tests=\"{}\" failures=\"{}\" errors=\"{}\" skipped=\"{}\" time=\"{:.3f}\"", tests, failures,
                       errors, skipped, seconds);
  }
  /// Of all suites: there the schema knows no `skipped`.
  std::string sums() const {
    return fmt::format("tests=\"{}\" failures=\"{}\" errors=\"{}\" time=\"{:.3f}\"", tests, failures, errors, seconds);
  }
};

std::string message_of(const CheckResult& check) {
  if (!check.cause.empty()) return check.cause;
  if (!check.note.empty()) return check.note;
  return convicts(check.verdict) ? fmt::format("{} of {} elements", check.failed, check.compared) : "";
}

void add_result(Suite& suite, const CaseResult& result, const RunFacts& facts, bool per_check) {
  suite.seconds += result.seconds;
  if (!per_check || deciding_check(result) == nullptr) {  // a crash may have no check of its own
    const CheckResult* const check = deciding_check(result);
    const std::string message = !result.note.empty() || check == nullptr ? result.note : message_of(*check);
    suite.count(result.verdict);
    add_case(suite.body, result.op, result.name, result.seconds,
             outcome(result.verdict, result.code, message,
                     convicts(result.verdict) ? console_failure(result, facts, {}) : ""));
    return;
  }
  std::map<std::string, int> seen;
  for (const CheckResult& check : result.checks) {
    const int again = ++seen[check.name()];
    const std::string title = result.name + " " + check.name() + (again > 1 ? fmt::format(" #{}", again) : "");
    const std::string details =
        &check == deciding_check(result) ? console_failure(result, facts, {}) : replay_line(result, facts);
    suite.count(check.verdict);
    add_case(suite.body, result.op, title, &check == &result.checks.front() ? result.seconds : 0,
             outcome(check.verdict, check.code, message_of(check), details));
  }
}

}  // namespace

std::string junit_report(const Report& report, const RunFacts& facts) {
  std::size_t checks = 0;
  for (const CaseResult& result : report.cases) checks += std::max<std::size_t>(result.checks.size(), 1);
  std::vector<std::pair<std::string, Suite>> suites;
  Suite all;
  for (const CaseResult& result : report.cases) {
    if (suites.empty() || suites.back().first != result.op) suites.emplace_back(result.op, Suite{});
    add_result(suites.back().second, result, facts, checks <= kMostTestCases);
  }
  for (const GateLine& line : facts.gate) {
    if (suites.empty() || suites.back().first != "gate") suites.emplace_back("gate", Suite{});
    Suite& suite = suites.back().second;
    ++suite.tests;
    suite.failures += line.failed;
    add_case(suite.body, "gate", fmt::format("{} #{}", line.op, suite.tests), 0,
             line.failed ? fmt::format("      <failure type=\"{}\" message=\"{}\"/>\n", escaped(line.verdict),
                                       escaped(line.text))
                         : "");
  }
  for (const auto& [op, suite] : suites) {
    all.tests += suite.tests;
    all.failures += suite.failures;
    all.errors += suite.errors;
    all.seconds += suite.seconds;
  }
  std::string out =
      fmt::format("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites name=\"ampcheck\" {}>\n", all.sums());
  std::map<std::string, std::string> admitted;
  for (const auto& [op, words] : admitted_of_ops(report))
    admitted[op] = fmt::format(
        "    <properties>\n      <property name=\"admitted\" value=\"{}\"/>\n    </properties>\n", escaped(words));
  for (const auto& [op, suite] : suites)
    out += fmt::format("  <testsuite name=\"{}\" {}>\n{}{}  </testsuite>\n", escaped(op), suite.counts(), admitted[op],
                       suite.body);
  return out + "</testsuites>\n";
}

}  // namespace ampcheck::tools
