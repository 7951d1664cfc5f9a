// SPDX-License-Identifier: Apache-2.0
#include "tests/support/hostile_report.h"

namespace ampcheck::testing {

namespace {

const std::vector<std::string> kParts = {"<script>alert(1)</script>",
                                         "</testcase>",
                                         "]]>",
                                         "<!--",
                                         "&amp;",
                                         "&#0;",
                                         "\"",
                                         "'",
                                         "`",
                                         "```",
                                         "|",
                                         "||",
                                         "\\|",
                                         "\n",
                                         "\r\n",
                                         "\r",
                                         "\t",
                                         "\v",
                                         "\f",
                                         std::string(1, '\0'),
                                         "\x01",
                                         "\x1b[31mred\x1b[0m",
                                         "\x1b]0;title\x07",
                                         "\x7f",
                                         "\xc2\x85",
                                         "\xc2\x9b"
                                         "31m",
                                         "\xe2\x80\xa8",
                                         "\xe2\x80\xa9",
                                         "\xe2\x80\xae"
                                         "gnp",
                                         "\xe2\x81\xa6",
                                         "\xef\xbb\xbf",
                                         "\xff",
                                         "\xc0\x80",
                                         "\xed\xa0\x80",
                                         "\xf5\x80\x80\x80",
                                         "\xe2\x82",
                                         "\xef\xbf\xbe",
                                         "\xef\xbf\xbf",
                                         "::error file=x::y",
                                         "\n::error::z",
                                         "::stop-commands::t",
                                         "::set-output name=a::b",
                                         "%0A::error::w",
                                         "%25",
                                         "%",
                                         "=1+1",
                                         "+1",
                                         "-1",
                                         "@SUM(A1)",
                                         "=cmd|' /C calc'!A0",
                                         ",",
                                         ",\"",
                                         "\"\"",
                                         ";",
                                         "\t=1",
                                         "# SKIP",
                                         "# TODO",
                                         "#",
                                         "not ok 1",
                                         "\nnot ok 7 - x",
                                         "\n1..0",
                                         "Bail out!",
                                         "\nBail out!",
                                         "  ---",
                                         "\n  ...",
                                         "---",
                                         "...",
                                         "- x",
                                         ": y",
                                         "{}",
                                         "[]",
                                         "{\"a\":1}",
                                         "[click](javascript:alert(1))",
                                         "![x](http://x.invalid/a)",
                                         "@everyone",
                                         "#123",
                                         "~~x~~",
                                         "**b**",
                                         "__i__",
                                         "$x$",
                                         "<img src=x onerror=y>",
                                         "<details>",
                                         "</details>",
                                         "<!DOCTYPE a>",
                                         "../../etc/passwd",
                                         "/absolute",
                                         "C:\\x",
                                         "file:///x",
                                         "a b",
                                         " lead",
                                         "trail ",
                                         "",
                                         "null",
                                         "true",
                                         "NaN",
                                         "\\",
                                         "\\\\",
                                         "\\n",
                                         "\\u0000",
                                         "\xf0\x9f\x98\x80",
                                         "\xc3\xa9",
                                         "\xe6\xbc\xa2",
                                         std::string(5000, 'x'),
                                         std::string(300, '\n'),
                                         "%s%n",
                                         "${HOME}",
                                         "$(x)",
                                         "`x`"};

}  // namespace

std::vector<std::string> hostile_names() {
  std::vector<std::string> out;
  for (const char* frame : {"", "op_"})
    for (const std::string& part : kParts) {
      std::string name = std::string(frame) + part;
      name += *frame == '\0' ? "" : "_end";
      out.push_back(std::move(name));
    }
  return out;
}

CaseResult failing_case(const std::string& name, std::size_t seed) {
  CaseResult result;
  result.name = name + "(x=fp32[2,3],seed=" + std::to_string(seed) + ")";
  result.op = name;
  result.plugin = "lib/" + name;
  result.dtype = "fp32";
  result.verdict = Verdict::bug;
  result.code = Code::ac101;
  CheckResult check;
  check.id = {CheckId::Kind::forward, name};
  check.verdict = Verdict::bug;
  check.code = Code::ac101;
  check.compared = 6;
  check.failed = 1;
  check.cause = name;
  check.note = name;
  result.checks = {check};
  return result;
}

Report report_of(const std::vector<std::string>& names) {
  Report report;
  for (const std::string& name : names) {
    report.cases.push_back(failing_case(name, report.cases.size()));
    CaseResult skipped = failing_case(name, report.cases.size());
    skipped.verdict = Verdict::skipped;
    skipped.code = Code::none;
    skipped.note = name;
    skipped.checks.clear();
    report.cases.push_back(std::move(skipped));
    report.notes.push_back(name);
  }
  return report;
}

tools::RunFacts facts_of(const std::vector<std::string>& names) {
  tools::RunFacts facts;
  for (const std::string& name : names) facts.gate.push_back({name, "lib/" + name, "WORSE", name, true});
  return facts;
}

}  // namespace ampcheck::testing
