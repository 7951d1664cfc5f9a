// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "src/amp/lr_schedule.h"
#include "src/amp/optimizers.h"

namespace ampcheck::checks::train {

/// What of an optimizer is chosen; negative: torch's default of that optimizer.
struct OptimizerChoice {
  std::string name = "sgd";  ///< sgd, adam, adamw, adagrad, rmsprop
  double lr = -1, momentum = -1, weight_decay = -1;
  bool nesterov = false;
};

/// Names of the optimizers, for messages.
inline constexpr const char* kOptimizers = "sgd, adam, adamw, adagrad or rmsprop";

/// In torch's reference arithmetic, counting what stagnates. Error for an unknown name or an option that it has not.
std::unique_ptr<BlockOptimizer> make_optimizer(const OptimizerChoice& choice, std::vector<Parameter*> parameters);

/// Schedules as text, for messages.
inline constexpr const char* kSchedules = "constant, step:STEPS[:GAMMA], cosine:STEPS[:FLOOR] or warmup:STEPS[:TOTAL]";
/// "step:30:0.1": gamma^(t / 30), gamma 0.1 unless given; "cosine:100:0.1": down to that share of the rate (0) in 100 updates;
/// "warmup:10:200": up in 10, then, if a total is given, down to zero. Null for "constant" and "". Error for another text.
LrFactor make_schedule(const std::string& text);

}  // namespace ampcheck::checks::train
