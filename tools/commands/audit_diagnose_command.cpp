// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
// `ampcheck audit diagnose`: how often diagnoses are right, measured on planted runs and on healthy ones.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "checks/diagnose/score.h"
#include "src/freed_memory.h"
#include "src/parallel.h"
#include "tools/commands/commands.h"
#include "tools/report/json.h"
#include "tools/report/numbers.h"
#include "tools/report/output.h"
#include "tools/report/progress.h"

namespace ampcheck::tools {

namespace {

using namespace checks::diagnose;

/// Words are names of runs, causes ("D5", "gradient_underflow") or parts of names.
bool wanted(const PlantedRun& run, const std::vector<std::string>& words) {
  const CauseInfo& known = info(run.cause);
  return words.empty() || std::any_of(words.begin(), words.end(), [&](const std::string& word) {
           return run.name == word || known.number == word || known.name == word ||
                  (word.ends_with("*") && run.name.starts_with(word.substr(0, word.size() - 1)));
         });
}

std::string share(int part, int all) {
  return all == 0 ? "-" : fmt::format("{} of {} ({:.0f} %)", part, all, 100.0 * part / all);
}

std::string named_text(const Trial& t) {
  if (!t.error.empty()) return "failed: " + t.error;
  if (t.healthy) return "well";
  if (t.named.empty()) return "inconclusive";
  return fmt::format("{} {}", info(t.named.front()).number, info(t.named.front()).name);
}

bool right(const Trial& t) {
  if (t.run->control()) return !t.false_alarm();
  return t.top(1) && (t.run->ops.empty() || t.op_right(t.op));
}

std::string trial_line(const Trial& t, const Style& style) {
  const CauseInfo& due = info(t.run->cause);
  return fmt::format("  {}{:<24} {:<4} {:<34} {:<14} {}{:.1f} s{}\n", right(t) ? "" : style.red, t.run->name,
                     due.number, named_text(t), t.op, t.set_size >= 0 ? fmt::format("set of {}, ", t.set_size) : "",
                     t.seconds, right(t) ? "" : std::string(style.reset) + "  WRONG");
}

/// Those that the rules were written with, or the others.
std::vector<Trial> part(const std::vector<Trial>& trials, bool unseen) {
  std::vector<Trial> out;
  for (const Trial& t : trials)
    if (t.run->unseen == unseen) out.push_back(t);
  return out;
}

std::string totals_text(const Score& s) {
  std::string out =
      fmt::format("  cause named first      {}\n  among the first three  {}\n  op exact               {}\n",
                  share(s.top1, s.planted), share(s.top3, s.planted), share(s.op_exact, s.with_op));
  out += fmt::format("  false alarms           {} of {} controls and healthy runs\n", s.false_alarms, s.controls);
  out += fmt::format("  smallest set           {} within one op of the optimum\n", share(s.set_near, s.with_optimum));
  out += fmt::format("  advice that was tried  {} cured\n", share(s.cured, s.advised));
  out += fmt::format(
      "  median                 {:.1f} s a diagnosis; first sign {:.1f} steps before the fault in the mean\n",
      s.median_seconds, s.mean_lead);
  return out;
}

std::string text_of(const std::vector<Trial>& trials, const Score& s, bool all, const Style& style, double seconds) {
  std::string out;
  for (const Trial& t : trials)
    if (all || !right(t)) out += trial_line(t, style);
  const std::vector<Trial> unseen = part(trials, true), seen = part(trials, false);
  out += "\n";
  if (unseen.empty() || seen.empty()) {
    out += totals_text(s);
  } else {
    out += "Runs that the rules were written with:\n" + totals_text(score(seen));
    out += "Other nets, losses, optimizers, rates and seeds:\n" + totals_text(score(unseen));
  }
  out += fmt::format("\n  {}{:<12}{:>8}{:>10}{:>14}{:>14}{}\n", style.bold, "others", "fires", "op exact",
                     "false alarms", "set near", style.reset);
  for (int b = 0; b < kBaselines; ++b)
    out += fmt::format("  {:<12}{:>8}{:>10}{:>14}{:>14}   {}\n", name(static_cast<Baseline>(b)), s.others[b].fires,
                       s.others[b].op_exact, s.others[b].false_alarms, s.others[b].set_near,
                       what(static_cast<Baseline>(b)));
  return out + fmt::format(
                   "\n{}The goals are {}met{} ({:.0f} % first, {:.0f} % of three, {:.0f} % of ops, no false alarm, "
                   "sets within one op, {:.0f} % of advice, {:.0f} s), in {}.\n",
                   goals_met(s) ? style.green : style.red, goals_met(s) ? "" : "not ", style.reset, 100 * kTop1,
                   100 * kTop3, 100 * kOpExact, 100 * kCured, kMedianSeconds, duration(seconds));
}

Json trial_json(const Trial& t) {
  Json named = Json::array();
  for (const Cause cause : t.named) named.push_back(info(cause).name);
  return {{"name", t.run->name},
          {"what", t.run->what},
          {"unseen", t.run->unseen},
          {"cause", info(t.run->cause).name},
          {"control", t.run->control()},
          {"named", named},
          {"op", t.op},
          {"ops", t.run->ops},
          {"right", right(t)},
          {"healthy", t.healthy},
          {"inconclusive", t.inconclusive},
          {"set_size", t.set_size},
          {"optimum", t.run->optimum},
          {"advised", t.advised},
          {"cured", t.cured},
          {"seconds", t.seconds},
          {"error", t.error}};
}

/// Counts of a part of the runs.
Json score_json(const Score& s) {
  return {{"planted", s.planted},
          {"top1", s.top1},
          {"top3", s.top3},
          {"with_op", s.with_op},
          {"op_exact", s.op_exact},
          {"controls", s.controls},
          {"false_alarms", s.false_alarms},
          {"with_optimum", s.with_optimum},
          {"set_near", s.set_near},
          {"advised", s.advised},
          {"cured", s.cured}};
}

Json json_of(const std::vector<Trial>& trials, const Score& s, double seconds) {
  Json out = {{"schema", "ampcheck.audit_diagnose/1"},
              {"goals_met", goals_met(s)},
              {"seconds", seconds},
              {"median_seconds", s.median_seconds},
              {"mean_lead", s.mean_lead},
              {"unseen", score_json(score(part(trials, true)))},
              {"baselines", Json::array()},
              {"runs", Json::array()}};
  out.update(score_json(s));
  for (int b = 0; b < kBaselines; ++b)
    out["baselines"].push_back({{"name", name(static_cast<Baseline>(b))},
                                {"what", what(static_cast<Baseline>(b))},
                                {"fires", s.others[b].fires},
                                {"op_exact", s.others[b].op_exact},
                                {"false_alarms", s.others[b].false_alarms},
                                {"set_near", s.others[b].set_near}});
  for (const Trial& t : trials) out["runs"].push_back(trial_json(t));
  return out;
}

}  // namespace

ExitCode audit_diagnose_command(const AuditOptions& options) {
  keep_freed_memory();
  set_threads(options.jobs);
  const std::vector<std::string>& words = options.words;
  std::vector<const PlantedRun*> chosen;
  for (const PlantedRun& run : planted_runs())
    if (wanted(run, words)) chosen.push_back(&run);
  if (chosen.empty()) throw UsageError("[audit diagnose] got '" + words.front() + "', want a planted run or a cause");
  const auto start = std::chrono::steady_clock::now();
  std::vector<Trial> trials;
  ProgressLine progress;
  for (std::size_t i = 0; i < chosen.size(); ++i) {
    trials.push_back(try_run(*chosen[i], true));
    if (progress.on()) progress.show(i + 1, chosen.size(), 0, chosen[i]->name);
  }
  progress.clear();
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  const Score s = score(trials);
  write_stdout(options.json ? json_text(json_of(trials, s, seconds))
                            : text_of(trials, s, options.verbose, stdout_style(), seconds));
  return goals_met(s) ? ExitCode::passed : ExitCode::findings;
}

}  // namespace ampcheck::tools
