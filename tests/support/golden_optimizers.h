// SPDX-License-Identifier: Apache-2.0
// The optimizers that the goldens name.
#pragma once

#include <algorithm>
#include <cmath>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "src/amp/optimizers.h"
#include "tests/support/goldens.h"

namespace ampcheck::tests {

/// torch's sqrt is MKL's, which is up to one ulp off; every later rounding may flip with it: quotient, sum with eps,
/// product and quotient of the update. Everything before the root is bit-equal. u: the unit roundoff of the arithmetic.
inline double after_sqrt(double update, double weight, double u) {
  const double ulp = 2.0 * u * std::exp2(std::floor(std::log2(std::max(std::fabs(weight), 0x1p-126))));
  return std::fabs(update) * (2.0 * u + 4.0 * u) + ulp;
}

inline double argument(const Golden& args, std::string_view key, double fallback) {
  const Golden* found = args.find(key);
  return found == nullptr ? fallback : real(*found);
}

template <class Options>
Options common_options(const Golden& args, bool fused, SkipRule skip) {
  Options options;
  options.skip = skip;
  options.lr = argument(args, "lr", options.lr);
  options.weight_decay = argument(args, "weight_decay", options.weight_decay);
  options.maximize = argument(args, "maximize", 0.0) != 0.0;
  options.fused = fused || argument(args, "fused", 0.0) != 0.0;
  return options;
}

template <class Options>
Options adam_options(const Golden& args, bool fused, SkipRule skip) {
  Options options = common_options<Options>(args, fused, skip);
  options.eps = argument(args, "eps", options.eps);
  options.amsgrad = argument(args, "amsgrad", 0.0) != 0.0;
  if (const Golden* betas = args.find("betas")) {
    options.beta1 = real((*betas)[0]);
    options.beta2 = real((*betas)[1]);
  }
  return options;
}

/// The optimizer of torch's class name; arguments as the goldens write them.
inline std::unique_ptr<BlockOptimizer> make_optimizer(const std::string& kind, const Golden& args,
                                                      std::vector<Parameter*> parameters, bool fused = false,
                                                      SkipRule skip = SkipRule::torch_exactly_one) {
  if (kind == "SGD") {
    auto options = common_options<SgdOptions>(args, fused, skip);
    options.momentum = argument(args, "momentum", 0.0);
    options.dampening = argument(args, "dampening", 0.0);
    options.nesterov = argument(args, "nesterov", 0.0) != 0.0;
    return std::make_unique<Sgd>(std::move(parameters), options);
  }
  if (kind == "Adam") {
    return std::make_unique<Adam>(std::move(parameters), adam_options<AdamOptions>(args, fused, skip));
  }
  if (kind == "AdamW") {
    return std::make_unique<AdamW>(std::move(parameters), adam_options<AdamWOptions>(args, fused, skip));
  }
  if (kind == "Adagrad") {
    auto options = common_options<AdagradOptions>(args, fused, skip);
    options.lr_decay = argument(args, "lr_decay", 0.0);
    options.initial_accumulator_value = argument(args, "initial_accumulator_value", 0.0);
    options.eps = argument(args, "eps", options.eps);
    return std::make_unique<Adagrad>(std::move(parameters), options);
  }
  if (kind == "RMSprop") {
    auto options = common_options<RmspropOptions>(args, fused, skip);
    options.momentum = argument(args, "momentum", 0.0);
    options.alpha = argument(args, "alpha", options.alpha);
    options.eps = argument(args, "eps", options.eps);
    options.centered = argument(args, "centered", 0.0) != 0.0;
    return std::make_unique<Rmsprop>(std::move(parameters), options);
  }
  throw std::runtime_error("golden: optimizer '" + kind + "'");
}

}  // namespace ampcheck::tests
