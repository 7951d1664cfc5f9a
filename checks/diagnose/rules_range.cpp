// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
// Is the run repeatable, and where do values that are not finite come from?
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "checks/diagnose/equality.h"
#include "checks/diagnose/probe.h"
#include "checks/diagnose/scene.h"
#include "checks/models/bound_call.h"

namespace ampcheck::checks::diagnose {

using namespace train;

namespace {

bool same(double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); }

/// The first step at which a course has another loss; -1: none.
int first_difference(const Observation& seen, const Course& course) {
  for (const StepResult& step : course.steps)
    if (step.step < static_cast<int>(seen.steps.size()) &&
        !same(step.loss, seen.steps[static_cast<std::size_t>(step.step)].loss))
      return step.step;
  return -1;
}

/// The same, or another decision whether to step.
int other_outcome(const Observation& seen, const Course& course) {
  for (const StepResult& step : course.steps) {
    if (step.step >= static_cast<int>(seen.steps.size())) break;
    const StepResult& known = seen.steps[static_cast<std::size_t>(step.step)];
    if (!same(step.loss, known.loss) || step.found_inf != known.found_inf) return step.step;
  }
  return -1;
}

bool differs(const Sample& a, const Sample& b) {
  return a.fingerprint != b.fingerprint || a.zeros != b.zeros || a.not_finite != b.not_finite ||
         !same(a.largest, b.largest) || a.error_sum != b.error_sum || a.error != b.error;
}

/// The first tensor that two runs do not have in common.
Place first_other(const Observation& a, const Observation& b) {
  Place out;
  for (const auto& [name, track] : a.tracks) {
    const auto other = b.tracks.find(name);
    for (std::size_t i = 0; i < track.samples.size(); ++i) {
      if (other != b.tracks.end() && i < other->second.samples.size() &&
          !differs(track.samples[i], other->second.samples[i]))
        continue;
      if (!out || track.samples[i].sequence < out.sample->sequence) out = {&track, &track.samples[i]};
      break;
    }
  }
  return out;
}

std::string number(double value) { return fmt::format("{:.3g}", value); }

/// Gradients that backward left finite, and unscaling did not: those of an earlier step were added.
bool stale_gradients(Scene& scene, int step) {
  const StepResult& seen = scene.step(step);
  const Place made = first_place(scene.seen, [&](const Track& t, const Sample& s) {
    return s.step == scene.last() && !s.finite && (t.key.phase == Phase::forward || is_gradient(t.key.phase));
  });
  if (made || seen.stepped || !scene.step(scene.last()).found_inf) return false;
  Finding f{.cause = Cause::scaler_collapse, .weight = Weight::decided, .precursor = step, .step = step};
  f.speaks_for.push_back(fmt::format(
      "at {} every gradient is finite as backward leaves it, and not as the scaler finds it", step_text(scene.last())));
  f.speaks_for.push_back("E0: from a checkpoint the same step is clean: gradients of an earlier step were still there");
  f.paste = "optimizer.zero_grad(set_to_none=True) before each backward, after a skipped step too";
  try_right_loop(scene, f);
  scene.add(std::move(f));
  return true;
}

}  // namespace

/// E0: the same run again, from its start and from its checkpoints.
void ask_repeat(Scene& scene) {
  const Course& again = scene.lab.whole({});
  if (const int step = first_difference(scene.seen, again); step >= 0 && again.refused.empty()) {
    scene.lab.note("E0", "the same run again", "another loss at " + step_text(step));
    const Observation second = observe(scene.subject);
    const Place place = first_other(scene.seen, second);
    Finding f{.cause = Cause::not_repeatable, .weight = Weight::decided, .precursor = step, .step = step};
    if (place) {
      f.op = place.track->key.op;
      f.tensor = place.track->key.str();
      f.precursor = place.sample->step;
    }
    f.speaks_for.push_back("E0: the same run from the same seed has another loss at " + step_text(step));
    f.not_tried = "it needs the machine that the run was made on";
    f.paste = "run it with CUDA_LAUNCH_BLOCKING=1, then on another device; compute-sanitizer --tool racecheck";
    return scene.add(std::move(f));
  }
  scene.lab.note("E0", "the same run again", "the same loss to the bit at every step");
  if (scene.symptoms.first() < 0 || scene.seen.ring.size() < 2) return;
  int from = -1, step = -1;
  for (const int begin : {scene.symptoms.first(), scene.last()}) {  // at the first bad step, and long after it
    const Course& resumed = scene.lab.run({}, begin, scene.last());
    if (step >= 0 || !resumed.refused.empty()) continue;
    step = other_outcome(scene.seen, resumed);
    from = begin;
  }
  if (step < 0) return;
  scene.lab.note("E0", "from the checkpoint before " + step_text(from), "another outcome at " + step_text(step));
  scene.lab.hides_state();
  if (stale_gradients(scene, from)) return;
  const Place place = first_place(scene.seen, [&](const Track& t, const Sample& s) {
    return s.step >= step - 1 && s.role == FaultRole::producer && t.key.phase == Phase::forward;
  });
  Finding f{.cause = Cause::poisoned_state, .weight = Weight::decided, .precursor = step, .step = from};
  if (place) {
    f.op = place.track->key.op;
    f.tensor = place.track->key.str();
    f.precursor = place.sample->step;
  }
  f.speaks_for.push_back("E0: from a checkpoint, which holds weights, moments and scale alone, " + step_text(step) +
                         " comes out otherwise: something else outlives the step");
  int skipped = 0;
  for (const StepResult& s : scene.seen.steps) skipped += !s.stepped && s.step <= step;
  if (skipped > 0)
    f.speaks_for.push_back(fmt::format("{} skipped before", skipped == 1 ? "one step was" : "steps were"));
  f.paste = "put running statistics back where a step is skipped: save them before, restore them if found_inf";
  scene.add(std::move(f));
}

namespace {

/// How many steps in a row before `step` the tensor was within two binades of the format's end.
int first_near_end(const Track& track, int step) {
  int first = step;
  for (auto s = track.samples.rbegin(); s != track.samples.rend(); ++s) {
    if (s->step >= step) continue;
    if (!s->headroom || *s->headroom > 2) break;
    first = s->step;
  }
  return first;
}

/// A mask's number that the type does not have.
bool is_sentinel(const Place& p) { return p.sample->one_value && p.sample->exact_largest >= 1e4; }

/// What makes NaN of the infinite numbers of a mask: the first op after it in that step.
Place after_sentinel(const Scene& scene, const Place& mask) {
  return first_place(scene.seen, [&](const Track& t, const Sample& s) {
    return s.step == mask.sample->step && s.sequence > mask.sample->sequence && t.key.phase == Phase::forward &&
           !s.finite && t.key.op != mask.track->key.op;
  });
}

void add_inner(Scene& scene, const Place& p, Finding f) {
  const std::optional<MetCall> met = met_call(scene.lab, f.op, p.sample->step);
  const double most = format(p.track->key.dtype).max_finite();
  f.speaks_for.push_back(fmt::format("finite inputs; the exact result is at most {}, {} holds {}",
                                     number(p.sample->exact_largest), ampcheck::name(p.track->key.dtype),
                                     number(most)));
  if (!met) return scene.add(std::move(f));
  const Answer small = answer_to(scaled(*met, 1.0 / 16)), shifted = answer_to(centred(*met)),
               wide = answer_to(*met, Dtype::fp32), few = answer_to(fewer_terms(*met, 0.25));
  const auto say = [&](const char* what, const Answer& a) {
    scene.lab.note("E9", f.op + " " + what, !a.ran ? "not run" : a.finite ? "finite" : "not finite");
  };
  say("with its input divided by 16", small);
  say("with the mean of each row taken off", shifted);
  std::size_t data = 0;
  for (const MetCall::Input& input : met->inputs) data += !input.trained;
  if (small.ran && small.finite) {
    f.cause = data > 1 ? Cause::scale_placement : Cause::inner_overflow;
    f.weight = Weight::decided;
    f.speaks_for.push_back("E9: with its input divided by 16 the op's result is finite");
    if (shifted.ran && shifted.finite && data == 1)
      f.speaks_against.push_back("taking off the rows' means cures it too");
  } else if (shifted.ran && shifted.finite) {
    f.cause = Cause::cancellation;
    f.weight = Weight::decided;
    f.speaks_for.push_back("E9: with the rows' means taken off its result is finite; divided by 16 it is not");
  } else if (few.ran && few.finite) {
    f.cause = Cause::count_overflow;
    f.weight = Weight::supported;
  }
  if (wide.ran) scene.lab.note("E2", f.op + " in fp32", wide.finite ? "finite" : "not finite");
  scene.add(std::move(f));
}

/// The op made what is not finite of finite numbers, forward.
void add_producer(Scene& scene, const Place& p) {
  const Sample& s = *p.sample;
  Finding f{.op = p.track->key.op, .tensor = p.track->key.str(), .precursor = s.step, .step = scene.symptoms.lost};
  if (f.step < 0) f.step = scene.symptoms.storm;
  f.cure.raised = {f.op};
  f.paste = paste_fp32(scene.seen, f.cure.raised);
  if (is_sentinel(p)) {
    const Place rows = after_sentinel(scene, p);
    f.cause = Cause::mask_sentinel;
    f.weight = rows && rows.sample->not_finite > 0 ? Weight::decided : Weight::supported;
    f.speaks_for.push_back(
        fmt::format("{} elements, all of them {}, became infinite", s.overflowed, number(-s.exact_largest)));
    if (rows)
      f.speaks_for.push_back(fmt::format("then {} of {} elements of {} are not finite", rows.sample->not_finite,
                                         rows.sample->elements, rows.track->key.str()));
    f.paste = fmt::format("mask with torch.finfo(x.dtype).min, not {}, and leave no row without an entry",
                          number(-s.exact_largest));
    f.cure = {.finite_masks = true};
    f.can_be_tried = true;
    return scene.add(std::move(f));
  }
  const double most = format(p.track->key.dtype).max_finite();
  if (s.has_exact && s.exact_largest > most) {
    f.cause = Cause::forward_overflow;
    f.weight = Weight::decided;
    f.precursor = first_near_end(*p.track, s.step);
    f.speaks_for.push_back(fmt::format("the exact result is {}, {} ends at {}", number(s.exact_largest),
                                       ampcheck::name(p.track->key.dtype), number(most)));
    if (f.precursor < s.step)
      f.speaks_for.push_back(
          fmt::format("its values are in the two highest binades from {} on", step_text(f.precursor)));
    const StepResult* const alone = scene.lab.run({.scale = 1.0}, s.step, s.step).at(s.step);
    if (alone != nullptr) {
      const bool stays = !std::isfinite(alone->loss);
      scene.lab.note("E1", step_text(s.step) + " with loss scale 1", stays ? "not finite either" : "finite");
      (stays ? f.speaks_for : f.speaks_against)
          .push_back(stays ? "E1: with loss scale 1 too" : "E1: with loss scale 1 the loss is finite");
    }
    if (scene.dtype() == Dtype::fp16) f.paste += ", or dtype=torch.bfloat16";
    return scene.add(std::move(f));
  }
  f.cause = Cause::inner_overflow;
  add_inner(scene, p, std::move(f));
}

}  // namespace

/// The first op of a forward that made finite numbers infinite or NaN, of the step at which the loss was lost.
void ask_forward(Scene& scene) {
  const Symptoms& symptoms = scene.symptoms;
  const int step = symptoms.lost >= 0 ? symptoms.lost : symptoms.storm;
  if (step < 0 || scene.has(Cause::poisoned_state) || scene.has(Cause::not_repeatable)) return;
  const StepResult& seen = scene.step(step);
  if (std::isfinite(seen.loss) && symptoms.lost < 0) return;  // gradients alone
  const Place weights = first_place(scene.seen, [&](const Track& t, const Sample& s) {
    return t.key.phase == Phase::optimizer && !s.finite && s.step < step;
  });
  if (weights) return;  // the optimizer's part
  const Place place = first_place(scene.seen, [&](const Track& t, const Sample& s) {
    return s.step == step && s.role == FaultRole::producer && t.key.phase == Phase::forward;
  });
  if (!place) return;
  const std::string& op = place.track->key.op;
  if (scene.has(Cause::moved_boundary) && compares_inputs(models::op_of_call(op.substr(0, op.rfind('_'))))) return;
  add_producer(scene, place);
}

/// An op that lets NaN vanish.
void ask_killers(Scene& scene) {
  const Place killer = first_place(scene.seen, [](const Track& t, const Sample& s) {
    return s.role == FaultRole::killer && t.key.phase == Phase::forward && !t.key.cast;
  });
  if (!killer) return;
  const Place from = first_place(scene.seen, [&](const Track& t, const Sample& s) {
    return s.role == FaultRole::producer && t.key.phase == Phase::forward && s.step == killer.sample->step;
  });
  Finding f{.cause = Cause::nan_killed,
            .weight = Weight::decided,
            .op = killer.track->key.op,
            .tensor = killer.track->key.str(),
            .precursor = killer.sample->step,
            .step = killer.sample->step};
  f.speaks_for.push_back("its inputs are not finite, its result is");
  if (from) f.speaks_for.push_back("they come from " + from.track->key.str());
  f.cure.repaired = {f.op};
  f.not_tried = "it shows the NaN, and does not say where that comes from";
  f.paste = "a kernel that passes NaN on: max(x, 0) as x > 0 ? x : (x != x ? x : 0)";
  scene.symptoms.bad_op = f.step;
  scene.add(std::move(f));
}

}  // namespace ampcheck::checks::diagnose
