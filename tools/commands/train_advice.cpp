// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
// What to try after a training run: rules in the order in which they are asked. An answer is tried first, by the same
// run with that one change; the first that cures what it is for is given.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <memory>

#include "src/op_call.h"
#include "tools/commands/train_report.h"
#include "tools/report/loss_decimal.h"

namespace ampcheck::tools {

namespace {

using namespace checks::train;

/// What is tried in place of a learning rate that is too large.
constexpr std::array kLrDivisors = {4.0, 16.0, 64.0, 256.0, 1e4, 1e6, 1e8, 1e10};
/// Of the gradients in 16 bits: less may vanish where a run is well.
constexpr double kMuch = 0.1;

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
  /// Left, or with something that is wrong or was not trained.
  bool troubled() const { return left() || !d.findings.empty(); }
  /// Without low precision the loss grows, or is not finite, too.
  bool fp64_grows() const {
    const std::optional<double>&first = steps.front().fp64_loss, &last = steps.back().fp64_loss;
    return first && last && !(*last <= 2 * *first);
  }
  /// The scale that a run with a scaler begins with.
  double first_scale() const { return options.scale_rule ? options.scale_rule->init_scale : options.scaler.init_scale; }
};

/// An answer of a rule: options as one writes them, why, and the same for a trainer; null: nothing that can be tried.
struct Answer {
  std::string options, why = {};
  std::function<void(checks::train::TrainOptions&)> change = nullptr;

  std::string text() const { return options.empty() ? why : why.empty() ? options : options + ": " + why; }
  explicit operator bool() const { return !options.empty() || !why.empty(); }
};
using RunOptions = checks::train::TrainOptions;

/// Of every optimizer.
void divide_rates(RunOptions& o, const Seen& s, double divisor) {
  o.rule.optimizer.lr = s.optimizer.with_defaults().lr / divisor;
  for (LayerOptimizer& more : o.rule.further) more.choice.lr = more.choice.with_defaults().lr / divisor;
}

Answer with_first_scale(double scale, std::string why) {
  return {"--init-scale " + number_text(scale), std::move(why), [scale](RunOptions& o) {
            o.scaler.init_scale = static_cast<float>(scale);
            if (o.scale_rule) o.scale_rule->init_scale = scale;
          }};
}

/// No setting mends a wrong kernel, cast or step.
Answer something_is_wrong(const Seen& s) {
  for (const RunFinding& f : s.d.findings)
    if (f.code < RunCode::all_skipped)
      return {"", f.code == RunCode::op ? "mend this op first: no setting of the run does"
                                        : "mend this first: no setting of the run does"};
  return {};
}

Answer moments_vanish(const Seen& s) {
  const bool low_state = s.optimizer.second_dtype(s.dtype) != Dtype::fp32;
  if (!s.left() || !low_state || s.d.updates.second_moment_zero == 0) return {};
  return {"--moments fp32", "squares of gradients vanish, and divided by eps alone the updates become huge",
          [](RunOptions& o) {
            o.rule.optimizer.moments = Dtype::fp32;
            o.rule.optimizer.second_moment.reset();
          }};
}

Answer epsilon_vanishes(const Seen& s) {
  if (!s.left() || s.d.updates.epsilon_zero == 0) return {};
  return {"--fused --moments fp32", "eps is zero in the arithmetic of the weights", [](RunOptions& o) {
            o.rule.optimizer.fused = true;
            o.rule.optimizer.moments = Dtype::fp32;
          }};
}

Answer fp64_diverges_too(const Seen& s) {
  if (!s.troubled() || !s.steps.front().fp64_loss || !s.fp64_grows()) return {};
  return {"a smaller --lr", "the fp64 run's loss grows too",
          [&s](RunOptions& o) { divide_rates(o, s, kLrDivisors.front()); }};
}

Answer forward_overflows(const Seen& s) {
  if (!s.d.producer || s.d.producer->where.phase != Phase::forward) return {};
  if (s.dtype != Dtype::fp16 && s.d.producer->where.dtype == Dtype::fp16)
    return {"",
            "another dtype in the layer's region of autocast: its values leave fp16 (not tried: that region is the "
            "net's own)"};
  if (s.dtype == Dtype::fp16)
    return {"--dtype bf16", "the values of the forward pass leave fp16, and no loss scale changes them",
            [](RunOptions& o) {
              o.dtype = Dtype::bf16;
              o.scaler.enabled = false;
            }};
  return {"a smaller --lr", "", [&s](RunOptions& o) { divide_rates(o, s, kLrDivisors.front()); }};
}

Answer gradients_vanish_without_scaler(const Seen& s) {
  if (s.scaler || s.d.vanished.empty() || s.d.vanished.front().where.dtype != Dtype::fp16) return {};
  const bool low_gradients = s.optimizer.weights != Weights::fp32 || s.options.keep_low_precision_grads;
  const bool fuse = s.dtype == Dtype::fp16 && low_gradients && !s.optimizer.is_fused();
  return {fuse ? "--fused --scaler torch" : "--scaler torch", "", [fuse](RunOptions& o) {
            o.scaler.enabled = true;
            o.scale_rule.reset();
            o.rule.optimizer.fused |= fuse;
          }};
}

Answer scale_grows_too_fast(const Seen& s) {
  if (!s.scaler || s.d.skipped.size() < 2 || s.options.scaler.growth_interval >= 2000) return {};
  return {"a longer --growth-interval",
          fmt::format("the scale grew back to where it overflows, and {} steps were skipped", s.d.skipped.size()),
          [](RunOptions& o) {
            o.scaler.growth_interval = 2000;
            if (o.scale_rule) o.scale_rule->window = 2000;
          }};
}

/// Powers of two that lose nothing of any gradient that was seen, also below 1 and above 2^24.
Answer scale_is_elsewhere(const Seen& s) {
  if (s.dtype != Dtype::fp16 || s.trainer.watch() == nullptr) return {};
  const bool much = s.d.vanished_share >= kMuch;  // also of a run that did not leave: its next steps may
  if (!much && (!s.troubled() || 2 * s.d.skipped.size() < s.steps.size())) return {};
  LosslessScales all;
  for (const auto& [name, range] : s.trainer.watch()->ranges())
    if (range.nonzero() > 0) all.narrow(lossless_scales(range));
  if (!all.low || !all.high || all.none()) return {};
  const int k = std::clamp((*all.low + *all.high) / 2, -100, 100);  // a scaler holds it in fp32
  const double scale = std::ldexp(1.0, k);
  if (s.scaler && s.first_scale() == scale) return {};
  Answer out = with_first_scale(scale, fmt::format("scales from 2^{} to 2^{} lose nothing", *all.low, *all.high));
  if (s.scaler) return out;
  const Answer scaler = gradients_vanish_without_scaler(s);
  if (!scaler) return {};
  out.options = scaler.options + " " + out.options;
  out.change = [add = scaler.change, scale_it = out.change](RunOptions& o) {
    add(o);
    scale_it(o);
  };
  return out;
}

Answer scale_begins_too_high(const Seen& s) {
  if (s.dtype != Dtype::fp16 || !s.scaler || !s.d.scale.known || s.d.skipped.empty()) return {};
  if (s.d.scale.overflows_at > 24 || s.d.scale.overflows_at <= 0) return {};
  const double below = std::ldexp(1.0, s.d.scale.overflows_at - 1);
  if (s.first_scale() <= below) return {};
  return with_first_scale(below, fmt::format("{} step{} skipped while the scale came down", s.d.skipped.size(),
                                             s.d.skipped.size() == 1 ? " was" : "s were"));
}

Answer weights_do_not_move(const Seen& s) {
  const UpdateCounts& updates = s.d.updates;
  const bool one = std::any_of(s.d.findings.begin(), s.d.findings.end(), [](const RunFinding& f) {
    return f.code == RunCode::not_moved || f.code == RunCode::one_not_moved;
  });
  if (s.optimizer.weights != Weights::low || (!one && 2 * updates.with_grad_stagnant <= updates.with_grad)) return {};
  return {"--weights master",
          fmt::format("{} of the elements with a gradient did not move",
                      share_of(updates.with_grad_stagnant, updates.with_grad)),
          [](RunOptions& o) { o.rule.optimizer.weights = Weights::master; }};
}

Answer nothing_was_watched(const Seen& s) {
  if (!s.left() || s.ends_finite() || s.options.shadows.local || s.options.shadows.carried) return {};
  return {"--shadow both", "it names the op whose result is the first that is not finite"};
}

Answer rounding_alone(const Seen& s) {
  const bool all_known = s.steps.front().step == 0;  // of a resumed run nobody knows what vanished before
  if (!s.left() || !all_known || s.dtype == Dtype::fp32 || s.d.vanished_share != 0 || !s.d.skipped.empty() ||
      !s.ends_finite())
    return {};
  return {"another --seed or two", "nothing vanished and nothing was skipped, so only rounding moved the loss",
          [](RunOptions& o) { ++o.seed; }};
}

Answer another_scale(const Seen& s) {
  if (!s.left() || s.dtype != Dtype::fp16 || s.d.vanished_share <= 0 || !s.scaler) return {};
  if (!s.d.scale.known || s.d.scale.best <= 0 || s.first_scale() == std::ldexp(1.0, s.d.scale.best)) return {};
  return with_first_scale(std::ldexp(1.0, s.d.scale.best), "");
}

constexpr Answer (*kRules[])(const Seen&) = {
    something_is_wrong,   moments_vanish,      epsilon_vanishes,
    fp64_diverges_too,    forward_overflows,   gradients_vanish_without_scaler,
    scale_grows_too_fast, scale_is_elsewhere,  scale_begins_too_high,
    weights_do_not_move,  nothing_was_watched, rounding_alone,
    another_scale,
};

/// The same run with one change: whether what is wrong with the first is not wrong with it.
struct Try {
  bool cured = false;
  int steps = 0;
  std::string text;
};

Try run_with(const Seen& s, const Answer& answer) {
  constexpr int kMostSteps = 100;
  Try out;
  RunOptions options = s.options;
  options.judge = JudgeMode::none;  // no setting changes whether an op is right
  answer.change(options);
  out.steps = std::min<int>(static_cast<int>(s.steps.size()), kMostSteps);
  Trainer trainer(options);
  std::vector<StepResult> steps;
  for (int i = 0; i < out.steps; ++i) steps.push_back(trainer.step());
  const Diagnosis d = diagnose(trainer, steps);
  const bool fp64_grows = Seen{trainer, d, steps}.fp64_grows();
  const bool fewer_skips = s.d.skipped.empty() || d.skipped.size() < s.d.skipped.size();
  const bool fewer_vanish = s.d.vanished_share < kMuch || d.vanished_share < kMuch;
  out.cured = !d.left_at && d.findings.empty() && fewer_skips && fewer_vanish && !fp64_grows;
  out.text = fmt::format("tried for {} step{}: loss {}", out.steps, out.steps == 1 ? "" : "s",
                         loss_decimal(steps.back().loss));
  if (steps.back().fp64_loss) out.text += ", fp64 " + loss_decimal(*steps.back().fp64_loss);
  return out;
}

Advice tried(const Seen& s, const Answer& answer) {
  if (s.steps.front().step > 0) return {answer.text(), "not tried: this run began from a checkpoint"};
  if (!answer.change)  // what is to be mended is said above
    return {answer.text(), !answer.options.empty() ? "not tried: it shows more, and changes nothing" : "", ""};
  if (answer.options != "a smaller --lr") {
    const Try one = run_with(s, answer);
    return {answer.text(), one.cured ? one.text : "", one.cured ? "" : one.text};
  }
  const double lr = s.optimizer.with_defaults().lr;
  for (const double divisor : kLrDivisors) {
    Answer smaller = answer;
    smaller.change = [&](RunOptions& o) { divide_rates(o, s, divisor); };
    const Try one = run_with(s, smaller);
    if (!one.cured) continue;
    return {answer.text(), fmt::format("--lr {} {}", number_text(lr / divisor), one.text), ""};
  }
  return {answer.text(), "", fmt::format("tried down to {}", number_text(lr / kLrDivisors.back()))};
}

}  // namespace

Advice train_advice(const Trainer& trainer, const Diagnosis& diagnosis, const std::vector<StepResult>& steps) {
  const Seen seen{trainer, diagnosis, steps};
  std::string failed;
  for (const auto rule : kRules) {
    const Answer answer = rule(seen);
    if (!answer) continue;
    Advice advice = tried(seen, answer);
    if (advice.failed.empty()) return advice;
    if (failed.empty()) failed = answer.text() + " (" + advice.failed + ")";
  }
  return {"", "", failed};
}

}  // namespace ampcheck::tools
