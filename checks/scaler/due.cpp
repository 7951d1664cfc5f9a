// SPDX-License-Identifier: Apache-2.0
// What is due, call by call: the scale moves as the rule says, gradients are divided by the factor that their loss was
// multiplied with, a gradient that is not finite skips its optimizer's step and nothing else.
#include <cmath>

#include "checks/scaler/calls.h"
#include "src/amp/error.h"

namespace ampcheck::checks::scaler {

namespace {

enum class Stage : std::uint8_t { ready, unscaled, stepped };

struct Optimizer {
  Stage stage = Stage::ready;
  bool graded = false, recorded = false, found = false, halved = false;
  Values grads{}, weights{}, momentum{};
  std::int64_t steps = 0;
};

float fp32(double x) { return static_cast<float>(x); }

class Due {
 public:
  Due(const ScaleRule& rule, const Setup& setup) : setup_(setup), scale_(configured(rule, setup)) {}

  /// False behind an error.
  bool take(const Call& call, Reply& reply) {
    Optimizer& o = optimizers_[static_cast<std::size_t>(call.rank)][static_cast<std::size_t>(call.optimizer)];
    reply.error = !allowed(call, o);
    if (!reply.error) reply.error = !act(call, o, reply);
    reply.scale = reply.other_scale = setup_.enabled ? scale_.scale() : 1;
    reply.grads = o.grads;
    reply.weights = o.weights;
    reply.steps = o.steps;
    reply.schedule = schedule_;
    return !reply.error;
  }

 private:
  bool allowed(const Call& call, const Optimizer& o) const {
    if (!setup_.enabled) return true;
    switch (call.op) {
      case Op::unscale: return scaled_ && o.stage == Stage::ready;
      case Op::step: return scaled_ && o.stage != Stage::stepped && (o.stage == Stage::ready ? o.graded : o.recorded);
      case Op::update: {
        bool any = false;
        for (const auto& rank : optimizers_)
          for (const Optimizer& each : rank) any |= each.recorded;
        return scaled_ && any;
      }
      default: return true;
    }
  }

  bool act(const Call& call, Optimizer& o, Reply& reply) {
    switch (call.op) {
      case Op::scale:
      case Op::scale_half:
        scaled_ = true;
        factor_ = setup_.enabled ? scale_.scale() : 1;
        reply.scaled = factor_;
        return true;
      case Op::backward:
        for (std::size_t i = 0; i < kElements; ++i)
          o.grads[i] = fp32((o.graded ? o.grads[i] : 0) + call.grads[i] * (call.raw ? 1 : factor_));
        o.graded = true;
        return true;
      case Op::unscale:
        if (setup_.enabled) unscale(call);
        return true;
      case Op::corrupt: o.grads[0] = HUGE_VAL; return true;
      case Op::step: step(call, o); return true;
      case Op::schedule:
        if (!skipped_) ++schedule_;
        return true;
      case Op::update: return update();
      case Op::zero:
        for (auto& rank : optimizers_)
          for (Optimizer& each : rank) {
            each.graded = false;
            each.grads = {};
          }
        return true;
      case Op::set_window:
      case Op::reload: return true;
    }
    return true;
  }

  /// Ranks check together: what one finds, all have found.
  void unscale(const Call& call) {
    const auto number = static_cast<std::size_t>(call.optimizer);
    bool found = false;
    for (int rank = 0; rank < setup_.ranks; ++rank) {
      Optimizer& o = optimizers_[static_cast<std::size_t>(rank)][number];
      if (!o.graded) continue;
      for (const double g : o.grads) found |= !std::isfinite(g);
    }
    Optimizer& mine = optimizers_[static_cast<std::size_t>(call.rank)][number];
    mine.found = found;
    mine.recorded = mine.graded;
    mine.stage = Stage::unscaled;
    for (double& g : mine.grads) g = fp32(g / scale_.scale());
  }

  void step(const Call& call, Optimizer& o) {
    if (setup_.enabled && o.stage == Stage::ready) unscale(call);
    o.stage = Stage::stepped;
    skipped_ = setup_.enabled && o.found;
    if (skipped_) return;
    for (std::size_t i = 0; i < kElements; ++i) {
      o.momentum[i] = fp32(o.momentum[i] * 0.5 + o.grads[i]);
      o.weights[i] = fp32(o.weights[i] - o.momentum[i] / 16);
    }
    ++o.steps;
  }

  bool update() {
    if (!setup_.enabled) return true;
    bool found = false;
    for (auto& rank : optimizers_)
      for (Optimizer& each : rank) {
        found |= each.recorded && each.found;
        each.recorded = each.found = false;
        each.stage = Stage::ready;
      }
    try {
      scale_.update(found);
    } catch (const AmpError&) {
      return false;
    }
    return true;
  }

  Setup setup_;
  LossScale scale_;
  std::array<std::array<Optimizer, 2>, 2> optimizers_;
  bool scaled_ = false, skipped_ = false;
  double factor_ = 1;
  std::int64_t schedule_ = 0;
};

}  // namespace

std::vector<Reply> what_is_due(const ScaleRule& rule, const Setup& setup, std::span<const Call> calls) {
  Due due(rule, setup);
  std::vector<Reply> out;
  for (const Call& call : calls) {
    out.emplace_back();
    if (!due.take(call, out.back())) break;
  }
  return out;
}

ScaleRule configured(ScaleRule rule, const Setup& setup) {
  rule.init_scale = setup.init_scale;
  rule.growth_factor = setup.growth_factor;
  rule.backoff_factor = setup.backoff_factor;
  rule.window = setup.window;
  return rule;
}

}  // namespace ampcheck::checks::scaler
