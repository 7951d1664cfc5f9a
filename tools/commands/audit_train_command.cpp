// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
// `ampcheck audit train`: how often the verdict over a training run is right.
#include <fmt/format.h>

#include <chrono>
#include <map>

#include "checks/audit/train_audit.h"
#include "tools/commands/audit_commands.h"
#include "tools/report/json.h"
#include "tools/report/numbers.h"
#include "tools/report/output.h"
#include "tools/report/progress.h"
#include "tools/workers/interrupt.h"

namespace ampcheck::tools {

namespace {

using namespace checks::train_audit;

struct Scores {
  Score kernels, variants, steps, healthy;
  bool interrupted = false;  ///< what did not run meets no goal
  bool met() const {
    return !interrupted && kernels.found >= kKernelGoal * kernels.trials && steps.found >= kStepGoal * steps.trials &&
           variants.found == 0 && healthy.found == 0;
  }
};

std::string share(int part, int all) {
  return all == 0 ? "-" : fmt::format("{:.1f} %", 100.0 * part / static_cast<double>(all));
}

/// Rows by net and dtype of one part.
std::string rows(const std::vector<Trial>& trials, Part part) {
  std::map<std::string, std::vector<Trial>> by_net;
  for (const Trial& t : trials)
    if (t.part == part) by_net[t.net.substr(0, t.net.find(' ')) + " " + name(t.dtype)].push_back(t);
  std::string out;
  for (const auto& [where, some] : by_net) {
    const Score s = score(some, part);
    out += fmt::format("    {:<24}{:>6}{:>10}{:>10}{:>10}\n", where, s.trials, share(s.found, s.trials),
                       share(s.named, s.trials), part == Part::kernel ? share(s.right_class, s.trials) : "-");
  }
  return out;
}

std::string wrong(const std::vector<Trial>& trials) {
  std::string out;
  for (const Trial& t : trials) {
    const bool defect = t.part == Part::kernel || t.part == Part::step;
    if (defect ? !t.shows || t.found : !t.found) continue;
    out += fmt::format("  {} {} {}: {}\n", t.name, t.net, name(t.dtype), defect ? "not found" : t.what);
  }
  return out;
}

std::string verbose(const std::vector<Trial>& trials) {
  std::string out;
  for (const Trial& t : trials)
    out += fmt::format("{:<44} {:<12} {:<5} {:<12} {}\n", t.name, t.net, name(t.dtype),
                       t.part == Part::kernel && !t.shows ? "(not shown)"
                       : t.found                          ? "found"
                                                          : "not found",
                       t.what);
  return out.empty() ? "" : out + "\n";
}

std::string text_of(const std::vector<Trial>& trials, const Scores& s, bool all, double seconds) {
  const Style style = stdout_style();
  const auto count = [&](Part part, bool shown) {
    return std::count_if(trials.begin(), trials.end(),
                         [&](const Trial& t) { return t.part == part && t.shows == shown; });
  };
  std::string out = all ? verbose(trials) : "";
  out += fmt::format("{}  {:<26}{:>6}{:>10}{:>10}{:>10}{}\n", style.bold, "runs of 10 steps", "runs", "found", "named",
                     "class", style.reset);
  out += fmt::format("  planted kernels that show at the data ({} more do not)\n", count(Part::kernel, false));
  out += rows(trials, Part::kernel);
  const auto line = [&](const char* what, const Score& score, bool named, bool classes) {
    out += fmt::format("    {:<24}{:>6}{:>10}{:>10}{:>10}\n", what, score.trials, share(score.found, score.trials),
                       named ? share(score.named, score.trials) : "-",
                       classes ? share(score.right_class, score.trials) : "-");
  };
  line("all", s.kernels, true, true);
  out += "  planted defects of the step\n" + rows(trials, Part::step);
  line("all", s.steps, true, false);
  out += "  nothing planted: found is a false alarm\n";
  line("correct kernels", s.variants, false, false);
  line("healthy runs", s.healthy, false, false);
  if (const std::string text = wrong(trials); !text.empty()) out += "\nWrong:\n" + text;
  if (s.interrupted)
    return out + fmt::format("\n{}Interrupted{} after {}: whether the goals are met is not known.\n", style.red,
                             style.reset, duration(seconds));
  out += fmt::format(
      "\n{}The goals are {}met{} (want {:.0f} % of the kernels, {:.0f} % of the steps, no false alarm), in {}.\n",
      s.met() ? style.green : style.red, s.met() ? "" : "not ", style.reset, 100 * kKernelGoal, 100 * kStepGoal,
      duration(seconds));
  return out;
}

Json score_json(const Score& s) {
  return {{"runs", s.trials}, {"found", s.found}, {"named", s.named}, {"right_class", s.right_class}};
}

Json json_of(const std::vector<Trial>& trials, const Scores& s, double seconds) {
  constexpr const char* kParts[] = {"kernel", "variant", "step", "healthy"};
  Json out = {
      {"schema", "ampcheck.audit_train/1"}, {"goals_met", s.met()},         {"seconds", seconds},
      {"kernels", score_json(s.kernels)},   {"steps", score_json(s.steps)}, {"correct_kernels", score_json(s.variants)},
      {"healthy", score_json(s.healthy)},   {"runs", Json::array()}};
  for (const Trial& t : trials)
    out["runs"].push_back({{"part", kParts[static_cast<int>(t.part)]},
                           {"name", t.name},
                           {"net", t.net},
                           {"dtype", name(t.dtype)},
                           {"shows", t.shows},
                           {"found", t.found},
                           {"named", t.named},
                           {"right_class", t.right_class},
                           {"step", t.step},
                           {"what", t.what}});
  return out;
}

}  // namespace

ExitCode audit_train_command(const AuditOptions& options) {
  Options run;
  run.quick = options.set == checks::CaseSet::quick;
  run.patterns = options.words;
  run.jobs = options.jobs;
  ProgressLine progress;
  run.progress = [&](std::size_t done, std::size_t all, const std::string& last) { progress.show(done, all, 0, last); };
  const auto start = std::chrono::steady_clock::now();
  InterruptGuard guard([] { write_stderr("ampcheck: interrupted\n"); });
  run.cancel = guard.flag();
  const std::vector<Trial> trials = audit(run);
  guard.finish();
  progress.clear();
  if (guard.interrupted()) write_stderr(fmt::format("ampcheck: interrupted after {} runs\n", trials.size()));
  if (trials.empty()) {
    write_stderr("ampcheck: no kernel of the zoo has such a name and is an op of a net\n");
    return ExitCode::nothing_ran;
  }
  const Scores scores{score(trials, Part::kernel), score(trials, Part::variant), score(trials, Part::step),
                      score(trials, Part::healthy), guard.interrupted()};
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  write_stdout(options.json ? json_text(json_of(trials, scores, seconds))
                            : text_of(trials, scores, options.verbose, seconds));
  if (guard.interrupted()) end_by_signal();
  return scores.met() ? ExitCode::passed : ExitCode::findings;
}

}  // namespace ampcheck::tools
