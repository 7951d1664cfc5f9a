// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "tools/report/reports.h"

namespace ampcheck::tools {

namespace {

/// One field of a line: no tab and no end of line in it.
std::string field(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\')
      out += "\\\\";
    else if (c == '\n')
      out += "\\n";
    else if (c == '\t')
      out += "\\t";
    else
      out += static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? ' ' : c;
  }
  return out;
}

/// The note of a case, with the share of its elements that nobody judged.
std::string sampled_text(const CaseResult& result) {
  if (result.unjudged() == 0) return result.note;
  return result.note +
         fmt::format("; {} of its elements were not judged", unjudged_share(result.unjudged(), result.elements()));
}

}  // namespace

std::string lines_report(const Report& report, const RunFacts& facts) {
  std::string out;
  for (const CaseResult& result : report.cases) {
    const bool failed = convicts(result.verdict), skipped = result.verdict == Verdict::skipped;
    out += fmt::format("{}\t{}\t{}\t{}\t{}\n",
                       failed    ? "fail"
                       : skipped ? "skip"
                                 : "pass",
                       name(result.verdict), field(name(result.code)), field(result.name),
                       field(failed                             ? console_failure(result, facts, Style{})
                             : skipped || result.unjudged() > 0 ? sampled_text(result)
                                                                : ""));
  }
  return out;
}

}  // namespace ampcheck::tools
