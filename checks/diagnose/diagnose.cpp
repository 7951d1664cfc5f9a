// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include "checks/diagnose/diagnose.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>

#include "checks/diagnose/scene.h"
#include "checks/diagnose/smallest_set.h"
#include "checks/train/fault_ring.h"
#include "src/error.h"

namespace ampcheck::checks::diagnose {

using namespace train;

namespace {

Symptoms symptoms_of(const Observation& seen) {
  Symptoms out;
  int run = 0;
  for (const StepResult& s : seen.steps) {
    if (out.lost < 0 && !std::isfinite(s.loss)) out.lost = s.step;
    if (out.left < 0 && s.left()) out.left = s.step;
    run = s.stepped ? 0 : run + 1;
    if (out.storm < 0 && run == kStorm) out.storm = s.step - kStorm + 1;
  }
  return out;
}

/// Whether a course is well where the run was not: every loss finite up to the step at which the run was lost, or as
/// near to the fp64 run as its spread allows.
bool well(const Observation& seen, const Symptoms& symptoms, const Course& course) {
  if (!course.refused.empty() || course.steps.empty()) return false;
  if (symptoms.lost >= 0) return course.first_lost() < 0;
  if (symptoms.left < 0) return true;
  double apart = 0, allowed = 0;
  int n = 0;
  for (const StepResult& s : course.steps) {
    if (!std::isfinite(s.loss)) return false;
    const StepResult& before = seen.steps[static_cast<std::size_t>(s.step)];
    if (s.step + 10 < static_cast<int>(seen.steps.size()) || !before.fp64_loss || !before.allowed()) continue;
    apart += s.loss - *before.fp64_loss;
    allowed = std::max(allowed, *before.allowed());
    ++n;
  }
  return n == 0 || std::fabs(apart / n) <= allowed;
}

/// From where an experiment has to begin to show a symptom's cure.
int begin_of(const Finding& f, const Symptoms& symptoms) {
  int from = symptoms.first();
  if (f.precursor >= 0) from = std::min(from, f.precursor);
  return from;
}

std::string joined(const Ops& ops) {
  std::string out;
  for (const std::string& op : ops) out += (out.empty() ? "" : ", ") + op;
  return out;
}

/// Cost of a set: each tensor that its ops read or write in 16 bits is two bytes wider.
std::int64_t bytes_of(const Observation& seen, const Ops& ops) {
  std::int64_t out = 0;
  for (const auto& [name, track] : seen.tracks)
    if (track.key.phase == Phase::forward && ops.contains(track.key.op) && bytes(track.key.dtype) == 2 &&
        !track.samples.empty())
      out += 2 * track.samples.front().elements;
  return out;
}

bool precision_may_help(Cause cause) {
  switch (cause) {
    case Cause::forward_overflow:
    case Cause::cancellation:
    case Cause::inner_overflow:
    case Cause::low_accumulator:
    case Cause::count_overflow:
    case Cause::mask_sentinel:
    case Cause::biased_rounding:
    case Cause::position_precision:
    case Cause::decision_flips:
    case Cause::loss_cancellation:
    case Cause::moved_boundary:
    case Cause::scale_placement:
    case Cause::none: return true;
    default: return false;
  }
}

/// Two runs of the same steps: what the set costs in time.
void time_set(Lab& lab, int from, int to, SmallestSet& out) {
  const auto per_step = [](const Course& c) {
    return c.steps.empty() ? 0 : c.seconds / static_cast<double>(c.steps.size());
  };
  out.step_before = per_step(lab.run({}, from, to));
  out.step_after = per_step(lab.run({.raised = out.ops}, from, to));
}

/// E3, for what shows in the losses; an op that is wrong by itself is its own smallest set.
void find_smallest(Scene& scene, const Finding& f, Report& report) {
  if (!precision_may_help(f.cause) || scene.dtype() == Dtype::fp32 || !f.cure.rounded.empty()) return;
  const int from = begin_of(f, scene.symptoms);
  const int to = scene.symptoms.lost >= 0 ? scene.symptoms.lost : scene.last();
  const bool local = scene.symptoms.lost < 0 && scene.symptoms.left < 0;
  const auto excess_of = [&](const Course& course) {
    const auto at = course.excess.find(f.op);
    return course.refused.empty() && at != course.excess.end() ? at->second : HUGE_VAL;
  };
  // A little less than too much is no cure: other inputs alone do that.
  constexpr double kLess = 0.75;
  const double most = local ? std::min(kExcess, kLess * excess_of(scene.lab.run({}, from, to, true))) : 0;
  const auto works = [&](const Ops& ops) {
    const Course& course = scene.lab.run({.raised = ops}, from, to, local);
    if (local) return excess_of(course) <= most;
    return well(scene.seen, scene.symptoms, course);
  };
  std::vector<std::string> likely;
  if (!f.op.empty()) likely.push_back(f.op);
  const Search search = f.sets_tried > 0 ? Search{.known = true, .ops = f.cure.raised, .tried = f.sets_tried}
                                         : smallest_set(scene.seen.ops(), likely, works);
  report.smallest = {.known = search.known, .ops = search.ops, .runs = search.tried};
  scene.lab.note(
      "E3", "smallest set of ops in fp32",
      search.known ? fmt::format("{} op{} of {}, {} set{} tried", search.ops.size(), search.ops.size() == 1 ? "" : "s",
                                 scene.seen.ops().size(), search.tried, search.tried == 1 ? "" : "s")
                   : "not even all ops in fp32 cure it");
  if (!search.known) return;
  report.smallest.more_bytes = bytes_of(scene.seen, search.ops);
  time_set(scene.lab, from, to, report.smallest);
}

void ask_all(Scene& scene) {
  constexpr void (*kRules[])(Scene&) = {ask_fp8,     ask_repeat,   ask_twice,   ask_boundary,  ask_forward,
                                        ask_killers, ask_scaler,   ask_unscale, ask_optimizer, ask_underflow,
                                        ask_ranks,   ask_accuracy, ask_model};
  for (const auto rule : kRules) rule(scene);
}

/// The run once more with the change, asked all questions again: nothing shows in the losses, and that cause is gone.
bool cures(const Subject& subject, const Finding& f) {
  const Subject changed = with_change(subject, f.cure);
  const Observation seen = observe(changed);
  Lab lab(changed, seen);
  Scene scene{lab, seen, changed, symptoms_of(seen), {}, {}};
  ask_all(scene);
  const Symptoms& left = scene.symptoms;
  return left.lost < 0 && left.left < 0 && left.storm < 0 && !scene.has(f.cause);
}

std::string cured_text(const Scene& scene, const Finding& f) {
  const Change& c = f.cure;
  if (!c.rounded.empty())
    return "tried: with " + joined(c.rounded) + " rounded to " + ampcheck::name(scene.dtype()) + " the run is well";
  if (!c.repaired.empty()) return "tried: the run is well with a right kernel there";
  if (!c.current_fp8.empty()) return "tried: with current scaling of " + joined(c.current_fp8) + " the run is well";
  if (c.fp8_by_recipe) return "tried: the run is well with scales and formats as the recipe says";
  if (c.fp8_current) return "tried: the run is well with current scaling";
  if (c.right_loop) return "tried: the run is well with a step as torch does it";
  return "tried: the run is well with it";
}

/// Tries the first finding's line where an experiment can do what it says.
void try_cure(Scene& scene, Report& report) {
  Finding& f = report.findings.front();
  if (report.smallest.known) {
    f.cure = {.raised = report.smallest.ops};
    if (precision_may_help(f.cause) && f.cause != Cause::mask_sentinel) f.paste = paste_fp32(scene.seen, f.cure.raised);
    report.cure_tried = "tried: with these ops in fp32 the run is well";
    report.tried_cure = report.cured = true;
    return;
  }
  if (f.paste.empty()) return;
  // Where fp32 was tried and does not help, it is not what is advised.
  if (report.smallest.runs > 0 && !f.cure.repaired.empty() && f.paste == paste_fp32(scene.seen, {f.op}))
    f.paste = fmt::format("a right kernel for {}: with this one fp32 does not help", f.op);
  if (!f.can_be_tried) {
    report.cure_tried =
        "not tried: " + (f.not_tried.empty() ? "it changes the program, which ampcheck does not have" : f.not_tried);
    return;
  }
  try {
    report.cured = cures(scene.subject, f);
    if (!report.cured && f.otherwise) {
      f.cure = *f.otherwise;
      report.cured = cures(scene.subject, f);
    }
    report.tried_cure = true;
    report.cure_tried = report.cured ? cured_text(scene, f) : "tried: the run is not well with it alone";
  } catch (const EnvironmentError&) {
    throw;
  } catch (const Error& error) {
    report.cure_tried = std::string("could not be tried: ") + error.what();
  }
}

/// So many steps were skipped while the scale came down that the loss is behind: a lower first scale is all it takes.
bool behind(Scene& scene, Report& report) {
  const auto note = std::find_if(report.notes.begin(), report.notes.end(),
                                 [](const Finding& f) { return f.cause == Cause::scale_probing; });
  if (note == report.notes.end() || scene.symptoms.lost >= 0) return false;
  double lowest = scene.step(0).scale;
  for (const StepResult& s : scene.seen.steps) lowest = std::min(lowest, s.scale_after);
  Finding f = *note;
  f.cure.init_scale = lowest;
  f.can_be_tried = true;
  f.step = scene.symptoms.first();
  f.paste = fmt::format("GradScaler(init_scale={:g})   # --init-scale {:g}", lowest, lowest);
  const Course& course = scene.lab.whole(f.cure);
  scene.lab.note("E1", fmt::format("the whole run with the first scale {:g}", lowest),
                 well(scene.seen, scene.symptoms, course) ? "well" : "not well either");
  if (!well(scene.seen, scene.symptoms, course)) return false;
  f.speaks_for.push_back(fmt::format("E1: with the first scale {:g} the loss stays with the fp64 run's", lowest));
  report.notes.erase(note);
  report.findings.push_back(std::move(f));
  try_cure(scene, report);
  return true;
}

/// Something is wrong and no rule knows what: are 16 bits to blame at all?
void ask_rest(Scene& scene, Report& report) {
  if (!scene.symptoms.any() || behind(scene, report)) return;
  const Course& wide = scene.lab.whole({.everything_fp32 = true});
  const bool helps = well(scene.seen, scene.symptoms, wide);
  scene.lab.note("E7", "the whole run in fp32", helps ? "well" : "not well either");
  report.inconclusive = true;
  Finding rest;
  if (helps) find_smallest(scene, rest, report);
}

/// An optimizer that moves the weights away overflows whatever reads them: it stands before the overflow if it came
/// first and its change alone makes the run well.
void put_optimizer_first(Scene& scene) {
  std::vector<Finding>& all = scene.findings;
  if (all.empty() || all.front().cause != Cause::forward_overflow) return;
  const auto found = std::find_if(all.begin(), all.end(), [&](const Finding& f) {
    return f.cause == Cause::optimizer_underflow && f.weight == all.front().weight && f.step < all.front().step &&
           f.can_be_tried;
  });
  if (found == all.end() || !well(scene.seen, scene.symptoms, scene.lab.whole(found->cure))) return;
  std::rotate(all.begin(), found, found + 1);
}

}  // namespace

Report diagnose_run(const Subject& subject) { return diagnose_run(subject, observe(subject)); }

Report diagnose_run(const Subject& subject, const Observation& seen) {
  const auto start = std::chrono::steady_clock::now();
  Report report;
  Lab lab(subject, seen);
  Scene scene{lab, seen, subject, symptoms_of(seen), {}, {}};
  ask_all(scene);
  std::stable_sort(scene.findings.begin(), scene.findings.end(),
                   [](const Finding& a, const Finding& b) { return a.weight > b.weight; });
  put_optimizer_first(scene);
  report.findings = scene.findings;
  report.notes = scene.notes;
  if (report.findings.empty()) {
    ask_rest(scene, report);
  } else {
    find_smallest(scene, report.findings.front(), report);
    try_cure(scene, report);
  }
  report.symptoms = scene.symptoms;
  report.tried = lab.tried();
  report.runs = lab.runs();
  report.seconds = seen.seconds + std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return report;
}

}  // namespace ampcheck::checks::diagnose
