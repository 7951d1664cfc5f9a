// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
// `audit zoo -o html:FILE`: the score by kind of defect and by rule, what went wrong, and every run.
#include <fmt/format.h>

#include <algorithm>

#include "tools/commands/audit_zoo_report.h"
#include "tools/report/html_page.h"
#include "tools/report/numbers.h"
#include "tools/report/plain_text.h"

namespace ampcheck::tools {

namespace {

using namespace checks::zoo;

constexpr std::size_t kMostRuns = 3000;  ///< a page of 1 MB at most

std::string escaped(std::string_view text) { return html_escaped(one_line(text)); }

std::string bar_of(const Score& score, std::int64_t of) { return score.trials == 0 ? "-" : share_bar(score.share(of)); }

std::string class_row(const std::string& what, const Score& s) {
  return fmt::format("<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>", escaped(what),
                     grouped(s.trials), bar_of(s, s.found), bar_of(s, s.exact_class), bar_of(s, s.right_cause),
                     bar_of(s, s.wrong_cause));
}

std::string class_table(const Scores& scores) {
  std::string out =
      "<h2>Defects</h2><p>Runs of a kernel with a planted defect in one storage type. Class: the verdict fits best. "
      "Cause: it names what is wrong. Wrong: it names something else.</p><table><tr><th>defect</th><th>runs</th>"
      "<th>found</th><th>class</th><th>cause</th><th>wrong</th></tr>";
  for (const DefectClass& known : defect_classes()) {
    const Score& s = scores.by_class[static_cast<std::size_t>(known.number)];
    if (s.trials > 0) out += class_row(fmt::format("{} {}", known.number, known.what), s);
  }
  out += class_row("all", scores.all) + class_row("of these written last, unseen", scores.unseen);
  if (scores.fp64.trials > 0) out += class_row("besides, kernels of fp64", scores.fp64);
  return out + "</table>";
}

std::string rule_table(const Scores& scores) {
  std::string out =
      "<h2>Rules</h2><p>What each rule finds of the defects, and how many cases of correct kernels it "
      "rejects.</p><table><tr><th>rule</th><th>finds</th><th>rejects of correct kernels</th></tr>";
  const auto line = [&](const char* rule, const std::string& finds, std::int64_t alarms, std::int64_t cases) {
    out += fmt::format("<tr><td>{}</td><td>{}</td><td>{} of {}</td></tr>", escaped(rule), finds, grouped(alarms),
                       grouped(cases));
  };
  const auto row = [&](const char* rule, std::int64_t found, std::int64_t alarms, std::int64_t cases) {
    line(rule, bar_of(scores.all, found), alarms, cases);
  };
  row("ampcheck", scores.all.found, scores.clean.alarms, scores.clean.cases);
  if (scores.fp64.trials + scores.clean_fp64.variants > 0)
    line("ampcheck in fp64", bar_of(scores.fp64, scores.fp64.found), scores.clean_fp64.alarms, scores.clean_fp64.cases);
  if (scores.all.alone_trials + scores.clean.alone_cases > 0)
    row("by formula alone", scores.all.alone_found, scores.clean.alone_alarms, scores.clean.alone_cases);
  if (scores.clean.form_cases > 0)
    line("by formula alone, where the kernel needs a declared form", "-", scores.clean.form_alarms,
         scores.clean.form_cases);
  const auto gates = usual_gates();
  for (std::size_t g = 0; g < gates.size(); ++g)
    row(gates[g].name, scores.all.gates.empty() ? 0 : scores.all.gates[g],
        scores.clean.gate_alarms.empty() ? 0 : scores.clean.gate_alarms[g], scores.clean.gate_cases);
  return out + "</table>";
}

bool is_well(const Trial& t) { return t.specimen->correct() ? !t.found() : t.found() && !t.wrong_cause; }

std::string run_row(const Trial& t) {
  const Specimen& s = *t.specimen;
  const std::string verdict = t.found()     ? fmt::format("{} {}", name(t.verdict), name(t.code))
                              : s.correct() ? "not convicted"
                                            : "not found";
  return fmt::format("<tr><td>{}</td><td>{}</td><td>{}</td><td{}>{}</td><td>{}</td><td><code>{}</code></td></tr>",
                     escaped(s.name()), name(t.dtype), escaped(s.what), is_well(t) ? "" : " class=\"bad\"",
                     escaped(verdict), escaped(t.cause), escaped(t.case_name));
}

std::string run_table(const std::vector<const Trial*>& trials) {
  std::string out =
      "<table><tr><th>kernel</th><th>dtype</th><th>what it does</th><th>verdict</th><th>cause</th><th>case</th></tr>";
  for (std::size_t i = 0; i < std::min(trials.size(), kMostRuns); ++i) out += run_row(*trials[i]);
  out += "</table>";
  if (trials.size() > kMostRuns)
    out += fmt::format("<p>{} more are left out here; --json has all.</p>",
                       grouped(static_cast<std::int64_t>(trials.size() - kMostRuns)));
  return out;
}

std::string cheat_table(const std::vector<CheatTrial>& cheats) {
  if (cheats.empty()) return "";
  std::string out =
      "<h2>Kernels that deceive a test, and honest twins</h2><details><summary>All of them</summary><table><tr>"
      "<th>kernel</th><th>dtype</th><th>what it does</th><th>cases found</th><th>verdict</th></tr>";
  for (const CheatTrial& t : cheats)
    out += fmt::format("<tr><td>{}</td><td>{}</td><td>{}</td><td>{} of {}</td><td{}>{} {}</td></tr>",
                       escaped(t.cheat->planted.op.signature.name), name(t.dtype), escaped(t.cheat->planted.what),
                       grouped(t.convicted), grouped(t.cases), t.right() ? "" : " class=\"bad\"",
                       t.found() ? name(t.code) : "not convicted", escaped(t.cause));
  return out + "</table></details>";
}

}  // namespace

std::string html_of(const ZooAudit& audit) {
  const Scores scores = score(audit.trials);
  std::vector<const Trial*> all, wrong;
  for (const Trial& trial : audit.trials) {
    all.push_back(&trial);
    if (!is_well(trial)) wrong.push_back(&trial);
  }
  std::string out = html_head("ampcheck audit zoo");
  out += fmt::format(
      "<h1>{}</h1><p>{} runs of kernels with a planted defect, {} found; {} runs of correct kernels, {} "
      "of their cases convicted.</p>",
      all_well(audit) ? "The goals are met" : "The goals are not met", grouped(scores.all.trials),
      grouped(scores.all.found), grouped(scores.clean.variants), grouped(scores.clean.alarms));
  out += class_table(scores) + rule_table(scores);
  if (!wrong.empty()) out += "<h2>Wrong</h2>" + run_table(wrong);
  out += cheat_table(audit.cheats) + "<h2>Runs</h2><details><summary>All of them</summary>" + run_table(all) +
         "</details>";
  return out + "</body></html>\n";
}

}  // namespace ampcheck::tools
