// SPDX-License-Identifier: Apache-2.0
// Training in fp8 by TransformerEngine's recipes: a linear layer's products read e4m3 forward and e5m2 gradients, each
// tensor with a scale of its own. What lies between the products is under autocast in 16 bits.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/tensor.h"

namespace ampcheck::checks::train {

/// In TransformerEngine's words, with its defaults.
struct Fp8Recipe {
  enum class Scaling : std::uint8_t { delayed, current };
  Scaling scaling = Scaling::delayed;
  bool hybrid = true;           ///< fp8_format: HYBRID, gradients in e5m2; or E4M3
  int amax_history_len = 1024;  ///< steps; delayed
  bool most_recent = false;     ///< amax_compute_algo: of the last step, or the largest of the history
  int margin = 0;               ///< the scale is 2^margin smaller than what fills the format; delayed

  bool delayed() const { return scaling == Scaling::delayed; }
  Dtype dtype(bool gradient) const { return gradient && hybrid ? Dtype::e5m2 : Dtype::e4m3fn; }
  /// As read_fp8_recipe() reads it, defaults left out: "delayed,amax_history_len=16".
  std::string str() const;
};

/// "delayed" or "current", then settings: "delayed,amax_history_len=16,margin=1". Throws Error.
Fp8Recipe read_fp8_recipe(const std::string& text);

/// What an implementation does other than the recipe says: a planted fault.
struct Fp8Fault {
  int frozen_after = -1;              ///< no scale moves after so many steps; -1: they do
  int amax_history_len = 0;           ///< another one; 0: the recipe's
  bool gradients_in_forward = false;  ///< in the forward's format, with its scale
  bool times_scale = false;           ///< the numbers read are multiplied by the scale instead of divided
};

/// The largest finite magnitude; NaNs are passed over, an infinity is one (as by the kernel that counts it).
float amax_of(const TensorView& view);
/// Delayed scaling: the format's largest number over `amax` and 2^margin; `before` where amax is zero or not finite.
float delayed_scale(float amax, Dtype dtype, int margin, float before);
/// Current scaling: 1 where amax is zero or not finite.
float current_scale(float amax, Dtype dtype);

/// The scales of a run, which all ranks share.
class Fp8State {
 public:
  struct Of {
    std::vector<float> history = {};  ///< amaxes of the last steps, oldest first
    float scale = 1;
    bool gradient = false;
  };
  explicit Fp8State(const Fp8Recipe& recipe, const std::optional<Fp8Fault>& fault = {})
      : recipe_(recipe), fault_(fault.value_or(Fp8Fault{})) {}

  const Fp8Recipe& recipe() const { return recipe_; }
  const Fp8Fault& fault() const { return fault_; }
  Dtype dtype(bool gradient) const { return recipe_.dtype(gradient && !fault_.gradients_in_forward); }
  /// Of the step that runs; 1 for a tensor that no step has met.
  float scale(std::string_view tensor) const;
  /// The end of a step that met these.
  struct Met {
    float amax = 0;
    bool gradient = false;
  };
  void update(const std::map<std::string, Met, std::less<>>& met);

  // For checkpoints.
  const std::map<std::string, Of, std::less<>>& all() const { return of_; }
  void restore(const std::string& tensor, Of of) { of_[tensor] = std::move(of); }

 private:
  Fp8Recipe recipe_;
  Fp8Fault fault_;
  std::map<std::string, Of, std::less<>> of_;
  int steps_ = 0;
};

/// What one rank does with them.
class Fp8Rank {
 public:
  explicit Fp8Rank(const Fp8State& state) : state_(&state) {}

  struct Cast {
    Tensor scaled;  ///< in fp32: what was rounded
    Tensor codes;   ///< in fp8, saturated
    float scale = 1;
  };
  /// `tensor`: the same name in each step.
  Cast quantize(const std::string& tensor, bool gradient, const TensorView& from);
  /// In fp32 what a product reads.
  Tensor widened(const Cast& cast) const;
  /// Between these a step is repeated, and leaves nothing behind.
  void record(bool on) { records_ = on; }

  std::map<std::string, Fp8State::Met, std::less<>>& met() { return met_; }

 private:
  const Fp8State* state_;
  bool records_ = true;
  std::map<std::string, Fp8State::Met, std::less<>> met_;  ///< largest of the step
};

}  // namespace ampcheck::checks::train
