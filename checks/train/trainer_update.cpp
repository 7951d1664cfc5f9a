// SPDX-License-Identifier: Apache-2.0
// From the gradients of a step to its update: unscaling, clipping, the optimizers, and what came of it.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "checks/train/graph_entry.h"
#include "checks/train/trainer.h"

namespace ampcheck::checks::train {

namespace {

/// 2-norm of fp32 values: sums side by side, so that no addition waits for the one before.
double norm_of(std::span<const float> values) {
  constexpr std::size_t kSums = 16;
  double sums[kSums] = {};
  std::size_t i = 0;
  for (; i + kSums <= values.size(); i += kSums)
    for (std::size_t k = 0; k < kSums; ++k)
      sums[k] += static_cast<double>(values[i + k]) * static_cast<double>(values[i + k]);
  for (; i < values.size(); ++i) sums[i % kSums] += static_cast<double>(values[i]) * static_cast<double>(values[i]);
  return std::sqrt(std::accumulate(std::begin(sums), std::end(sums), 0.0));
}

std::vector<double> grad_norms(ParameterSet& parameters) {
  std::vector<double> out;
  for (const Parameter& parameter : parameters.all()) {
    const Tensor wide = !parameter.grad.defined() || parameter.grad.dtype() == Dtype::fp32
                            ? parameter.grad
                            : converted(parameter.grad.view(), Dtype::fp32);
    out.push_back(wide.defined() ? norm_of(wide.span<float>()) : 0);
  }
  return out;
}

}  // namespace

void Trainer::unscale() {
  for (Parameter* parameter : parameters_.pointers())  // what clips wants them unscaled first, as apex has it: in fp32
    if (low_gradients() && !scaled_until_update() && parameter->grad.defined() &&
        parameter->grad.dtype() == Dtype::fp16)
      parameter->grad = converted(parameter->grad.view(), Dtype::fp32);
  if (!sharded_) {
    if (scaler_->is_enabled() && !scaled_until_update()) optimizers_->unscale(*scaler_);
    return;
  }
  sharded_->scatter_gradients();
  if (scaled_until_update()) return;  // each rank's optimizer divides, once all ranks agree on what was found
  sharded_->unscale();
  sharded_->gather_gradients();  // for norms and the watch alone
}

void Trainer::clip_gradients(StepResult& result) {
  const std::vector<Clipping> all = sharded_ ? sharded_->clip() : clip(options_.rule, parameters_.pointers());
  if (sharded_ && !all.empty()) sharded_->gather_gradients();
  for (const Clipping& of : all) (of.optimizer == 0 ? result.clipping : result.optimizers[of.optimizer].clipping) = of;
}

/// The update, or its skip, and what the scaler makes of it.
void Trainer::step_optimizer(StepResult& result) {
  if (sharded_) {
    result.stepped = sharded_->step() == sharded_->ranks();
    result.ranks_disagree = !sharded_->agree();
    sharded_->gather_values();
    return;
  }
  const MemoryScope scope(stream_.get());  // of the optimizer's state
  optimizers_->step(*scaler_);
  scaler_->update();
  for (std::size_t k = 0; k < optimizers_->size(); ++k) result.stepped &= optimizers_->stepped(k);
}

/// The gradients without their scale, with their norms before and after.
void Trainer::unscale_gradients(StepResult& result) {
  const bool norms = wants_norms();
  if (step_check_) step_check_->summed(parameters_);
  if (same_weights_) same_weights_->add_gradient(parameters_, result.scale);
  plant(Stage::summed, parameters_);
  if (norms) result.scaled_norms = grad_norms(parameters_);
  unscale();
  plant(Stage::unscaled, parameters_);
  const bool divided = scaler().is_enabled() && !scaled_until_update();
  if (step_check_ && !scaled_until_update()) step_check_->unscaled(parameters_, divided ? result.scale : 1);
  if (norms)
    result.norms = scaler().is_enabled() && !scaled_until_update() ? grad_norms(parameters_) : result.scaled_norms;
  if (scaled_until_update())
    for (double& norm : result.norms) norm /= result.scale;
  for (const double norm : result.norms) result.found_inf |= !std::isfinite(norm);
  if (!watch_ || !watch_->keeps_errors()) return;
  const double roundoff = (options_.dtype == Dtype::fp32 ? kFp16 : format(options_.dtype)).unit_roundoff();
  result.gradient_errors =
      gradient_errors(*reference_.front(), parameters_, {options_.rule, roundoff, watch_->errors(), apart_});
}

/// Clips, updates, and tells the watch of each.
void Trainer::update(StepResult& result) {
  // A norm in fp64 of fp32 elements is finite if they are.
  const auto finite_of = [](const std::vector<double>& norms) {
    std::vector<bool> out;
    for (const double norm : norms) out.push_back(std::isfinite(norm));
    return out;
  };
  std::vector<bool> finite = finite_of(result.norms);
  if (!scaled_until_update()) tell(Phase::unscale, finite_of(result.scaled_norms));
  count_optimizers(result);
  clip_gradients(result);
  if (options_.rule.clips()) {
    plant(Stage::clipped, parameters_);
    if (step_check_) step_check_->clipped(parameters_);
    tell(Phase::clip);
    finite.clear();
  }
  result.lr = optimizers().at(0).lr();
  if (const OptimizerChoice choice = options_.rule.optimizer.with_defaults();
      watch_ && choice.weights == Weights::low && choice.weight_decay > 0)
    result.decay = decay_of(parameters_.pointers(), result.lr, choice.weight_decay);
  before_update(result.scale);
  step_optimizer(result);
  after_update(result);
  tell(Phase::optimizer, finite);
}

/// What each of several optimizers meets, before the update.
void Trainer::count_optimizers(StepResult& result) {
  if (optimizers().size() < 2) return;
  result.optimizers.resize(optimizers().size());
  for (std::size_t k = 0; k < result.optimizers.size(); ++k) result.optimizers[k].lr = optimizers().at(k).lr();
  for (std::size_t i = 0; i < result.norms.size(); ++i)
    result.optimizers[optimizers().of(i)].found_inf |= !std::isfinite(result.norms[i]);
}

/// What came of the step.
void Trainer::count(StepResult& result) {
  skips_ += result.stepped ? 0 : 1;
  result.skips = skips_;
  for (std::size_t k = 0; k < skips_of_.size(); ++k) skips_of_[k] += stepped(k) ? 0 : 1;
  for (std::size_t k = 0; k < result.optimizers.size(); ++k) {
    result.optimizers[k].stepped = stepped(k);
    result.optimizers[k].skips = skips_of_[k];
  }
  result.scale_after = scaler().get_scale();
  result.tracker = scaler().get_growth_tracker();
  const UpdateCounts counts = sharded_ ? sharded_->counts() : optimizers_->counts();
  if (!wants_norms()) result.found_inf = counts.non_finite > 0;
  result.updates = counts;
  if (counts.intended > 0)
    result.stagnant_share = static_cast<double>(counts.stagnant) / static_cast<double>(counts.intended);
  count_progress(result);
}

}  // namespace ampcheck::checks::train
