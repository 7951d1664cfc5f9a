// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
// What the optimizer loses, and gradients that never reach it.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "checks/diagnose/scene.h"

namespace ampcheck::checks::diagnose {

using namespace train;

namespace {

double share(std::int64_t part, std::int64_t all) {
  return all > 0 ? static_cast<double>(part) / static_cast<double>(all) : 0;
}
std::string percent(double share) { return fmt::format("{:.0f} %", 100 * share); }

/// Mean distance of a course's losses from the fp64 run's over its last steps; infinite where a loss is not finite.
double apart(const Observation& seen, const std::vector<StepResult>& steps) {
  constexpr std::size_t kLast = 10;
  double out = 0;
  std::size_t n = 0;
  for (std::size_t i = steps.size() > kLast ? steps.size() - kLast : 0; i < steps.size(); ++i, ++n) {
    const auto at = static_cast<std::size_t>(steps[i].step);
    if (at >= seen.steps.size() || !seen.steps[at].fp64_loss) continue;
    if (!std::isfinite(steps[i].loss)) return std::numeric_limits<double>::infinity();
    out += std::fabs(steps[i].loss - *seen.steps[at].fp64_loss);
  }
  return n > 0 ? out / static_cast<double>(n) : 0;
}

/// E4: with the optimizer's numbers in fp32 the run is nearer to the fp64 run.
void try_fp32_optimizer(Scene& scene, Finding& f) {
  f.cure.fp32_optimizer = true;
  f.can_be_tried = true;
  const Course& course = scene.lab.whole(f.cure);
  if (!course.refused.empty() || course.steps.empty()) return;
  const double before = apart(scene.seen, scene.seen.steps), after = apart(scene.seen, course.steps);
  scene.lab.note("E4", "masters and moments in fp32",
                 fmt::format("losses {:.3g} from the fp64 run's instead of {:.3g}", after, before));
  if (after < before) {
    f.speaks_for.push_back(
        fmt::format("E4: with masters and moments in fp32 the losses are {:.3g} from the fp64 run's, "
                    "not {:.3g}",
                    after, before));
    f.weight = Weight::decided;
  } else {
    f.speaks_against.push_back("E4: masters and moments in fp32 bring it no nearer to the fp64 run");
  }
}

/// Second moments that are zero beside a gradient, or eps that is.
void ask_second_moments(Scene& scene) {
  std::int64_t zero = 0, epsilon = 0, with_grad = 0;
  int first = -1;
  for (const StepResult& s : scene.seen.steps) {
    zero += s.updates.second_moment_zero;
    epsilon += s.updates.epsilon_zero;
    with_grad += s.updates.with_grad;
    if (first < 0 && (s.updates.second_moment_zero > 0 || s.updates.epsilon_zero > 0)) first = s.step;
  }
  if (first < 0 || share(std::max(zero, epsilon), with_grad) < 0.01) return;
  Finding f{.cause = Cause::optimizer_underflow, .weight = Weight::supported, .precursor = first, .step = first};
  if (zero > 0)
    f.speaks_for.push_back("the second moment of " + percent(share(zero, with_grad)) +
                           " of the elements with a gradient is zero: squares vanish in its type");
  if (epsilon > 0) f.speaks_for.push_back("eps is zero in the type of the weights");
  const Place place = first_place(
      scene.seen, [&](const Track& t, const Sample& s) { return t.key.phase == Phase::optimizer && s.step >= first; });
  if (place) f.tensor = place.track->key.str();
  f.paste = "optimizer state in fp32 (--moments fp32), or eps=1e-4";
  try_fp32_optimizer(scene, f);
  if (scene.symptoms.first() < 0) scene.symptoms.bad_op = first;
  scene.add(std::move(f));
}

void ask_still_moments(Scene& scene) {
  std::int64_t moments = 0, still = 0;
  int first = -1;
  for (std::size_t i = 0; i < scene.seen.updates.size(); ++i) {
    const UpdateSeen& u = scene.seen.updates[i];
    moments += u.moments;
    still += u.moments_still;
    if (first < 0 && u.moments > 0 && share(u.moments_still, u.moments) > 0.5) first = static_cast<int>(i);
  }
  if (share(still, moments) <= 0.5) return;
  Finding f{.cause = Cause::accumulator_stagnation, .weight = Weight::supported, .precursor = first, .step = first};
  f.speaks_for.push_back(percent(share(still, moments)) +
                         " of the moments stay what they were in a step, although the gradient is another");
  f.paste = "optimizer state in fp32 (--moments fp32), or a sum with compensation (Kahan)";
  try_fp32_optimizer(scene, f);
  if (scene.symptoms.first() < 0) scene.symptoms.bad_op = first;
  scene.add(std::move(f));
}

void ask_stagnation(Scene& scene) {
  if (scene.options().rule.optimizer.weights != Weights::low) return;
  std::int64_t with_grad = 0, still = 0;
  int first = -1;
  for (const StepResult& s : scene.seen.steps) {
    if (!s.stepped || s.updates.with_grad == 0) continue;
    with_grad += s.updates.with_grad;
    still += s.updates.with_grad_stagnant;
    if (first < 0 && share(s.updates.with_grad_stagnant, s.updates.with_grad) > 0.5) first = s.step;
  }
  if (first < 0 || share(still, with_grad) <= 0.5) return;
  Finding f{.cause = Cause::update_stagnation, .weight = Weight::supported, .precursor = first, .step = first};
  f.speaks_for.push_back(percent(share(still, with_grad)) + " of the weights with a gradient did not move");
  f.paste = "16-bit weights with fp32 masters (--weights master), or stochastic rounding of the update";
  try_fp32_optimizer(scene, f);
  if (scene.symptoms.first() < 0) scene.symptoms.bad_op = first;
  scene.add(std::move(f));
}

/// Weights that became infinite or NaN from finite gradients, or from gradients that nothing stopped.
void ask_poisoned_weights(Scene& scene) {
  const Place place = first_place(
      scene.seen, [](const Track& t, const Sample& s) { return t.key.phase == Phase::optimizer && !s.finite; });
  if (!place || scene.has(Cause::found_inf_incomplete) || scene.has(Cause::optimizer_underflow)) return;
  Finding f{.weight = Weight::supported,
            .op = place.track->key.op,
            .tensor = place.track->key.str(),
            .precursor = place.sample->step,
            .step = place.sample->step};
  if (place.sample->inputs_finite) {
    f.cause = Cause::optimizer_underflow;
    f.speaks_for.push_back("the gradient is finite, the updated weight is not");
    f.paste = "optimizer state in fp32, or a larger eps";
    try_fp32_optimizer(scene, f);
    return scene.add(std::move(f));
  }
  if (scene.options().scaler.enabled) return;
  const Place maker = first_place(scene.seen, [&](const Track& t, const Sample& s) {
    return s.step == place.sample->step && is_gradient(t.key.phase) && s.role == FaultRole::producer;
  });
  f.cause = Cause::forward_overflow;
  if (maker) {
    f.op = maker.track->key.op;
    f.tensor = maker.track->key.str();
    f.speaks_for.push_back(f.tensor + " is the first that is not finite, and nothing skips such a step");
    f.cure.raised = {f.op};
    f.paste = paste_fp32(scene.seen, f.cure.raised);
  }
  scene.add(std::move(f));
}

}  // namespace

void ask_optimizer(Scene& scene) {
  ask_second_moments(scene);
  if (!scene.has(Cause::optimizer_underflow)) ask_still_moments(scene);
  ask_stagnation(scene);
  ask_poisoned_weights(scene);
}

namespace {

struct Flushed {
  std::int64_t nonzero = 0, flushed = 0;
  double share() const { return diagnose::share(flushed, nonzero); }
};

double norm_of(const StepResult& step) {
  double sum = 0;
  for (const double norm : step.norms) sum += norm * norm;
  return std::sqrt(sum);
}

constexpr double kTorchsFirst = 65536;

/// E1 upwards: does more arrive? Scales by 2^12, as long as it becomes more and is finite; the last of these. Where
/// torch's own first scale is no lower than one with which more arrives, that is tried.
double ask_higher_scales(Scene& scene, int step, Finding& f) {
  constexpr int kBinades = 12, kMost = 100;  // a scaler holds it in fp32
  double scale = scene.step(step).scale, norm = norm_of(scene.step(step));
  bool any = false;
  while (std::ilogb(scale) + kBinades <= kMost) {
    const double higher = std::ldexp(scale, kBinades);
    const StepResult* const with = scene.lab.run({.scale = higher}, step, step).at(step);
    if (with == nullptr) break;
    const double after = norm_of(*with);
    const std::string what =
        fmt::format("with loss scale {:g} the gradients' norm is {:.3g}, not {:.3g}", higher, after, norm);
    scene.lab.note("E1", step_text(step) + fmt::format(" with loss scale {:g}", higher),
                   fmt::format("norm of the gradients {:.3g} instead of {:.3g}", after, norm));
    const bool more = std::isfinite(after) && after > 1.02 * norm, nothing_yet = after == 0 && norm == 0;
    if (more && !any) f.speaks_for.push_back("E1: " + what);
    if (!more && !any && !nothing_yet) f.speaks_against.push_back("E1: " + what);
    if (!more && !nothing_yet) break;
    any |= more;
    scale = higher;
    norm = after;
    if (any && scale <= kTorchsFirst) break;
  }
  if (any) f.weight = Weight::decided;
  return any ? scale : 0;
}

bool counts(const TensorKey& key) { return is_gradient(key.phase) && (!key.cast || key.dtype != Dtype::fp32); }

}  // namespace

/// Gradients that became zero: of the run together, and the tensor that lost first.
void ask_underflow(Scene& scene) {
  Flushed all;
  for (const auto& [name, track] : scene.seen.tracks)
    if (counts(track.key) && track.key.dtype != Dtype::fp32)
      for (const Sample& s : track.samples) {
        all.nonzero += s.nonzero;
        all.flushed += s.flushed;
      }
  const double least = scene.symptoms.left >= 0 ? 0.05 : 0.3;
  if (all.share() < least) return;
  const Place place = first_place(scene.seen, [&](const Track& t, const Sample& s) {
    return counts(t.key) && s.nonzero > 0 && share(s.flushed, s.nonzero) >= least;
  });
  if (!place) return;
  Finding f{.cause = Cause::gradient_underflow,
            .weight = Weight::supported,
            .op = place.track->key.op,
            .tensor = place.track->key.str(),
            .precursor = place.sample->step,
            .step = place.sample->step};
  f.speaks_for.push_back(fmt::format("{} of all gradients in 16 bits became zero; {} of {} at {}", percent(all.share()),
                                     percent(share(place.sample->flushed, place.sample->nonzero)), f.tensor,
                                     step_text(place.sample->step)));
  const int step = place.sample->step;
  const double enough = std::max(kTorchsFirst, ask_higher_scales(scene, step, f));
  f.cure.init_scale = enough;
  f.can_be_tried = true;
  const std::string scale = enough > kTorchsFirst ? fmt::format("2.0**{:.0f}", std::log2(enough)) : "2**16";
  f.paste = scene.options().scaler.enabled
                ? fmt::format("scaler = GradScaler(init_scale={}), or dtype=torch.bfloat16", scale)
                : fmt::format(
                      "scaler = torch.amp.GradScaler(\"cuda\"{}); "
                      "scaler.scale(loss).backward()",
                      enough > kTorchsFirst ? ", init_scale=" + scale : "");
  if (scene.symptoms.first() < 0) scene.symptoms.bad_op = step;
  scene.add(std::move(f));
}

}  // namespace ampcheck::checks::diagnose
