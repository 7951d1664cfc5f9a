// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
// Runs in fp8 that leave their recipe, and healthy ones.
#include "checks/diagnose/planted.h"
#include "checks/diagnose/planted_nets.h"

namespace ampcheck::checks::diagnose {

namespace {

/// Tanh between two layers, and one more layer: data of changing size, so that scales have to move.
Subject in_fp8(const char* recipe, const std::optional<train::Fp8Fault>& fault) {
  const auto gain = [](std::int64_t batch) { return batch % 5 == 0 ? 4.0 : 1.0; };
  const auto middle = [](Tape& t, Var h) {
    return models::unary(t, "gelu", models::linear(t, "mid", models::unary(t, "tanh", h), 64));
  };
  Subject out = subject_of(class_net(middle, gain), Dtype::bf16, 24);
  out.options.fp8 = train::read_fp8_recipe(recipe);
  out.options.planted_fp8 = fault;
  out.options.judge = train::JudgeMode::sampled;
  return out;
}

}  // namespace

std::vector<PlantedRun> planted_fp8() {
  using enum Cause;
  return {
      {"fp8_stale",
       fp8_scale,
       "scales in fp8 that no longer move",
       {},
       -1,
       [] { return in_fp8("delayed", train::Fp8Fault{.frozen_after = 2}); }},
      {"fp8_stale_short",
       fp8_scale,
       "the same with a short history",
       {},
       -1,
       [] { return in_fp8("delayed,amax_history_len=3", train::Fp8Fault{.frozen_after = 4}); }},
      {"fp8_jumps",
       fp8_scale,
       "data that become four times as large where the history has two steps",
       {},
       -1,
       [] { return in_fp8("delayed,amax_history_len=2,margin=1", {}); }},
      {"fp8_history_of_one",
       fp8_history,
       "a history of one step where 1024 are asked for",
       {},
       -1,
       [] { return in_fp8("delayed", train::Fp8Fault{.amax_history_len = 1}); }},
      {"fp8_history_too_long",
       fp8_history,
       "a history of 8 steps where 2 are asked for",
       {},
       -1,
       [] { return in_fp8("delayed,amax_history_len=2", train::Fp8Fault{.amax_history_len = 8}); }},
      {"fp8_e4m3_gradients",
       fp8_format,
       "gradients in e4m3",
       {},
       -1,
       [] { return in_fp8("delayed", train::Fp8Fault{.gradients_in_forward = true}); }},
      {"fp8_times_scale",
       fp8_inverse,
       "products that read numbers times their scale",
       {},
       -1,
       [] { return in_fp8("current", train::Fp8Fault{.times_scale = true}); }},
      {"healthy_fp8_delayed", none, "healthy", {}, -1, [] { return in_fp8("delayed", {}); }},
      {"healthy_fp8_margin", none, "healthy", {}, -1, [] { return in_fp8("delayed,amax_history_len=8,margin=1", {}); }},
      {"healthy_fp8_current", none, "healthy", {}, -1, [] { return in_fp8("current", {}); }},
      {"healthy_fp8_e4m3", none, "healthy", {}, -1, [] { return in_fp8("current,fp8_format=E4M3", {}); }},
  };
}

}  // namespace ampcheck::checks::diagnose
