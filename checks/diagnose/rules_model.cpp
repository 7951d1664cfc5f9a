// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
// E7: does the run in fp64 go the same way? Then precision is not to blame.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "checks/diagnose/scene.h"
#include "checks/train/loss_course.h"

namespace ampcheck::checks::diagnose {

using namespace train;

namespace {

/// The largest logit of each step, as the loss read it.
std::vector<double> logits_of(const Observation& seen) {
  std::vector<double> out;
  for (const auto& [name, track] : seen.tracks) {
    if (track.key.phase != Phase::forward || track.key.cast) continue;
    const bool decides =
        std::any_of(track.samples.begin(), track.samples.end(), [](const Sample& s) { return s.decisions > 0; });
    if (!decides) continue;
    for (const Sample& s : track.samples) out.push_back(s.largest);
  }
  return out;
}

bool adaptive(const TrainOptions& o) {
  return o.rule.optimizer.name == "adam" || o.rule.optimizer.name == "adamw" || o.rule.optimizer.name == "rmsprop";
}

/// A loss that jumps after it had come down, and comes down again.
bool spikes(const std::vector<StepResult>& steps) {
  double least = INFINITY;
  for (const StepResult& s : steps) {
    if (!s.fp64_loss) return false;
    if (*s.fp64_loss > 3 * least && least < *steps.front().fp64_loss) return true;
    least = std::min(least, *s.fp64_loss);
  }
  return false;
}

std::vector<double> losses_of(const std::vector<StepResult>& steps, bool fp64) {
  std::vector<double> out;
  for (const StepResult& s : steps) out.push_back(fp64 ? s.fp64_loss.value_or(NAN) : s.loss);
  return out;
}

bool calm(const Course& course) {
  return course.refused.empty() && !course.steps.empty() && leaves(losses_of(course.steps, false)) < 0;
}

/// The largest rate by tenths with which no loss grows.
void find_rate(Scene& scene, Finding& f) {
  constexpr double kTenths[] = {0.1, 0.01, 1e-3, 1e-4};
  const double lr = scene.step(0).lr;
  for (const double rate : kTenths) {
    if (!calm(scene.lab.whole({.rate = rate}))) continue;
    scene.lab.note("E7", fmt::format("the whole run with --lr {:g}", rate * lr), "no loss grows");
    f.cure.rate = rate;
    f.can_be_tried = true;
    f.paste = fmt::format("--lr {:g}: it is no matter of precision", rate * lr);
    return;
  }
  scene.lab.note("E7", "the whole run with 1e-4 of the learning rate", "the loss grows too");
  f.not_tried = "no smaller rate that was tried keeps the loss from growing";
}

}  // namespace

void ask_model(Scene& scene) {
  const std::vector<StepResult>& steps = scene.seen.steps;
  if (steps.empty() || !steps.front().fp64_loss) return;
  const bool lags = adaptive(scene.options()) && spikes(steps);
  const std::vector<double> losses = losses_of(steps, true);
  const double began = losses.front();
  const int at = first_above(losses);
  if (at < 0 || (come_back(losses, at) && !lags)) return;  // the fp64 run is well
  Finding f{.cause = Cause::not_numerics, .weight = Weight::decided, .precursor = at, .step = at};
  f.speaks_for.push_back(fmt::format("E7: the loss of the fp64 run goes from {:.4g} to {:.4g} at {}", began,
                                     *steps[static_cast<std::size_t>(at)].fp64_loss, step_text(at)));
  scene.lab.note("E7", "the whole run in fp64", "diverges too");
  const std::vector<double> logits = logits_of(scene.seen);
  if (lags) {
    f.cause = Cause::second_moment_lag;
    f.speaks_for.push_back("the loss had come down before: the second moment is behind the gradients");
    f.not_tried = "beta2 is no option of this run";
    f.paste = "a smaller beta2 (0.95), or clip the update: it is no matter of precision";
  } else if (logits.size() > 1 && logits.back() > 8 * std::max(logits.front(), 1.0)) {
    f.cause = Cause::logit_growth;
    f.speaks_for.push_back(fmt::format("the largest logit grew from {:.3g} to {:.3g}", logits.front(), logits.back()));
    f.paste = "a z-loss, QK norm, or a smaller learning rate: it is no matter of precision";
    find_rate(scene, f);
  } else {
    f.paste = "a smaller --lr, or another start: it is no matter of precision";
    find_rate(scene, f);
  }
  if (const int first = scene.symptoms.first(); first < 0 || at <= first + 1) {
    // What overflows in a run that leaves every bound in fp64 too follows from that.
    for (Finding& other : scene.findings)
      if (const CauseClass kind = info(other.cause).kind;
          kind != CauseClass::machine && kind != CauseClass::state && kind != CauseClass::kernel) {
        other.weight = Weight::possible;
        other.speaks_against.push_back("E7: the run in fp64 diverges too");
      }
    if (first < 0) scene.symptoms.bad_op = at;
  }
  scene.add(std::move(f));
}

}  // namespace ampcheck::checks::diagnose
