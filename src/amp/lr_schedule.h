// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>

#include "src/amp/optimizer.h"

namespace ampcheck {

/// The factor of the base learning rate at step t = 0, 1, ...
using LrFactor = std::function<double(std::int64_t)>;

/// gamma^(t / step_size), rounded down. torch's StepLR.
LrFactor step_lr(std::int64_t step_size, double gamma = 0.1);
/// (1 + cos(pi t / period)) / 2 from 1 down to `floor` (a share of the base rate). torch's CosineAnnealingLR with
/// eta_min = floor * base.
LrFactor cosine_lr(std::int64_t period, double floor = 0.0);
/// (t + 1) / warmup for t < warmup, then linear to zero at `total`; total = 0: constant after the warm-up.
LrFactor warmup_linear_lr(std::int64_t warmup, std::int64_t total = 0);

/// Sets an optimizer's learning rate. By default a step that a scaler skipped does not advance it: a schedule counts
/// updates that moved something, not calls.
class LrSchedule {
 public:
  enum class Follows : std::uint8_t {
    updates,  ///< t = updates of the optimizer so far
    calls     ///< t = calls of step() here, as in torch, skipped or not
  };

  /// Sets the rate of t = 0 at once. The optimizer is borrowed; its rate now is the base rate.
  LrSchedule(Optimizer& optimizer, LrFactor factor, Follows follows = Follows::updates);

  /// Once per iteration, after the optimizer's (or scaler's) step.
  void step();

  /// Goes on from t, as after a checkpoint: the optimizer's rate was the base rate when this was made, its updates
  /// count from here.
  void resume_at(std::int64_t t);

  std::int64_t t() const { return t_; }
  double lr() const { return optimizer_.lr(); }
  /// The first step() came before any optimizer step: torch warns "Detected call of `lr_scheduler.step()` before
  /// `optimizer.step()`". An optimizer that skips by itself (fused) was called, so torch stays silent although nothing
  /// moved; updates() tells.
  bool stepped_too_early() const { return too_early_; }

 private:
  Optimizer& optimizer_;
  LrFactor factor_;
  Follows follows_;
  double base_;
  std::int64_t updates_before_, calls_before_, t_ = 0, steps_ = 0;
  bool too_early_ = false;
};

}  // namespace ampcheck
