// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
// The loss scale, and what is done with gradients before the update.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "checks/diagnose/scene.h"
#include "checks/train/fault_ring.h"

namespace ampcheck::checks::diagnose {

using namespace train;

namespace {

/// Whether a step's gradients are finite at this loss scale.
std::optional<bool> clean_at(Scene& scene, int step, double scale) {
  const StepResult* const result = scene.lab.run({.scale = scale}, step, step).at(step);
  if (result == nullptr) return std::nullopt;
  scene.lab.note("E1", step_text(step) + fmt::format(" with loss scale {}", scale),
                 result->found_inf ? "gradients are not finite" : "gradients are finite");
  return !result->found_inf;
}

Place first_backward_fault(const Observation& seen, int step) {
  return first_place(seen, [&](const Track& t, const Sample& s) {
    return s.step == step && s.role == FaultRole::producer && t.key.phase == Phase::backward;
  });
}

/// A step that was skipped although its gradients are finite at no scale or at every scale.
void add_collapse(Scene& scene, int step) {
  const Place place = first_backward_fault(scene.seen, step);
  Finding f{.cause = Cause::scaler_collapse, .weight = Weight::decided, .precursor = step, .step = step};
  int skipped = 0;
  for (const StepResult& s : scene.seen.steps) skipped += s.step >= step && !s.stepped;
  f.speaks_for.push_back(fmt::format("{} of {} steps from {} on were skipped; the scale went from {:g} to {:g}",
                                     skipped, scene.last() - step + 1, step_text(step), scene.step(step).scale,
                                     scene.step(scene.last()).scale_after));
  if (place) {
    f.op = place.track->key.op;
    f.tensor = place.track->key.str();
    f.speaks_for.push_back("E1: with loss scale 1 too, " + f.tensor + " is not finite, its inputs are");
    f.cure.repaired = {f.op};
    f.can_be_tried = true;
    f.paste = "a smaller scale does not help: repair the backward of " + f.op;
  } else {
    f.speaks_for.push_back(
        "no op of the backward makes what is not finite: gradients of an earlier step are still there");
    f.paste = "optimizer.zero_grad(set_to_none=True) before each backward, after a skipped step too";
    try_right_loop(scene, f);
  }
  scene.add(std::move(f));
}

void note_probing(Scene& scene, int first, int skipped) {
  Finding f{.cause = Cause::scale_probing, .weight = Weight::decided, .precursor = first, .step = first};
  f.speaks_for.push_back(fmt::format("{} skipped; with a smaller scale the gradients of the same step are finite",
                                     skipped == 1 ? "one step was" : fmt::format("{} steps were", skipped)));
  scene.notes.push_back(std::move(f));
}

/// Steps that were skipped: do they belong to a scale that looks for its height?
void ask_skips(Scene& scene) {
  int skipped = 0, first = -1, stuck = -1, run = 0;
  for (const StepResult& s : scene.seen.steps) {
    run = s.stepped ? 0 : run + 1;
    if (s.stepped) continue;
    ++skipped;
    if (first < 0) first = s.step;
    if (run >= kStorm && stuck < 0) stuck = s.step - run + 1;
  }
  if (skipped == 0 || scene.has(Cause::forward_overflow)) return;
  const int asked = stuck >= 0 ? std::max(stuck, scene.last()) : first;
  const bool finite_loss = std::isfinite(scene.step(asked).loss);
  if (!finite_loss) return;
  const std::optional<bool> clean = clean_at(scene, asked, 1);
  if (clean && !*clean) {
    int begin = asked;
    while (begin > 0 && !scene.step(begin - 1).stepped) --begin;
    scene.symptoms.storm = begin;
    return add_collapse(scene, begin);
  }
  if (clean) {
    note_probing(scene, first, skipped);
    scene.symptoms.storm = -1;
  }
}

void ask_infinite_scale(Scene& scene) {
  for (const StepResult& s : scene.seen.steps) {
    if (std::isfinite(s.scale) && s.scale < std::ldexp(1.0, 100)) continue;
    Finding f{.cause = Cause::scale_infinite, .weight = Weight::decided, .precursor = s.step, .step = s.step};
    f.speaks_for.push_back(fmt::format("the loss scale is {:g} at {}", s.scale, step_text(s.step)));
    f.paste = "GradScaler(growth_interval=2000), with a rule that does not grow beyond 2^24";
    f.cure.scale = 65536;
    f.can_be_tried = true;
    if (scene.symptoms.first() < 0 || scene.symptoms.first() > s.step) scene.symptoms.bad_op = s.step;
    return scene.add(std::move(f));
  }
}

/// A step with gradients that are not finite moved the weights.
void ask_not_skipped(Scene& scene) {
  if (!scene.options().scaler.enabled) return;
  for (const StepResult& s : scene.seen.steps) {
    const bool moved = s.found_inf && s.stepped && std::isfinite(s.loss);
    const Place poisoned = first_place(scene.seen, [&](const Track& t, const Sample& v) {
      return v.step == s.step && t.key.phase == Phase::optimizer && !v.finite && !v.inputs_finite;
    });
    if (!s.ranks_disagree && !(moved && poisoned)) continue;
    Finding f{.cause = Cause::found_inf_incomplete, .weight = Weight::decided, .precursor = s.step, .step = s.step};
    if (s.ranks_disagree)
      f.speaks_for.push_back("at " + step_text(s.step) + " some ranks stepped and others did not");
    else
      f.speaks_for.push_back("at " + step_text(s.step) + " gradients were not finite, and the step was not skipped");
    if (poisoned) {
      f.op = poisoned.track->key.op;
      f.tensor = poisoned.track->key.str();
      f.speaks_for.push_back("the parameter " + f.op + " is not finite from there on");
    }
    f.paste = "one found_inf over all parameters and ranks: all_reduce(found_inf, op=MAX) before scaler.step()";
    try_right_loop(scene, f);
    if (scene.symptoms.first() < 0) scene.symptoms.bad_op = s.step;
    return scene.add(std::move(f));
  }
}

}  // namespace

void ask_scaler(Scene& scene) {
  ask_infinite_scale(scene);
  ask_not_skipped(scene);
  if (scene.options().scaler.enabled && !scene.has(Cause::scale_infinite)) ask_skips(scene);
}

/// unscale_ divides by the scale, and nothing else may have happened to the gradients before it. 1e-3: norms of fp32
/// gradients agree to 1e-6, of gradients that are partly flushed by it to what is flushed.
void ask_unscale(Scene& scene) {
  if (!scene.options().scaler.enabled) return;
  constexpr double kApart = 1e-3;
  int count = 0, first = -1;
  double least = 1;
  for (std::size_t i = 0; i < scene.seen.updates.size(); ++i) {
    const StepResult& s = scene.seen.steps[i];
    if (!s.stepped || s.scale == 1) continue;
    for (const double ratio : scene.seen.updates[i].unscaled) {
      if (std::fabs(ratio - 1) <= kApart) continue;
      if (first < 0) first = s.step;
      least = std::min(least, ratio);
      ++count;
      break;
    }
  }
  if (first < 0) return;
  Finding f{.cause = Cause::clip_before_unscale, .weight = Weight::possible, .precursor = first, .step = first};
  const UpdateSeen& update = scene.seen.updates[static_cast<std::size_t>(first)];
  const double scale = scene.step(first).scale;
  f.speaks_for.push_back(
      fmt::format("at {} the gradients' norm was {:.3g} before unscaling and {:.3g} after: not a "
                  "division by {:g}",
                  step_text(first), update.norm_before, update.norm_after, scale));
  double low = 0, high = 0;  // what the scale times the norm after it is
  for (std::size_t i = 0; i < scene.seen.updates.size(); ++i) {
    const StepResult& s = scene.seen.steps[i];
    if (!s.stepped || s.scale == 1) continue;
    const double clipped = scene.seen.updates[i].norm_after * s.scale;
    low = low == 0 ? clipped : std::min(low, clipped);
    high = std::max(high, clipped);
  }
  if (low > 0 && high / low < 1.05 && least < 1) {
    f.weight = Weight::decided;
    f.speaks_for.push_back(
        fmt::format("norm times scale is {:.4g} in every step, whatever the scale: that is what was clipped to", high));
  } else if (least < 1) {
    f.weight = Weight::supported;
  }
  f.paste = "scaler.unscale_(optimizer) before torch.nn.utils.clip_grad_norm_(...)";
  try_right_loop(scene, f);
  if (scene.symptoms.first() < 0) scene.symptoms.bad_op = first;
  scene.add(std::move(f));
}

}  // namespace ampcheck::checks::diagnose
