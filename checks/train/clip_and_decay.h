// SPDX-License-Identifier: Apache-2.0
// What clipping and weight decay did in a step, counted.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "checks/train/step_rule.h"
#include "src/amp/parameter.h"

namespace ampcheck::checks::train {

/// What clipping did.
struct Clipping {
  std::optional<double> norm = {};  ///< 2-norm of all gradients together before it, where a largest norm was given
  double factor = 1;                ///< by which they were multiplied; 1: the norm was small enough, or not finite
  std::int64_t elements = 0;        ///< whose magnitude was beyond a largest value
  std::size_t optimizer = 0;        ///< that clips these gradients alone; 0: all others
  bool clipped() const { return factor < 1 || elements > 0; }
};

/// A step of one of several optimizers.
struct OptimizerStep {
  bool found_inf = false, stepped = true;
  int skips = 0;  ///< so far
  double lr = 0;
  std::optional<Clipping> clipping = {};  ///< of one that clips its gradients alone
};

/// What rounding left of weight decay.
struct DecayCount {
  std::int64_t weights = 0;  ///< that are not zero, and so decay
  std::int64_t lost = 0;     ///< of these: the decay alone moves them by less than half their spacing
};

/// Clips to a largest 2-norm of gradients together, then to a largest magnitude of each element: those of an optimizer
/// that clips alone by themselves, and all others. What clips, in the order of the optimizers.
std::vector<Clipping> clip(const StepRule& rule, const std::vector<Parameter*>& parameters);

/// Of the parameters' stored values, all in fp16 or bf16, one step's decay of lr x weight_decay x value.
DecayCount decay_of(const std::vector<Parameter*>& parameters, double lr, double weight_decay);

}  // namespace ampcheck::checks::train
