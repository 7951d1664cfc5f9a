// SPDX-License-Identifier: Apache-2.0
// The optimizers of a run, as torch's recipe for several models, losses and optimizers has them: each parameter has one
// of them, and each of them skips a step by itself when a gradient of its own is not finite.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "checks/train/parameters.h"
#include "checks/train/step_rule.h"
#include "src/amp/grad_scaler.h"

namespace ampcheck::checks::train {

class OptimizerSet {
 public:
  /// Optimizer 0 has the parameters that rule.further leaves. Error where one of these has none, or two want the same
  /// one.
  OptimizerSet(const StepRule& rule, ParameterSet& parameters);
  ~OptimizerSet();

  std::size_t size() const { return optimizers_.size(); }
  BlockOptimizer& at(std::size_t k) { return *optimizers_[k]; }
  const BlockOptimizer& at(std::size_t k) const { return *optimizers_[k]; }
  /// The number of the optimizer that has parameter i of the set.
  std::size_t of(std::size_t i) const { return places_[i].optimizer; }
  // Of parameter i of the set.
  OptimizerState& state(std::size_t i) { return optimizers_[of(i)]->state(places_[i].number); }
  const OptimizerState& state(std::size_t i) const { return optimizers_[of(i)]->state(places_[i].number); }
  const UpdateCounts& counts(std::size_t i) const { return optimizers_[of(i)]->counts(places_[i].number); }
  UpdateCounts counts() const;
  void reset_counts();

  void unscale(GradScaler& scaler);
  /// Each takes its step, or skips it. The scaler is not updated.
  void step(GradScaler& scaler);
  /// Without a scaler.
  void step();
  /// Whether optimizer k moved anything in the last step.
  bool stepped(std::size_t k) const { return stepped_[k]; }
  /// Goes on after so many updates of each.
  void resume_at(std::span<const std::int64_t> updates);

 private:
  struct Place {
    std::size_t optimizer = 0, number = 0;
  };
  std::vector<std::unique_ptr<BlockOptimizer>> optimizers_;
  std::vector<std::unique_ptr<LrSchedule>> schedules_;
  std::vector<Place> places_;
  std::vector<bool> stepped_;
};

}  // namespace ampcheck::checks::train
