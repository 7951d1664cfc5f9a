// SPDX-License-Identifier: Apache-2.0
#include "tools/commands/audit_zoo_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "tools/report/numbers.h"
#include "tools/report/output.h"

namespace ampcheck::tools {

namespace {

using namespace checks::zoo;

std::string share(const Score& score, std::int64_t of) {
  return score.trials == 0 ? "-" : fmt::format("{:.1f} %", 100 * score.share(of));
}

std::string score_line(const std::string& what, const Score& s) {
  return fmt::format("  {:<58}{:>6}{:>9}{:>9}{:>9}{:>9}{:>9}\n", what, s.trials, share(s, s.found),
                     share(s, s.right_class), share(s, s.exact_class), share(s, s.right_cause),
                     share(s, s.wrong_cause));
}

std::string class_table(const Scores& scores, const Style& style) {
  std::string out = fmt::format("  {}{:<58}{:>6}{:>9}{:>9}{:>9}{:>9}{:>9}{}\n", style.bold, "defect", "runs", "found",
                                "class", "exact", "cause", "wrong", style.reset);
  for (const DefectClass& known : defect_classes()) {
    const Score& s = scores.by_class[static_cast<std::size_t>(known.number)];
    if (s.trials > 0) out += score_line(fmt::format("{:>2} {}", known.number, known.what), s);
  }
  if (scores.all.trials > 0 || scores.fp64.trials == 0)
    out += score_line("all", scores.all) + score_line("of these written last, unseen", scores.unseen);
  if (scores.fp64.trials > 0) out += score_line("besides, kernels of fp64", scores.fp64);
  if (scores.all.by_reproduction + scores.fp64.by_reproduction > 0)
    out += fmt::format(
        "    of the causes {} ({} of the unseen) are right by reproduction: in other words than the kernel's author, "
        "and "
        "the change that they state gives the kernel's numbers at other data and extents\n",
        scores.all.by_reproduction + scores.fp64.by_reproduction, scores.unseen.by_reproduction);
  return out;
}

std::string alarm_text(std::int64_t alarms, std::int64_t cases) {
  return cases == 0 ? "-"
                    : fmt::format("{} of {} ({})", grouped(alarms), grouped(cases),
                                  percent(static_cast<double>(alarms) / static_cast<double>(cases)));
}

std::string gate_table(const Scores& scores, const Style& style) {
  std::string out = fmt::format("  {}{:<18}{:>9}{:>11}   {}{}\n", style.bold, "rule", "finds", "of unseen",
                                "rejects of the correct kernels' cases", style.reset);
  const auto line = [&](const char* name, const std::string& finds, const std::string& unseen,
                        const std::string& alarms) {
    out += fmt::format("  {:<18}{:>9}{:>11}   {}\n", name, finds, unseen, alarms);
  };
  line("ampcheck", share(scores.all, scores.all.found), share(scores.unseen, scores.unseen.found),
       alarm_text(scores.clean.alarms, scores.clean.cases));
  if (scores.fp64.trials + scores.clean_fp64.variants > 0)
    line("ampcheck in fp64", share(scores.fp64, scores.fp64.found), "-",
         alarm_text(scores.clean_fp64.alarms, scores.clean_fp64.cases));
  if (scores.all.alone_trials + scores.clean.alone_cases > 0)
    line("by formula alone", share(scores.all, scores.all.alone_found), share(scores.unseen, scores.unseen.alone_found),
         alarm_text(scores.clean.alone_alarms, scores.clean.alone_cases));
  if (scores.clean.form_cases > 0)
    out += fmt::format(
        "    besides, {} cases of {} kernels need the form that the op declares, by its bound; of these {} are "
        "rejected\n",
        grouped(scores.clean.form_cases), scores.clean.form_variants, grouped(scores.clean.form_alarms));
  const auto gates = usual_gates();
  for (std::size_t g = 0; g < gates.size(); ++g) {
    const auto of = [&](const Score& s) { return share(s, s.gates.empty() ? 0 : s.gates[g]); };
    line(gates[g].name, of(scores.all), of(scores.unseen),
         alarm_text(scores.clean.gate_alarms.empty() ? 0 : scores.clean.gate_alarms[g], scores.clean.gate_cases));
  }
  const auto of_fp32 = [](std::int64_t rejected, std::int64_t asked) {
    return asked == 0 ? "-"
                      : fmt::format("{:.1f} %", 100.0 * static_cast<double>(rejected) / static_cast<double>(asked));
  };
  const auto rules = gradcheck_rules();
  for (std::size_t r = 0; r < rules.size(); ++r) {
    const auto of = [&](const Score& s) { return of_fp32(s.gradcheck.empty() ? 0 : s.gradcheck[r], s.fp32); };
    const std::int64_t alarms = scores.clean.gradcheck_alarms.empty() ? 0 : scores.clean.gradcheck_alarms[r];
    line(rules[r].name, of(scores.all), of(scores.unseen),
         scores.clean.fp32 == 0 ? "-" : fmt::format("{} of {} kernels in fp32", alarms, scores.clean.fp32));
  }
  return out;
}

std::string trial_line(const Trial& t) {
  const Specimen& s = *t.specimen;
  const std::string due = s.correct() ? "correct" : fmt::format("{:>2} {}", s.defect_class, name(s.due));
  if (!t.found())
    return fmt::format("{:<36} {:<5} {:<22} {}\n", s.name(), name(t.dtype), due,
                       s.correct() ? "not convicted" : "NOT FOUND: visible with " + s.regime);
  const char* mark = t.right_class && t.right_cause ? ""
                     : t.wrong_cause                ? " WRONG CAUSE"
                     : t.right_class                ? " cause?"
                     : t.right_cause                ? " class?"
                                                    : " class? cause?";
  return fmt::format("{:<36} {:<5} {:<22} {} {}{}  {}\n  {:<42} {}\n", s.name(), name(t.dtype), due, name(t.verdict),
                     name(t.code), mark, t.cause, "", t.case_name);
}

/// What needs a person's eye: defects that were missed, correct kernels that were convicted.
std::string failures(const std::vector<Trial>& trials, const Style& style) {
  std::string out;
  for (const Trial& t : trials) {
    if (t.specimen->correct() && t.alone_convicted > t.needs_form_convicted)
      out += fmt::format("  {}{} {}{}: {}; convicted by the formula alone though as good: '{}'\n", style.red,
                         t.specimen->name(), name(t.dtype), style.reset, t.specimen->what, t.alone_case);
    if (t.specimen->correct() == !t.found()) continue;
    const std::string what = t.specimen->correct()
                                 ? fmt::format("convicted though correct: {} '{}'", name(t.code), t.case_name)
                                 : "not found; visible with " + t.specimen->regime;
    out += fmt::format("  {}{} {}{}: {}; {}\n", style.red, t.specimen->name(), name(t.dtype), style.reset,
                       t.specimen->what, what);
  }
  return out;
}

std::string equivalents() {
  std::string out;
  for (const Specimen& s : specimens())
    if (!s.equivalent.empty()) out += fmt::format("  {}: {}; right all the same: {}\n", s.name(), s.what, s.equivalent);
  return out.empty() ? out : "\nEquivalent, not counted:\n" + out;
}

/// Kernels that deceive a test, and their honest twins.
std::string cheat_lines(const std::vector<CheatTrial>& cheats) {
  std::int64_t runs = 0, found = 0, named = 0, honest = 0, flagged = 0;
  std::string wrong;
  for (const CheatTrial& t : cheats) {
    (t.honest() ? honest : runs) += 1;
    found += !t.honest() && t.found();
    named += !t.honest() && t.right();
    flagged += t.honest() && t.found();
    if (!t.right())
      wrong += fmt::format("  {} {}: {}; {} {} in {} of {} cases '{}'\n", t.cheat->planted.op.signature.name,
                           name(t.dtype), t.cheat->planted.what, t.found() ? name(t.code) : "not found", t.cause,
                           t.convicted, t.cases, t.case_name);
  }
  if (cheats.empty()) return "";
  return fmt::format(
      "\nKernels that deceive a test: {} of {} runs found, {} named; of their honest twins {} of {} "
      "convicted\n{}",
      found, runs, named, flagged, honest, wrong);
}

Json found_json(const Score& s) {
  return {{"runs", s.trials},
          {"found", s.found},
          {"right_class", s.right_class},
          {"exact_class", s.exact_class},
          {"right_cause", s.right_cause},
          {"by_reproduction", s.by_reproduction},
          {"wrong_cause", s.wrong_cause}};
}

Json score_json(const Score& s) {
  Json out = found_json(s);
  out["formula_alone_found"] = s.alone_found;
  for (std::size_t g = 0; g < s.gates.size(); ++g) out["rules"][usual_gates()[g].name] = s.gates[g];
  out["fp32_runs"] = s.fp32;
  for (std::size_t r = 0; r < s.gradcheck.size(); ++r) out["gradcheck"][gradcheck_rules()[r].name] = s.gradcheck[r];
  return out;
}

Json clean_json(const Clean& c) {
  Json out = {{"runs", c.variants},
              {"cases", c.cases},
              {"alarms", c.alarms},
              {"rule_cases", c.gate_cases},
              {"formula_alone_cases", c.alone_cases},
              {"formula_alone_alarms", c.alone_alarms},
              {"needs_form_runs", c.form_variants},
              {"needs_form_cases", c.form_cases},
              {"needs_form_alarms", c.form_alarms}};
  for (std::size_t g = 0; g < c.gate_alarms.size(); ++g) out["rule_alarms"][usual_gates()[g].name] = c.gate_alarms[g];
  out["fp32_runs"] = c.fp32;
  for (std::size_t r = 0; r < c.gradcheck_alarms.size(); ++r)
    out["gradcheck_alarms"][gradcheck_rules()[r].name] = c.gradcheck_alarms[r];
  return out;
}

Json json_of(const CheatTrial& t) {
  return {{"name", t.cheat->planted.op.signature.name},
          {"dtype", name(t.dtype)},
          {"what", t.cheat->planted.what},
          {"due", name(t.cheat->planted.code)},
          {"cause_words", t.cheat->words},
          {"cases", t.cases},
          {"convicted", t.convicted},
          {"named", t.named},
          {"right", t.right()},
          {"code", name(t.code)},
          {"cause", t.cause},
          {"case", t.case_name}};
}

bool all_well(const std::vector<CheatTrial>& cheats) {
  return std::ranges::all_of(cheats, [](const CheatTrial& t) { return t.right(); });
}

bool all_well(const Scores& scores) {
  return scores.clean.alarms + scores.clean_fp64.alarms + scores.clean.alone_alarms == 0 &&
         (scores.fp64.trials == 0 || goals_met(scores.fp64)) && (scores.all.trials == 0 || goals_met(scores.all)) &&
         (scores.unseen.trials == 0 || goals_met(scores.unseen, kUnseenCauseGoal));
}

}  // namespace

bool all_well(const ZooAudit& audit) { return all_well(score(audit.trials)) && all_well(audit.cheats); }

std::string text_of(const ZooAudit& audit, bool verbose) {
  const std::vector<Trial>& trials = audit.trials;
  const Scores scores = score(trials);
  const Style style = stdout_style();
  const bool well = all_well(audit);
  std::set<std::string> defects, variants, ops;
  for (const Trial& t : trials) {
    (t.specimen->correct() ? variants : defects).insert(t.specimen->name());
    ops.insert(t.specimen->name().substr(0, t.specimen->name().find('.')));
  }
  std::string out =
      fmt::format("{}{} defects and {} correct kernels of {} ops{}; a run is one of them in one storage type\n\n",
                  style.bold, defects.size(), variants.size(), ops.size(), style.reset);
  if (verbose) {
    for (const Trial& t : trials) out += trial_line(t);
    out += "\n";
  }
  out += class_table(scores, style) + "\n" + gate_table(scores, style);
  out += cheat_lines(audit.cheats);
  const std::string failed = failures(trials, style);
  if (!failed.empty()) out += "\nWrong:\n" + failed;
  out += equivalents();
  const std::string goals = fmt::format(
      "want {:.0f} % found, {:.0f} % of exact class, {:.0f} % of right cause ({:.0f} % of the unseen), at most "
      "{:.0f} % of findings with a wrong cause, every kernel that deceives found and named, and no correct kernel "
      "convicted",
      100 * kFoundGoal, 100 * kExactGoal, 100 * kCauseGoal, 100 * kUnseenCauseGoal, 100 * kWrongCauseGoal);
  out += fmt::format("\n{}{}{} ({}), in {}.\n", well ? style.green : style.red,
                     well ? "The goals are met" : "The goals are not met", style.reset, goals, duration(audit.seconds));
  return out;
}

Json json_of(const ZooAudit& audit) {
  const Scores scores = score(audit.trials);
  Json out = {{"schema", "ampcheck.audit_zoo/1"},
              {"goals_met", all_well(audit)},
              {"seconds", audit.seconds},
              {"all", score_json(scores.all)},
              {"unseen", score_json(scores.unseen)},
              {"correct", clean_json(scores.clean)},
              {"correct_unseen", clean_json(scores.clean_unseen)},
              {"fp64", found_json(scores.fp64)},
              {"correct_fp64",
               {{"runs", scores.clean_fp64.variants},
                {"cases", scores.clean_fp64.cases},
                {"alarms", scores.clean_fp64.alarms}}},
              {"rules", Json::array()},
              {"classes", Json::array()},
              {"runs", Json::array()},
              {"deceiving", Json::array()}};
  for (const CheatTrial& t : audit.cheats) out["deceiving"].push_back(json_of(t));
  for (const Gate& rule : gradcheck_rules()) out["gradcheck"].push_back({{"name", rule.name}, {"rule", rule.rule}});
  for (const Gate& gate : usual_gates()) out["rules"].push_back({{"name", gate.name}, {"rule", gate.rule}});
  for (const DefectClass& known : defect_classes()) {
    Json entry = {{"class", known.number}, {"what", known.what}, {"reports", known.reports}};
    entry.update(score_json(scores.by_class[static_cast<std::size_t>(known.number)]));
    out["classes"].push_back(std::move(entry));
  }
  for (const Trial& t : audit.trials) {
    const Specimen& s = *t.specimen;
    out["runs"].push_back({{"name", s.name()},
                           {"dtype", name(t.dtype)},
                           {"class", s.defect_class},
                           {"what", s.what},
                           {"regime", s.regime},
                           {"unseen", s.unseen},
                           {"due", name(s.due)},
                           {"also", name(s.also)},
                           {"cause_words", s.cause},
                           {"found", t.found()},
                           {"verdict", name(t.verdict)},
                           {"code", name(t.code)},
                           {"cause", t.cause},
                           {"right_class", t.right_class},
                           {"exact_class", t.exact_class},
                           {"right_cause", t.right_cause},
                           {"reproduced", t.reproduced},
                           {"wrong_cause", t.wrong_cause},
                           {"case", t.case_name},
                           {"cases", t.cases},
                           {"convicted", t.convicted},
                           {"formula_alone_convicted", t.alone_convicted},
                           {"formula_alone_case", t.alone_case},
                           {"form", s.form},
                           {"needs_form", t.needs_form},
                           {"needs_form_convicted", t.needs_form_convicted},
                           {"seconds", t.seconds}});
  }
  return out;
}

}  // namespace ampcheck::tools
