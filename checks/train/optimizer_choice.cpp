// SPDX-License-Identifier: Apache-2.0
#include "checks/train/optimizer_choice.h"

#include "src/error.h"

namespace ampcheck::checks::train {

namespace {

/// The options that every optimizer has.
template <class Options>
Options common(const OptimizerChoice& choice) {
  Options out;
  out.count = true;
  if (choice.lr >= 0) out.lr = choice.lr;
  if (choice.weight_decay >= 0) out.weight_decay = choice.weight_decay;
  return out;
}

void require_none(const OptimizerChoice& choice, bool momentum) {
  if ((choice.momentum >= 0 && !momentum) || choice.nesterov)
    throw Error("[train] optimizer " + choice.name + ", got " + (choice.nesterov ? "nesterov" : "a momentum") + ", want it with " + (choice.nesterov ? "sgd" : "sgd or rmsprop") + " alone");
}

}  // namespace

std::unique_ptr<BlockOptimizer> make_optimizer(const OptimizerChoice& choice, std::vector<Parameter*> parameters) {
  if (choice.name == "sgd") {
    auto options = common<SgdOptions>(choice);
    if (choice.momentum >= 0) options.momentum = choice.momentum;
    options.nesterov = choice.nesterov;
    return std::make_unique<Sgd>(std::move(parameters), options);
  }
  require_none(choice, choice.name == "rmsprop");
  if (choice.name == "adam") return std::make_unique<Adam>(std::move(parameters), common<AdamOptions>(choice));
  if (choice.name == "adamw") return std::make_unique<AdamW>(std::move(parameters), common<AdamWOptions>(choice));
  if (choice.name == "adagrad") return std::make_unique<Adagrad>(std::move(parameters), common<AdagradOptions>(choice));
  if (choice.name == "rmsprop") {
    auto options = common<RmspropOptions>(choice);
    if (choice.momentum >= 0) options.momentum = choice.momentum;
    return std::make_unique<Rmsprop>(std::move(parameters), options);
  }
  throw Error("[train] optimizer, got '" + choice.name + "', want " + kOptimizers);
}

}  // namespace ampcheck::checks::train
