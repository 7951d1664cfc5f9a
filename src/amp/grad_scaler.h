// SPDX-License-Identifier: Apache-2.0
// torch.amp.GradScaler as a state machine, with the same rules, defaults and messages (torch 2.15).
//
// What torch has and this has not, because it belongs to Python:
// - outputs that are no tensors (an int, None, a str) do not compile here, instead of ValueError; an undefined Tensor
// is
//   torch's None and does raise it;
// - update(1024), an int, raises AttributeError in torch; here it is 1024.0;
// - a closure has one form here, torch's positional one, which is called; the keyword closure= raises RuntimeError
// there;
// - a disabled scaler has its factors here; torch's has no such attributes (AttributeError);
// - the deprecated contract in which step() takes the scaler as the keyword grad_scaler;
// - a device that is not there makes torch's scaler a silent no-op: here enabled says what is wanted.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <ranges>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "src/amp/multi_tensor.h"
#include "src/amp/optimizer.h"

namespace ampcheck {

/// Defaults are torch's. The factors are checked on construction only, and only if enabled; the setters check nothing.
struct GradScalerOptions {
  double init_scale = 65536.0;          ///< not checked; a finite value above fp32's range fails in the first scale()
  double growth_factor = 2.0;           ///< > 1
  double backoff_factor = 0.5;          ///< < 1
  std::int32_t growth_interval = 2000;  ///< <= 0: the scale never grows
  bool enabled = true;                  ///< false: every call passes through
};

enum class OptimizerStage : std::uint8_t { READY, UNSCALED, STEPPED };
const char* name(OptimizerStage stage);

/// Scales losses, unscales gradients, skips steps whose gradients are not finite, and moves the scale.
/// Per iteration: backward of scale(loss); optionally unscale_(optimizer), then clip; step(optimizer); update().
/// A wrong order throws AmpError with torch's text. Not thread-safe; one scaler per training loop.
class GradScaler {
 public:
  using StateDict = std::map<std::string, double>;

  explicit GradScaler(const GradScalerOptions& options = {});
  virtual ~GradScaler() = default;
  GradScaler(const GradScaler&) = default;
  GradScaler& operator=(const GradScaler&) = default;

  /// output * scale; the scale comes to be on the first call. Promotion is torch's: a rank-0 fp16 or bf16 output
  /// becomes fp32, any other keeps its dtype (so an fp16 output of rank >= 1 overflows from 65520/scale on). Disabled:
  /// the argument itself.
  virtual Tensor scale(const Tensor& output);
  /// The same for every tensor of a container, a tuple, or any nesting of them.
  template <std::ranges::range Container>
  Container scale(const Container& outputs);
  template <class... Outputs>
  std::tuple<Outputs...> scale(const std::tuple<Outputs...>& outputs);
  /// Scales an element when it is looked at, as torch does with a generator. The tensors must outlive the result.
  class Lazy;
  Lazy scale_lazily(std::span<const Tensor> outputs);

  /// The gradient of sum(scale(loss)) with respect to the loss, in the loss's dtype: what backward starts from. For a
  /// 16-bit loss it is rounded to 16 bits: 65536 is infinite in fp16 while the scaled loss itself may be finite.
  Tensor loss_gradient(const Tensor& loss);

  /// Divides the optimizer's gradients by the scale and records per device whether one was not finite.
  void unscale_(Optimizer& optimizer);
  /// unscale_ unless done, then optimizer.step(closure) unless a gradient was not finite. The gradients of a skipped
  /// step stay as they are. An optimizer that supports_amp_scaling() is always called, with grad_scale and found_inf
  /// set. Returns the closure's value; none if skipped.
  std::optional<double> step(Optimizer& optimizer, const Closure& closure = {});
  /// Moves the scale by what all optimizers found since the last update, and makes them ready again.
  void update();
  /// Sets the scale; the growth tracker stays, and what was found is discarded.
  void update(double new_scale);
  /// Rank 0 only, as in torch, although its message says 1-element.
  void update(const Tensor& new_scale, bool requires_grad = false);

  double get_scale() const;
  double get_growth_factor() const { return options_.growth_factor; }
  double get_backoff_factor() const { return options_.backoff_factor; }
  std::int32_t get_growth_interval() const { return options_.growth_interval; }
  void set_growth_factor(double factor) { options_.growth_factor = factor; }
  void set_backoff_factor(double factor) { options_.backoff_factor = factor; }
  void set_growth_interval(std::int32_t interval) { options_.growth_interval = interval; }
  bool is_enabled() const { return options_.enabled; }

  /// scale, growth_factor, backoff_factor, growth_interval, _growth_tracker; empty if disabled. What was found is not
  /// in it.
  virtual StateDict state_dict() const;
  /// Ignored if disabled. An empty dict throws (RuntimeError), a missing key too (KeyError), after the keys before it
  /// were taken.
  virtual void load_state_dict(const StateDict& state);
  /// What pickling and unpickling gives: the same fields, the scale not yet made. Throws inside an iteration
  /// (AssertionError). A derived scaler's own fields are not in it: use its state_dict().
  GradScaler pickled() const;

  /// How gradients of one device are unscaled: as src/amp/unscale.h does, or by a device in one launch.
  void set_unscale(MultiTensorUnscale unscale) { unscale_with_ = std::move(unscale); }

  // For reports and tests.
  std::optional<float> scale_value() const { return scale_; }  ///< none before the first scale()
  std::optional<std::int32_t> growth_tracker() const { return tracker_; }
  std::int32_t get_growth_tracker() const;
  OptimizerStage stage(const Optimizer& optimizer) const;
  /// By device; empty if nothing was recorded.
  std::map<int, float> found_inf(const Optimizer& optimizer) const;

 protected:
  struct PerOptimizer {
    OptimizerStage stage = OptimizerStage::READY;
    std::map<int, float> found_inf;
  };
  /// fp16 gradients are refused by unscale_ and accepted where they are only checked.
  virtual bool allow_fp16() const { return false; }
  /// What all ranks say; the base class knows one. checked_only: on the way to an optimizer that unscales by itself.
  virtual void agree(std::map<int, float>& found_inf, bool checked_only);
  virtual void move_scale(float& scale, std::int32_t& tracker, float found_inf);

  GradScalerOptions options_;

 private:
  void make_scale();
  void require_scale(const char* caller) const;
  std::map<int, float> unscale_grads(Optimizer& optimizer, float inv_scale, bool fp16_too);
  std::optional<double> step_amp_scaling(Optimizer& optimizer, PerOptimizer& state, const Closure& closure);

  std::int32_t init_tracker_ = 0;
  std::optional<float> scale_;
  std::optional<std::int32_t> tracker_;
  std::map<const Optimizer*, PerOptimizer> per_optimizer_;
  MultiTensorUnscale unscale_with_;
};

template <std::ranges::range Container>
Container GradScaler::scale(const Container& outputs) {
  Container scaled = outputs;
  for (auto& output : scaled) output = scale(output);
  return scaled;
}

template <class... Outputs>
std::tuple<Outputs...> GradScaler::scale(const std::tuple<Outputs...>& outputs) {
  return std::apply([this](const auto&... output) { return std::tuple<Outputs...>{this->scale(output)...}; }, outputs);
}

class GradScaler::Lazy {
 public:
  class Iterator {
   public:
    Iterator(GradScaler& scaler, const Tensor* at) : scaler_(&scaler), at_(at) {}
    Tensor operator*() const { return scaler_->scale(*at_); }
    Iterator& operator++() {
      ++at_;
      return *this;
    }
    bool operator==(const Iterator& other) const { return at_ == other.at_; }

   private:
    GradScaler* scaler_;
    const Tensor* at_;
  };
  Lazy(GradScaler& scaler, std::span<const Tensor> outputs) : scaler_(scaler), outputs_(outputs) {}
  Iterator begin() const { return {scaler_, outputs_.data()}; }
  Iterator end() const { return {scaler_, outputs_.data() + outputs_.size()}; }

 private:
  GradScaler& scaler_;
  std::span<const Tensor> outputs_;
};

inline GradScaler::Lazy GradScaler::scale_lazily(std::span<const Tensor> outputs) { return {*this, outputs}; }

}  // namespace ampcheck
