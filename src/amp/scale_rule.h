// SPDX-License-Identifier: Apache-2.0
// How loss scales move in the field's frameworks: one state machine, one row of facts each.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string_view>

#include "src/amp/grad_scaler.h"

namespace ampcheck {

/// When a run of clean steps makes the scale grow.
enum class GrowthCount : std::uint8_t {
  equals_window,         ///< the clean step that makes the tracker equal the window (torch, apex, Megatron, jmp, Keras)
  after_window,          ///< the step after that: compared before it is incremented (flax)
  stable_since_overflow  ///< every `window` steps from the window+1st clean one on; growth resets nothing (DeepSpeed)
};

/// What fills hysteresis up again.
enum class HysteresisRefill : std::uint8_t {
  growth,     ///< growth alone: overflows that do not follow one another add up (Megatron, DeepSpeed)
  clean_step  ///< any clean step (apex's update_scale_hysteresis, DeepSpeed with consecutive_hysteresis)
};

struct ScaleRule {
  const char* name;
  double init_scale, growth_factor, backoff_factor;
  std::int32_t window;
  double floor;       ///< 0: none
  double cap;         ///< infinity: none
  bool finite_guard;  ///< growth that is not finite is refused, the tracker is reset all the same
  GrowthCount count;
  std::int32_t hysteresis;  ///< this many overflows until the scale backs off; 1: at once
  HysteresisRefill refill;
  bool raises_at_floor;  ///< an overflow at the floor ends the run (DeepSpeed)
  Dtype storage;         ///< fp32, or fp64 where the scale is a Python number
  const char* source;
};

/// torch, apex, apex_hysteresis, apex_fp16_utils, deepspeed, deepspeed_consecutive, megatron, flax, jmp, keras, tf,
/// fairseq, paddle: with their defaults.
std::span<const ScaleRule> scale_rules();
/// The rule of that name. Throws Error, naming all, if there is none.
const ScaleRule& scale_rule(std::string_view name);

/// A scale on its way.
class LossScale {
 public:
  explicit LossScale(const ScaleRule& rule);

  /// One iteration's outcome. Throws AmpError (Exception) at the floor of a rule that raises there.
  void update(bool overflow);

  double scale() const { return scale_; }
  std::int64_t tracker() const { return tracker_; }
  std::int32_t hysteresis() const { return hysteresis_; }
  const ScaleRule& rule() const { return rule_; }

 private:
  friend class RuleGradScaler;
  void back_off();
  bool grows_now();
  void grow();
  double stored(double scale) const;

  ScaleRule rule_;
  double scale_;
  std::int64_t tracker_ = 0;
  std::int32_t hysteresis_;
  std::int64_t iteration_ = 0, last_overflow_ = -1;
};

/// GradScaler's calls, stages and checks with the scale moved by another rule. state_dict() has three more fields:
/// hysteresis_tracker, cur_iter, last_overflow_iter.
class RuleGradScaler : public GradScaler {
 public:
  explicit RuleGradScaler(const ScaleRule& rule, bool enabled = true);
  StateDict state_dict() const override;
  void load_state_dict(const StateDict& state) override;
  const ScaleRule& rule() const { return moving_.rule(); }

 protected:
  void move_scale(float& scale, std::int32_t& tracker, float found_inf) override;

 private:
  LossScale moving_;
};

}  // namespace ampcheck
