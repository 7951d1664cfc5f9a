// SPDX-License-Identifier: Apache-2.0
// Why a run in mixed precision goes wrong: the causes that a diagnosis tells apart, and what would decide each.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace ampcheck::checks::diagnose {

/// In the order of the table; D1 is 1.
enum class Cause : std::uint8_t {
  none,
  forward_overflow,
  scale_probing,
  scaler_collapse,
  scale_infinite,
  gradient_underflow,
  clip_before_unscale,
  found_inf_incomplete,
  replica_drift,
  update_stagnation,
  accumulator_stagnation,
  optimizer_underflow,
  second_moment_lag,
  cancellation,
  inner_overflow,
  low_accumulator,
  count_overflow,
  mask_sentinel,
  biased_rounding,
  position_precision,
  decision_flips,
  low_reduction,
  fp8_scale,
  block_clamp,
  loss_cancellation,
  recompute_differs,
  moved_boundary,
  nan_killed,
  poisoned_state,
  two_stacks,
  not_repeatable,
  logit_growth,
  scale_placement,
  not_numerics,
  fp8_history,
  fp8_format,
  fp8_inverse,
  wrong_kernel,
};
inline constexpr int kCauses = 37;

/// What kind of repair a cause asks for.
enum class CauseClass : std::uint8_t {
  range,
  scaler,
  optimizer,
  accuracy,
  decision,
  parallel,
  state,
  machine,
  model,
  kernel
};
const char* name(CauseClass kind);

struct CauseInfo {
  Cause cause;
  std::string_view number;  ///< "D1"
  std::string_view name;    ///< stable: scripts may look for it
  CauseClass kind;
  std::string_view what;     ///< a sentence
  std::string_view decides;  ///< the experiment, "E1"
  std::string_view record;   ///< what to record where a run alone cannot decide
  bool harmless = false;     ///< no fault of precision: a control
};
/// All, D1 first.
std::span<const CauseInfo> causes();
const CauseInfo& info(Cause cause);

}  // namespace ampcheck::checks::diagnose
