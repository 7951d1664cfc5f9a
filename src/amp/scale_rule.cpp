// SPDX-License-Identifier: Apache-2.0
#include "src/amp/scale_rule.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string>

#include "src/amp/error.h"
#include "src/amp/state_field.h"

namespace ampcheck {

namespace {

constexpr double kNoCap = std::numeric_limits<double>::infinity();
constexpr double kFp32Max = 0x1.fffffep+127;

// name, init, growth, backoff, window, floor, cap, guard, count, hysteresis, refill, raises, storage, source
constexpr std::array<ScaleRule, 13> kRules = {{
    {"torch", 65536.0, 2.0, 0.5, 2000, 0.0, kNoCap, true, GrowthCount::equals_window, 1, HysteresisRefill::clean_step,
     false, Dtype::fp32, "torch.amp.GradScaler, torch 2.15"},
    {"apex", 65536.0, 2.0, 0.5, 2000, 0.0, 0x1p24, false, GrowthCount::equals_window, 1, HysteresisRefill::clean_step,
     false, Dtype::fp64, "apex.amp LossScaler, NVIDIA/apex b82c6bd7"},
    {"apex_hysteresis", 65536.0, 2.0, 0.5, 2000, 0.0, kNoCap, true, GrowthCount::equals_window, 2,
     HysteresisRefill::clean_step, false, Dtype::fp32, "apex update_scale_hysteresis; the caller chooses all numbers"},
    {"deepspeed", 65536.0, 2.0, 0.5, 1000, 1.0, kNoCap, false, GrowthCount::stable_since_overflow, 2,
     HysteresisRefill::growth, true, Dtype::fp64, "DeepSpeed DynamicLossScaler with its config defaults, 0.19.8"},
    {"deepspeed_consecutive", 65536.0, 2.0, 0.5, 1000, 1.0, kNoCap, false, GrowthCount::stable_since_overflow, 2,
     HysteresisRefill::clean_step, true, Dtype::fp64, "the same with consecutive_hysteresis"},
    {"megatron", 0x1p32, 2.0, 0.5, 1000, 1.0, kNoCap, false, GrowthCount::equals_window, 2, HysteresisRefill::growth,
     false, Dtype::fp32, "Megatron-LM DynamicGradScaler, 00caa53a"},
    {"flax", 65536.0, 2.0, 0.5, 2000, 0x1p-126, kFp32Max, false, GrowthCount::after_window, 1,
     HysteresisRefill::clean_step, false, Dtype::fp32, "flax DynamicScale, 0.12.8"},
    {"jmp", 32768.0, 2.0, 0.5, 2000, 1.0, kNoCap, true, GrowthCount::equals_window, 1, HysteresisRefill::clean_step,
     false, Dtype::fp32, "jmp DynamicLossScale, 0.0.4"},
    {"keras", 32768.0, 2.0, 0.5, 2000, 0.0, kNoCap, false, GrowthCount::equals_window, 1, HysteresisRefill::clean_step,
     false, Dtype::fp32, "Keras 3 LossScaleOptimizer, 054e2952"},
    {"tf", 32768.0, 2.0, 0.5, 2000, 1.0, kNoCap, true, GrowthCount::equals_window, 1, HysteresisRefill::clean_step,
     false, Dtype::fp32, "TensorFlow's tf.mixed_precision DynamicLossScale"},
    {"apex_fp16_utils", 0x1p32, 2.0, 0.5, 1000, 1.0, kNoCap, false, GrowthCount::equals_window, 1,
     HysteresisRefill::clean_step, false, Dtype::fp64, "apex fp16_utils DynamicLossScaler"},
    {"fairseq", 128.0, 2.0, 0.5, 2000, 0x1.a36e2ep-14, kNoCap, false, GrowthCount::equals_window, 1,
     HysteresisRefill::clean_step, true, Dtype::fp64,
     "fairseq DynamicLossScaler; its window hangs on the number of ranks"},
    {"paddle", 65536.0, 2.0, 0.5, 2000, 1.0, kNoCap, true, GrowthCount::equals_window, 1, HysteresisRefill::clean_step,
     false, Dtype::fp32, "paddle.amp.GradScaler with decr_every_n_nan_or_inf = 1"},
}};

GradScalerOptions options_of(const ScaleRule& rule, bool enabled) {
  GradScalerOptions options;
  options.init_scale = rule.init_scale;
  options.growth_factor = rule.growth_factor;
  options.backoff_factor = rule.backoff_factor;
  options.growth_interval = rule.window;
  options.enabled = enabled;
  return options;
}

}  // namespace

std::span<const ScaleRule> scale_rules() { return kRules; }

const ScaleRule& scale_rule(std::string_view name) {
  std::string all;
  for (const ScaleRule& rule : kRules) {
    if (rule.name == name) return rule;
    all += (all.empty() ? "" : ", ") + std::string(rule.name);
  }
  throw Error("[scaler] rule, got '" + std::string(name) + "', want one of " + all);
}

LossScale::LossScale(const ScaleRule& rule)
    : rule_(rule), scale_(stored(rule.init_scale)), hysteresis_(rule.hysteresis) {}

double LossScale::stored(double scale) const {
  return rule_.storage == Dtype::fp32 ? static_cast<double>(static_cast<float>(scale)) : scale;
}

void LossScale::back_off() {
  if (rule_.raises_at_floor && scale_ == rule_.floor)
    throw AmpError("Exception", "Current loss scale already at minimum - cannot decrease scale anymore. Exiting run.");
  const double lower = stored(scale_ * rule_.backoff_factor);
  scale_ = rule_.floor != 0.0 ? std::max(lower, rule_.floor) : lower;
}

bool LossScale::grows_now() {
  switch (rule_.count) {
    case GrowthCount::equals_window:
      if (++tracker_ != rule_.window) return false;
      tracker_ = 0;
      return true;
    case GrowthCount::after_window:
      if (tracker_ != rule_.window) {
        ++tracker_;
        return false;
      }
      tracker_ = 0;
      return true;
    case GrowthCount::stable_since_overflow: break;
  }
  tracker_ = iteration_ - last_overflow_ - 1;
  return tracker_ > 0 && tracker_ % rule_.window == 0;
}

void LossScale::grow() {
  const double higher = std::min(stored(scale_ * rule_.growth_factor), rule_.cap);
  if (std::isfinite(higher) || !rule_.finite_guard) scale_ = higher;
}

void LossScale::update(bool overflow) {
  if (overflow) {
    tracker_ = 0;
    if (hysteresis_ > 1)
      --hysteresis_;
    else
      back_off();
    last_overflow_ = iteration_;
  } else {
    if (rule_.refill == HysteresisRefill::clean_step) hysteresis_ = rule_.hysteresis;
    if (grows_now()) {
      hysteresis_ = rule_.hysteresis;
      grow();
    }
  }
  ++iteration_;
}

RuleGradScaler::RuleGradScaler(const ScaleRule& rule, bool enabled)
    : GradScaler(options_of(rule, enabled)), moving_(rule) {}

void RuleGradScaler::move_scale(float& scale, std::int32_t& tracker, float found_inf) {
  moving_.rule_.growth_factor = options_.growth_factor;
  moving_.rule_.backoff_factor = options_.backoff_factor;
  moving_.rule_.window = options_.growth_interval;
  moving_.scale_ = static_cast<double>(scale);
  if (moving_.rule_.count != GrowthCount::stable_since_overflow) moving_.tracker_ = tracker;
  moving_.update(found_inf != 0.0f);
  scale = static_cast<float>(moving_.scale_);
  tracker = static_cast<std::int32_t>(moving_.tracker_);
}

GradScaler::StateDict RuleGradScaler::state_dict() const {
  StateDict state = GradScaler::state_dict();
  if (!is_enabled()) return state;
  state["hysteresis_tracker"] = moving_.hysteresis_;
  state["cur_iter"] = static_cast<double>(moving_.iteration_);
  state["last_overflow_iter"] = static_cast<double>(moving_.last_overflow_);
  return state;
}

void RuleGradScaler::load_state_dict(const StateDict& state) {
  GradScaler::load_state_dict(state);
  if (!is_enabled()) return;
  moving_.hysteresis_ = counted_field<std::int32_t>(state, "hysteresis_tracker", kMostSteps);
  moving_.iteration_ = counted_field<std::int64_t>(state, "cur_iter");
  moving_.last_overflow_ = counted_field<std::int64_t>(state, "last_overflow_iter");
}

}  // namespace ampcheck
