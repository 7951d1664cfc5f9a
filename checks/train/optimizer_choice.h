// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "src/amp/lr_schedule.h"
#include "src/amp/optimizers.h"

namespace ampcheck::checks::train {

struct Net;

/// What the trained tensors are.
enum class Weights : std::uint8_t {
  fp32,
  master,  ///< 16 bits, with fp32 masters that the optimizer moves (apex O2)
  low,     ///< 16 bits alone
};
/// "fp32", "master", "low".
const char* name(Weights weights);

/// What of an optimizer is chosen; negative: torch's default of that optimizer.
struct OptimizerChoice {
  std::string name = "sgd";  ///< sgd, adam, adamw, adagrad, rmsprop
  double lr = -1, momentum = -1, weight_decay = -1;
  bool nesterov = false;
  bool fused = false;  ///< torch's fused arithmetic, which divides by the loss scale itself; as with masters and
                       ///< moments of a dtype
  Weights weights = Weights::fp32;
  std::optional<Dtype> moments = {};        ///< none: the weights', or fp32 beside masters
  std::optional<Dtype> second_moment = {};  ///< of averages of squares, where it is another

  /// With torch's defaults where nothing is chosen. Error for an unknown name.
  OptimizerChoice with_defaults() const;
  bool is_fused() const {
    return fused || weights == Weights::master || moments.has_value() || second_moment.has_value();
  }
  /// Of the averages of gradients, and of their squares; `weights`: the type of the weights.
  Dtype first_dtype(Dtype of_weights) const {
    return moments.value_or(weights == Weights::low ? of_weights : Dtype::fp32);
  }
  Dtype second_dtype(Dtype of_weights) const { return second_moment.value_or(first_dtype(of_weights)); }
  /// The same rule on fp64 weights.
  OptimizerChoice in_fp64() const;
};

/// Names of the optimizers, for messages.
inline constexpr const char* kOptimizers = "sgd, adam, adamw, adagrad or rmsprop";

/// In torch's reference arithmetic, or fused where the choice is; counting what stagnates. Error for an unknown name or
/// an option that it has not.
std::unique_ptr<BlockOptimizer> make_optimizer(const OptimizerChoice& choice, std::vector<Parameter*> parameters);

/// With the net's own rate, and its momentum of sgd, where nothing is chosen.
OptimizerChoice optimizer_of(const Net& net, OptimizerChoice choice);

/// Schedules as text, for messages.
inline constexpr const char* kSchedules = "constant, step:STEPS[:GAMMA], cosine:STEPS[:FLOOR] or warmup:STEPS[:TOTAL]";
/// "step:30:0.1": gamma^(t / 30), gamma 0.1 unless given; "cosine:100:0.1": down to that share of the rate (0) in 100
/// updates; "warmup:10:200": up in 10, then, if a total is given, down to zero. Null for "constant" and "". Error for
/// another text.
LrFactor make_schedule(const std::string& text);

}  // namespace ampcheck::checks::train
