// SPDX-License-Identifier: Apache-2.0
// A finished (or interrupted) check as text, JSON and JUnit. Reports compute nothing that a check should have said.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "checks/define/op_def.h"
#include "src/device.h"
#include "src/finding.h"
#include "tools/report/environment.h"
#include "tools/report/exit_code.h"
#include "tools/report/output.h"
#include "tools/report/variants.h"

namespace ampcheck::tools {

/// What `ampcheck gate` says of an op beside its cases.
struct GateLine {
  std::string op, plugin, verdict, text;
  bool failed = false;
  bool warns = false;  ///< passes, and a reader should see it
};

/// The largest error of a tensor of an op, in ulps, at each acceptance and in this run.
struct ErrorHistory {
  struct At {
    std::string on, reason;  ///< of this run ""
    double largest = 0;
  };
  std::string op, tensor;
  std::vector<At> states = {};  ///< the oldest first
};

/// What is known of a run beside its results.
struct RunFacts {
  BuildFacts build;
  MachineFacts machine;
  Device device = Device::cpu;
  std::string device_text;  ///< "no CUDA device: ..." or the device's name
  std::size_t planned = 0;  ///< cases selected
  bool verbose = false;
  std::string hint = {};        ///< lines after "All clear": what to do next
  std::string data = {};        ///< --data as given: folder of the real runs' data; empty: the installed one
  std::string inputs = {};      ///< --inputs as given: file of the user's tensors
  bool as_written = false;      ///< --as-written
  std::string accumulate = {};  ///< " --accumulate CORES" as given, or nothing
  std::vector<GateLine> gate = {};
  std::vector<ErrorHistory> histories = {};
  std::map<std::string, checks::SourceLine> sources = {};  ///< where ops of a library are written, by their names
  std::vector<VariantClasses> variants = {};
  std::string again = {};       ///< the line that re-runs what is no case of its own; empty: `replay`
  std::string again_case = {};  ///< a line that re-runs a case, {} in place of its name; empty: `replay`
};

struct Totals {
  std::int64_t cases = 0, passed = 0, failed = 0, skipped = 0;
  std::int64_t elements = 0, blind = 0, unusual = 0;
  std::int64_t open = 0;  ///< of the elements: compared with nothing, since the formula leaves their value open
  std::int64_t sampled = 0,
               unjudged = 0;  ///< cases of which rows were sampled, and the elements that were not judged there
  /// Calls with the same data that gave the same bits, of the op that has the fewest; 0 where some differ.
  std::int64_t repeated = 0;
};
Totals totals_of(const Report& report);

/// "0.3 % by regrouping, 2 % by declared forms": the elements that the formula as written does not admit, of all;
/// empty if there are none.
std::string admitted_words(std::int64_t by_regrouping, std::int64_t by_forms, std::int64_t elements);
/// The same of each op that has such, in the order of the cases. Of a built-in op, whose usual forms are all listed,
/// its forms say nothing.
std::vector<std::pair<std::string, std::string>> admitted_of_ops(const Report& report);

/// Of all elements that were written those that were not judged, as "99.97 %"; never 100 where any was judged.
std::string unjudged_share(std::int64_t unjudged, std::int64_t judged);

/// 0, 1, 4 or 5, from the verdicts and from what did not run.
ExitCode exit_code_of(const Report& report, std::size_t planned);

std::string console_report(const Report& report, const RunFacts& facts, const Style& style);
/// One failing case in at most 12 lines.
std::string console_failure(const CaseResult& result, const RunFacts& facts, const Style& style);
/// The line that re-runs a case as this run did, quoted for a shell: its name, and what the name does not say.
std::string replay_line(const CaseResult& result, const RunFacts& facts);
/// All checks of one case, a line each.
std::string console_checks(const CaseResult& result, const Style& style);

/// ampcheck.check/1
std::string json_report(const Report& report, const RunFacts& facts);
/// The dialect that Jenkins and GitLab read: a test case per check of a case, or per case where there are too many.
std::string junit_report(const Report& report, const RunFacts& facts);
/// A line per case for programs that read lines: pass, fail or skip; verdict; code; case name; what a person is told.
/// Fields are separated by tabs, and hold \\, \n and \t for a backslash, an end of line and a tab.
std::string lines_report(const Report& report, const RunFacts& facts);
/// SARIF 2.1.0 for code scanning: a result for each failing case, at most 5,000.
std::string sarif_report(const Report& report, const RunFacts& facts);
/// Workflow commands of GitHub Actions (::error ...): the ten that matter most, since it drops further ones.
std::string github_report(const Report& report, const RunFacts& facts);
/// Code quality of GitLab: a list of issues.
std::string gitlab_report(const Report& report, const RunFacts& facts);
/// For a pull request or a step summary: at most 900 kB, with a line that says what is left out.
std::string markdown_report(const Report& report, const RunFacts& facts);
/// A row a case, behind a row of names; RFC 4180. A cell that a spreadsheet would run has a quote in front.
std::string csv_report(const Report& report, const RunFacts& facts);
/// Test Anything Protocol 14.
std::string tap_report(const Report& report, const RunFacts& facts);
/// A line for each failing case, and one with the totals.
std::string concise_report(const Report& report, const RunFacts& facts);
/// One page without a script that loads nothing: ops, findings, histograms, and at most 4,000 cases.
std::string html_report(const Report& report, const RunFacts& facts);
/// The cases of ampcheck.check/1, one JSON line each.
std::string jsonl_report(const Report& report, const RunFacts& facts);

}  // namespace ampcheck::tools
