// SPDX-License-Identifier: Apache-2.0
// The carried shadow: the whole training in fp64, by the formulas, with fp64 parameters and the same optimizer in fp64.
// No loss scale, and so no step is skipped.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "checks/models/fp64_tape.h"
#include "checks/train/net.h"
#include "checks/train/optimizer_set.h"
#include "checks/train/step_rule.h"

namespace ampcheck::checks::train {

class Fp64Run {
 public:
  Fp64Run(const Net& net, const StepRule& rule, std::uint64_t seed);
  ~Fp64Run();
  /// Starts from these values instead, widened.
  void start_from(ParameterSet& parameters);

  /// One step: the next micro-batches, then the optimizer. Returns the loss.
  double step();
  /// The loss that step() would return, and nothing else of it.
  double loss();
  /// Whether the next steps' records have what moves the norm of the gradient.
  void trace_gradient_norm(bool on) { traces_norm_ = on; }
  /// What the micro-batches of the last step met, those of all ranks in turn; their cotangents are of a rank's own
  /// loss.
  const std::vector<models::StepRecord>& records() const { return records_; }
  /// Of a rule with a backward for each loss: the cotangents of each loss, those of a micro-batch in turn. Empty
  /// otherwise.
  const std::vector<models::StepRecord>& records_by_loss() const { return by_loss_; }
  /// Micro-batch `batch` of the last step again, at the weights from before it: its forward on a tape of its own.
  void run_again(int batch, const std::function<void(models::Fp64Tape&)>& use);
  std::int64_t steps() const { return steps_; }
  /// 2-norm of the loss's gradient, mean over the micro-batches of the last step; with a penalty alone.
  double grad_norm() const { return grad_norm_; }

  /// The gradient of a parameter in the last step, before it was clipped; not defined where there is none.
  const Tensor& gradient(const Parameter& parameter) const;

  // For checkpoints.
  ParameterSet& parameters() { return parameters_; }
  OptimizerSet* optimizers() { return optimizers_.get(); }
  void resume_at(std::int64_t step);
  /// Makes parameters and optimizer, which come to be with the first step otherwise.
  void prepare();

 private:
  void take_values();
  double run_micro_batch(int micro, int batches, double share);
  Net net_;
  StepRule rule_;
  models::Parameters values_;
  std::vector<std::pair<int, std::string>> taken_;  ///< parameters whose values of this step are in the last record
  ParameterSet parameters_;
  std::unique_ptr<OptimizerSet> optimizers_;
  std::vector<models::StepRecord> records_, by_loss_;
  std::map<std::string, Tensor> unclipped_;  ///< where clipping changes gradients
  std::int64_t steps_ = 0;
  double grad_norm_ = 0;
  bool traces_norm_ = false;
};

}  // namespace ampcheck::checks::train
