// SPDX-License-Identifier: Apache-2.0
#include "src/amp/grad_scaler.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "src/amp/blocks.h"
#include "src/amp/error.h"
#include "src/amp/state_field.h"
#include "src/amp/unscale.h"

namespace ampcheck {

namespace {

/// torch refuses to store a finite number above fp32's range; infinity and NaN may be stored.
float checked_float(double value) {
  if (std::isfinite(value) && std::fabs(value) > static_cast<double>(std::numeric_limits<float>::max()))
    throw AmpError("RuntimeError", "value cannot be converted to type float without overflow");
  return static_cast<float>(value);
}

/// in * factor in fp32 (fp64 where one of the two dtypes is), rounded to out's dtype.
template <class T>
void multiply(const TensorView& in, float factor, const TensorView& out) {
  T buffer[kBlock];
  for (std::int64_t at = 0; at < in.count(); at += kBlock) {
    const std::int64_t n = std::min<std::int64_t>(kBlock, in.count() - at);
    load_block(in, at, n, buffer);
    for (std::int64_t i = 0; i < n; ++i) buffer[i] *= static_cast<T>(factor);
    store_block(out, at, n, buffer);
  }
}

}  // namespace

const char* name(OptimizerStage stage) {
  switch (stage) {
    case OptimizerStage::READY: return "READY";
    case OptimizerStage::UNSCALED: return "UNSCALED";
    case OptimizerStage::STEPPED: break;
  }
  return "STEPPED";
}

GradScaler::GradScaler(const GradScalerOptions& options) : options_(options) {
  if (!options_.enabled) return;
  if (!(options_.growth_factor > 1.0)) throw AmpError("AssertionError", "The growth factor must be > 1.0.");
  if (!(options_.backoff_factor < 1.0)) throw AmpError("AssertionError", "The backoff factor must be < 1.0.");
}

void GradScaler::make_scale() {
  if (scale_) return;
  scale_ = checked_float(options_.init_scale);
  tracker_ = init_tracker_;
}

void GradScaler::require_scale(const char* caller) const {
  if (!scale_)
    throw AmpError("AssertionError", std::string("Attempted ") + caller +
                                         " but _scale is None.  This may indicate your script did not use "
                                         "scaler.scale(loss or outputs) earlier in the iteration.");
}

Tensor GradScaler::scale(const Tensor& output) {
  if (!options_.enabled) return output;
  if (!output.defined() || !is_computed(output.dtype()))
    throw AmpError("ValueError", "outputs must be a Tensor or an iterable of Tensors");
  make_scale();
  const bool widened = output.shape().rank == 0 && output.dtype() != Dtype::fp64;
  Tensor scaled(widened ? Dtype::fp32 : output.dtype(), output.shape());
  if (output.dtype() == Dtype::fp64)
    multiply<double>(output.view(), *scale_, scaled.view());
  else
    multiply<float>(output.view(), *scale_, scaled.view());
  return scaled;
}

Tensor GradScaler::loss_gradient(const Tensor& loss) {
  Tensor gradient(loss.dtype(), loss.shape());
  const std::vector<double> ones(static_cast<std::size_t>(loss.count()), 1.0);
  from_doubles(ones, gradient.view());
  if (!options_.enabled) return gradient;
  const Tensor scaled = scale(gradient);
  from_doubles(to_doubles(scaled.view()), gradient.view());
  return gradient;
}

std::map<int, float> GradScaler::unscale_grads(Optimizer& optimizer, float inv_scale, bool fp16_too) {
  std::map<int, std::vector<TensorView>> by_device;
  for (Parameter* parameter : optimizer.parameters()) {
    if (!parameter->grad.defined()) continue;
    if (parameter->grad.dtype() == Dtype::fp16) {
      if (!fp16_too) throw AmpError("ValueError", "Attempting to unscale FP16 gradients.");
      coalesce(*parameter);  // duplicates may overflow when they are summed
    }
    by_device[parameter->device].push_back(parameter->grad.view());
  }
  std::map<int, float> found;
  for (const auto& [device, grads] : by_device) {
    float& flag = found[device];
    flag = 0.0f;
    if (unscale_with_)
      unscale_with_(grads, inv_scale, flag);
    else
      check_and_unscale(grads, inv_scale, flag);
  }
  return found;
}

void GradScaler::agree(std::map<int, float>&, bool) {}

void GradScaler::unscale_(Optimizer& optimizer) {
  if (!options_.enabled) return;
  require_scale("unscale_");
  PerOptimizer& state = per_optimizer_[&optimizer];
  if (state.stage == OptimizerStage::UNSCALED)
    throw AmpError("RuntimeError", "unscale_() has already been called on this optimizer since the last update().");
  if (state.stage == OptimizerStage::STEPPED)
    throw AmpError("RuntimeError", "unscale_() is being called after step().");
  state.found_inf = unscale_grads(optimizer, inverse_scale(*scale_), allow_fp16());
  agree(state.found_inf, false);
  state.stage = OptimizerStage::UNSCALED;
}

std::optional<double> GradScaler::step_amp_scaling(Optimizer& optimizer, PerOptimizer& state, const Closure& closure) {
  if (state.stage == OptimizerStage::READY) {
    state.found_inf = unscale_grads(optimizer, 1.0f, true);
    agree(state.found_inf, true);
    optimizer.grad_scale = *scale_ * optimizer.grad_scale.value_or(1.0f);
  }
  float found = 0.0f;
  for (const auto& [device, flag] : state.found_inf) found += flag;
  optimizer.found_inf = found;
  const std::optional<double> loss = optimizer.step(closure);
  state.stage = OptimizerStage::STEPPED;
  optimizer.grad_scale.reset();
  optimizer.found_inf.reset();
  return loss;
}

std::optional<double> GradScaler::step(Optimizer& optimizer, const Closure& closure) {
  if (!options_.enabled) return optimizer.step(closure);
  require_scale("step");
  PerOptimizer& state = per_optimizer_[&optimizer];
  if (state.stage == OptimizerStage::STEPPED)
    throw AmpError("RuntimeError", "step() has already been called since the last update().");
  if (optimizer.supports_amp_scaling()) return step_amp_scaling(optimizer, state, closure);
  if (state.stage == OptimizerStage::READY) unscale_(optimizer);
  if (state.found_inf.empty()) throw AmpError("AssertionError", "No inf checks were recorded for this optimizer.");
  float found = 0.0f;
  for (const auto& [device, flag] : state.found_inf) found += flag;
  std::optional<double> loss;
  if (found == 0.0f) loss = optimizer.step(closure);
  state.stage = OptimizerStage::STEPPED;
  return loss;
}

void GradScaler::move_scale(float& scale, std::int32_t& tracker, float found_inf) {
  update_scale(scale, tracker, found_inf, options_.growth_factor, options_.backoff_factor, options_.growth_interval);
}

void GradScaler::update() {
  if (!options_.enabled) return;
  require_scale("update");
  float found = 0.0f;
  bool recorded = false;
  for (const auto& [optimizer, state] : per_optimizer_)
    for (const auto& [device, flag] : state.found_inf) {
      found += flag;
      recorded = true;
    }
  if (!recorded) throw AmpError("AssertionError", "No inf checks were recorded prior to update.");
  move_scale(*scale_, *tracker_, found);
  per_optimizer_.clear();
}

void GradScaler::update(double new_scale) {
  if (!options_.enabled) return;
  require_scale("update");
  scale_ = checked_float(new_scale);
  per_optimizer_.clear();
}

void GradScaler::update(const Tensor& new_scale, bool requires_grad) {
  if (!options_.enabled) return;
  require_scale("update");
  if (!new_scale.defined() || new_scale.count() != 1 || requires_grad)
    throw AmpError("AssertionError",
                   "new_scale should be a float or a 1-element torch.cuda.FloatTensor or torch.FloatTensor with "
                   "requires_grad=False.");
  if (new_scale.shape().rank != 0)
    throw AmpError("RuntimeError", "output with shape [] doesn't match the broadcast shape " + new_scale.shape().str());
  scale_ = static_cast<float>(to_doubles(new_scale.view())[0]);
  per_optimizer_.clear();
}

double GradScaler::get_scale() const {
  if (!options_.enabled) return 1.0;
  return scale_ ? static_cast<double>(*scale_) : options_.init_scale;
}

std::int32_t GradScaler::get_growth_tracker() const {
  if (!options_.enabled) return 0;
  return tracker_.value_or(init_tracker_);
}

GradScaler::StateDict GradScaler::state_dict() const {
  if (!options_.enabled) return {};
  return {{"scale", get_scale()},
          {"growth_factor", options_.growth_factor},
          {"backoff_factor", options_.backoff_factor},
          {"growth_interval", options_.growth_interval},
          {"_growth_tracker", get_growth_tracker()}};
}

void GradScaler::load_state_dict(const StateDict& state) {
  if (!options_.enabled) return;
  if (state.empty())
    throw AmpError(
        "RuntimeError",
        "The source state dict is empty, possibly because it was saved from a disabled instance of GradScaler.");
  options_.init_scale = state_field(state, "scale");
  if (scale_) scale_ = checked_float(options_.init_scale);
  options_.growth_factor = state_field(state, "growth_factor");
  options_.backoff_factor = state_field(state, "backoff_factor");
  options_.growth_interval = counted_field<std::int32_t>(state, "growth_interval");
  init_tracker_ = counted_field<std::int32_t>(state, "_growth_tracker", kMostSteps);
  if (tracker_) tracker_ = init_tracker_;
}

GradScaler GradScaler::pickled() const {
  GradScaler copy = *this;
  if (!options_.enabled) return copy;
  if (!per_optimizer_.empty())
    throw AmpError("AssertionError",
                   "A GradScaler instance may only be pickled at the beginning of an iteration, or at the end after "
                   "scaler.update().");
  copy.options_.init_scale = get_scale();
  copy.init_tracker_ = get_growth_tracker();
  copy.scale_.reset();
  copy.tracker_.reset();
  return copy;
}

OptimizerStage GradScaler::stage(const Optimizer& optimizer) const {
  const auto found = per_optimizer_.find(&optimizer);
  return found == per_optimizer_.end() ? OptimizerStage::READY : found->second.stage;
}

std::map<int, float> GradScaler::found_inf(const Optimizer& optimizer) const {
  const auto found = per_optimizer_.find(&optimizer);
  return found == per_optimizer_.end() ? std::map<int, float>{} : found->second.found_inf;
}

}  // namespace ampcheck
