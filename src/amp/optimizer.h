// SPDX-License-Identifier: Apache-2.0
// Optimizers as torch.optim has them: what a gradient scaler steps.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "src/amp/parameter.h"

namespace ampcheck {

/// Evaluates the model again and returns the loss; may set the gradients.
using Closure = std::function<double()>;

/// What an optimizer remembers of one parameter, by torch's names: "momentum_buffer", "step", "exp_avg", ...
using OptimizerState = std::map<std::string, Tensor>;

/// Which found flag makes an optimizer that handles the scale itself skip its update.
enum class SkipRule {
  nonzero,           ///< any value but 0 (NaN too): a flag summed over devices or ranks still means "skip"
  torch_exactly_one  ///< torch's fused kernels: only 1; with 2 the parameters move and the step counter goes down
};

/// Base of all optimizers. The parameters are borrowed and must outlive it.
class Optimizer {
 public:
  Optimizer(std::vector<Parameter*> parameters, double lr)
      : parameters_(std::move(parameters)), lr_(lr), state_(parameters_.size()) {}
  virtual ~Optimizer() = default;
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  /// Runs the closure, if any, then updates every parameter that has a gradient. Returns the closure's value.
  std::optional<double> step(const Closure& closure = {});
  /// Drops the gradients (torch's zero_grad(set_to_none=True)).
  void zero_grad();

  /// True: a scaler sets grad_scale and found_inf and always calls step(); the optimizer unscales and skips by itself.
  virtual bool supports_amp_scaling() const { return false; }

  std::span<Parameter* const> parameters() const { return parameters_; }
  double lr() const { return lr_; }
  void set_lr(double lr) { lr_ = lr; }
  /// How often step() returned. A skip that the optimizer decides itself counts: nothing moved, but step() was called.
  std::int64_t step_calls() const { return step_calls_; }
  /// How often step() really moved something: what a schedule should follow.
  std::int64_t updates() const { return updates_; }
  /// State of parameter i; empty before its first update. For checkpoints: load by assigning.
  OptimizerState& state(std::size_t i) { return state_[i]; }
  const OptimizerState& state(std::size_t i) const { return state_[i]; }

  /// Bytes of all state tensors as they are now (none before the first update).
  std::int64_t state_bytes() const;

  // Set by a scaler for the length of one step(). A grad_scale set before is multiplied with the scaler's.
  std::optional<float> grad_scale;
  std::optional<float> found_inf;

 protected:
  /// One update of all parameters; false if it was skipped (found_inf).
  virtual bool update() = 0;

  std::vector<Parameter*> parameters_;
  double lr_;

 private:
  std::vector<OptimizerState> state_;
  std::int64_t step_calls_ = 0, updates_ = 0;
};

}  // namespace ampcheck
