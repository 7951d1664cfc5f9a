// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
// What to try after a training run: rules in the order in which they are asked; the first that has an answer gives it.
#include <fmt/format.h>

#include <cmath>

#include "src/op_call.h"
#include "tools/commands/train_report.h"

namespace ampcheck::tools {

namespace {

using namespace checks::train;

/// What the rules look at.
struct Seen {
  const Trainer& trainer;
  const Diagnosis& d;
  const std::vector<StepResult>& steps;
  const checks::train::TrainOptions& options = trainer.options();
  const OptimizerChoice& optimizer = options.rule.optimizer;
  Dtype dtype = options.dtype;
  bool scaler = options.scaler.enabled;

  bool left() const { return d.left_at.has_value(); }
  bool ends_finite() const { return std::isfinite(steps.back().loss); }
  /// The scale that a run with a scaler begins with.
  double first_scale() const { return options.scale_rule ? options.scale_rule->init_scale : options.scaler.init_scale; }
};

std::string moments_vanish(const Seen& s) {
  const bool low_state =
      s.optimizer.moments ? *s.optimizer.moments != Dtype::fp32 : s.optimizer.weights == Weights::low;
  if (!s.left() || !low_state || s.d.updates.second_moment_zero == 0) return "";
  return "--moments fp32: squares of gradients vanish, and divided by eps alone the updates become huge";
}

std::string epsilon_vanishes(const Seen& s) {
  if (!s.left() || s.d.updates.epsilon_zero == 0) return "";
  return "--fused --moments fp32: eps is zero in the arithmetic of the weights";
}

std::string fp64_diverges_too(const Seen& s) {
  if (!s.left() || !s.d.producer || !s.steps.front().fp64_loss) return "";
  if (*s.steps.back().fp64_loss <= *s.steps.front().fp64_loss) return "";
  return "a smaller --lr: the fp64 run's loss grows too";
}

std::string forward_overflows(const Seen& s) {
  if (!s.d.producer || s.d.producer->where.phase != Phase::forward) return "";
  if (s.dtype != Dtype::fp16 && s.d.producer->where.dtype == Dtype::fp16)
    return "another dtype in the layer's region of autocast: its values leave fp16";
  if (s.dtype == Dtype::fp16)
    return "--dtype bf16: the values of the forward pass leave fp16, and no loss scale changes them";
  return "a smaller --lr";
}

std::string gradients_vanish_without_scaler(const Seen& s) {
  if (s.scaler || s.d.vanished.empty() || s.d.vanished.front().where.dtype != Dtype::fp16) return "";
  const bool low_gradients = s.optimizer.weights != Weights::fp32 || s.options.keep_low_precision_grads;
  return s.dtype == Dtype::fp16 && low_gradients && !s.optimizer.is_fused() ? "--fused --scaler torch"
                                                                            : "--scaler torch";
}

std::string scale_grows_too_fast(const Seen& s) {
  if (!s.scaler || s.d.skipped.size() < 2 || s.options.scaler.growth_interval >= 2000) return "";
  return fmt::format("a longer --growth-interval: the scale grew back to where it overflows, and {} steps were skipped",
                     s.d.skipped.size());
}

std::string scale_begins_too_high(const Seen& s) {
  if (s.dtype != Dtype::fp16 || !s.scaler || !s.d.scale.known || s.d.skipped.empty()) return "";
  if (s.d.scale.overflows_at > 24 || s.d.scale.overflows_at <= 0) return "";
  const double below = std::ldexp(1.0, s.d.scale.overflows_at - 1);
  if (s.first_scale() <= below) return "";
  return fmt::format("--init-scale {}: {} step{} skipped while the scale came down", number_text(below),
                     s.d.skipped.size(), s.d.skipped.size() == 1 ? " was" : "s were");
}

std::string weights_do_not_move(const Seen& s) {
  const UpdateCounts& updates = s.d.updates;
  if (s.optimizer.weights != Weights::low || 2 * updates.with_grad_stagnant <= updates.with_grad) return "";
  return fmt::format("--weights master: {} of the elements with a gradient did not move",
                     share_of(updates.with_grad_stagnant, updates.with_grad));
}

std::string nothing_was_watched(const Seen& s) {
  if (!s.left() || s.ends_finite() || s.options.shadows.local || s.options.shadows.carried) return "";
  return "--shadow both: it names the op whose result is the first that is not finite";
}

std::string rounding_alone(const Seen& s) {
  const bool all_known = s.steps.front().step == 0;  // of a resumed run nobody knows what vanished before
  if (!s.left() || !all_known || s.dtype == Dtype::fp32 || s.d.vanished_share != 0 || !s.d.skipped.empty() ||
      !s.ends_finite())
    return "";
  return "another --seed or two: nothing vanished and nothing was skipped, so only rounding moved the loss";
}

std::string another_scale(const Seen& s) {
  if (!s.left() || s.dtype != Dtype::fp16 || s.d.vanished_share <= 0 || !s.scaler) return "";
  if (!s.d.scale.known || s.d.scale.best <= 0 || s.first_scale() == std::ldexp(1.0, s.d.scale.best)) return "";
  return fmt::format("--init-scale {}", number_text(std::ldexp(1.0, s.d.scale.best)));
}

constexpr std::string (*kRules[])(const Seen&) = {
    moments_vanish,
    epsilon_vanishes,
    fp64_diverges_too,
    forward_overflows,
    gradients_vanish_without_scaler,
    scale_grows_too_fast,
    scale_begins_too_high,
    weights_do_not_move,
    nothing_was_watched,
    rounding_alone,
    another_scale,
};

}  // namespace

std::string train_advice(const Trainer& trainer, const Diagnosis& diagnosis, const std::vector<StepResult>& steps) {
  const Seen seen{trainer, diagnosis, steps};
  for (const auto rule : kRules)
    if (std::string text = rule(seen); !text.empty()) return text;
  return "";
}

}  // namespace ampcheck::tools
