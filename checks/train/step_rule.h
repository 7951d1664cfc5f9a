// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "checks/train/optimizer_choice.h"

namespace ampcheck::checks::train {

/// An optimizer beside the first one, of some layers alone. How it computes (fused, weights, moments) is as of the
/// first.
struct LayerOptimizer {
  std::vector<std::string> layers;  ///< patterns of layers or of parameters, with * and ?
  OptimizerChoice choice;
  /// Its gradients are clipped by themselves, as clip_grad_norm_ of its parameters after its unscale_, and are no part
  /// of the norm of the others; both negative: with the others.
  double clip_norm = -1, clip_value = -1;

  bool clips_alone() const { return clip_norm >= 0 || clip_value >= 0; }
  bool has(const std::string& parameter) const;
};

/// Largest norm of gradients together, and largest magnitude of an element; 0: not clipped.
struct ClipRule {
  double norm = 0, value = 0;
  bool clips() const { return norm > 0 || value > 0; }
};

/// How a step goes on from its gradients, in every arithmetic.
struct StepRule {
  OptimizerChoice optimizer;                 ///< of all parameters that no further one has
  std::vector<LayerOptimizer> further = {};  ///< each skips by itself, and the scale moves with what any of them found
  bool backward_each =
      false;  ///< a backward for each loss of the net, one after the other on one graph; or one of their sum
  std::string schedule =
      {};              ///< of the learning rates, as make_schedule() reads it; it follows the updates, not the steps
  int accumulate = 1;  ///< micro-batches a step and rank; the loss of each counts 1/accumulate
  int ranks = 1;  ///< data-parallel: each has its own micro-batches (rank r the r-th of every `ranks`); gradients are
                  ///< their mean
  double loss_weight = 1;   ///< the gradient is that of this times the loss
  double grad_penalty = 0;  ///< this times the 2-norm of the loss's gradient is added to the loss; 0: none
  double clip_norm = 0;     ///< of all gradients together that no optimizer clips alone; 0: not clipped
  double clip_value = 0;    ///< of each element of these; 0: not clipped

  /// Of optimizer k, 0 being the first; a further one with how the first computes.
  OptimizerChoice choice(std::size_t k) const;
  std::size_t optimizers() const { return 1 + further.size(); }
  /// How the gradients are clipped that optimizer k clips alone; of 0 all others.
  ClipRule clip_of(std::size_t k) const;
  /// With which of them a parameter's gradient is clipped.
  std::size_t clipped_with(const std::string& parameter) const;
  bool clips() const;
  /// The same on fp64 weights.
  StepRule in_fp64() const;
};

/// "optimizer 2 (adam of head)", for messages.
std::string optimizer_text(const StepRule& rule, std::size_t k);

}  // namespace ampcheck::checks::train
