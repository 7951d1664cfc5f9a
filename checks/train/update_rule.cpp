// SPDX-License-Identifier: Apache-2.0
// Sources: torch.optim's documentation of SGD, Adam (Kingma & Ba 2015), AdamW (Loshchilov & Hutter 2019), Adagrad
// (Duchi et al. 2011) and RMSprop. Written apart from src/amp/optimizers.cpp on purpose: one is held against the other.
#include "checks/train/update_rule.h"

#include <cmath>

#include "src/error.h"

namespace ampcheck::checks::train {

namespace {

constexpr double kBeta1 = 0.9, kBeta2 = 0.999, kAdamEps = 1e-8, kAdagradEps = 1e-10, kAlpha = 0.99, kRmspropEps = 1e-8;

double moment_at(const UpdateInput& input, std::size_t i) { return i < input.moments.size() ? input.moments[i] : 0; }

}  // namespace

UpdateRuleBounds::UpdateRuleBounds(const OptimizerChoice& choice, Dtype weights, Dtype first, Dtype second)
    : choice_(choice),
      in_(choice.is_fused() ? Dtype::fp32 : weights),
      in_weights_(weights),
      in_first_(first),
      in_second_(second) {}

std::vector<const char*> UpdateRuleBounds::moment_names() const {
  if (choice_.name == "sgd")
    return choice_.momentum > 0 ? std::vector<const char*>{"momentum_buffer"} : std::vector<const char*>{};
  if (choice_.name == "adagrad") return {"sum"};
  if (choice_.name == "rmsprop")
    return choice_.momentum > 0 ? std::vector<const char*>{"square_avg", "momentum_buffer"}
                                : std::vector<const char*>{"square_avg"};
  return {"exp_avg", "exp_avg_sq"};
}

UpdateResult UpdateRuleBounds::operator()(const UpdateInput& input, double lr, std::int64_t number) const {
  Rounded g = input.gradient;
  if (choice_.weight_decay > 0 && choice_.name != "adamw")
    g = in_.add(g, in_.multiply(in_.number(choice_.weight_decay), {input.weight, 0}));
  UpdateResult out = choice_.name == "sgd"       ? sgd(input, g, lr)
                     : choice_.name == "adagrad" ? adagrad(input, g, lr)
                     : choice_.name == "rmsprop" ? rmsprop(input, g, lr)
                                                 : adam(input, g, lr, number);
  out.weight = in_weights_.settle(out.weight);
  return out;
}

UpdateResult UpdateRuleBounds::sgd(const UpdateInput& input, Rounded g, double lr) const {
  UpdateResult out;
  if (choice_.momentum > 0) {
    const Rounded momentum = in_.number(choice_.momentum);
    Rounded buffer = g;
    if (!input.moments.empty()) buffer = in_.add(in_.multiply(momentum, {input.moments[0], 0}), g);
    out.moments.push_back(stored(buffer));
    g = choice_.nesterov ? in_.add(g, in_.multiply(momentum, out.moments[0])) : out.moments[0];
  }
  out.weight = in_.subtract({input.weight, 0}, in_.multiply(in_.number(lr), g));
  return out;
}

UpdateResult UpdateRuleBounds::adam(const UpdateInput& input, Rounded g, double lr, std::int64_t number) const {
  Rounded w{input.weight, 0};
  if (choice_.name == "adamw" && choice_.weight_decay > 0)
    w = in_.multiply(w, in_.number(1 - lr * choice_.weight_decay));
  const Rounded fresh1 = in_.number(1 - kBeta1), fresh2 = in_.number(1 - kBeta2);
  const Rounded m =
      stored(in_.add(in_.multiply(in_.number(kBeta1), {moment_at(input, 0), 0}), in_.multiply(fresh1, g)));
  const Rounded v = stored_square(
      in_.add(in_.multiply(in_.number(kBeta2), {moment_at(input, 1), 0}), in_.multiply(fresh2, in_.multiply(g, g))));
  const auto t = static_cast<double>(number);
  const Rounded step = in_.number(lr / (1 - std::pow(kBeta1, t)));
  const Rounded correction = in_.number(std::sqrt(1 - std::pow(kBeta2, t)));
  const Rounded denominator = in_.add(in_.divide(in_.root(v), correction), in_.number(kAdamEps));
  return {in_.subtract(w, in_.divide(in_.multiply(step, m), denominator)), {m, v}};
}

UpdateResult UpdateRuleBounds::adagrad(const UpdateInput& input, Rounded g, double lr) const {
  const Rounded sum = stored_square(in_.add({moment_at(input, 0), 0}, in_.multiply(g, g)));
  const Rounded denominator = in_.add(in_.root(sum), in_.number(kAdagradEps));
  return {in_.subtract({input.weight, 0}, in_.divide(in_.multiply(in_.number(lr), g), denominator)), {sum}};
}

UpdateResult UpdateRuleBounds::rmsprop(const UpdateInput& input, Rounded g, double lr) const {
  const Rounded square = stored_square(in_.add(in_.multiply(in_.number(kAlpha), {moment_at(input, 0), 0}),
                                               in_.multiply(in_.number(1 - kAlpha), in_.multiply(g, g))));
  const Rounded denominator = in_.add(in_.root(square), in_.number(kRmspropEps));
  Rounded direction = in_.divide(g, denominator);
  UpdateResult out{{}, {square}};
  if (choice_.momentum > 0) {
    direction = stored(in_.add(in_.multiply(in_.number(choice_.momentum), {moment_at(input, 1), 0}), direction));
    out.moments.push_back(direction);
  }
  out.weight = in_.subtract({input.weight, 0}, in_.multiply(in_.number(lr), direction));
  return out;
}

}  // namespace ampcheck::checks::train
