// SPDX-License-Identifier: Apache-2.0
#include "checks/train/optimizer_choice.h"

#include <algorithm>
#include <charconv>

#include "checks/train/net.h"
#include "src/error.h"

namespace ampcheck::checks::train {

namespace {

/// The options that every optimizer has.
template <class Options>
Options common(const OptimizerChoice& choice) {
  Options out;
  out.count = true;
  out.by_place = false;  // sharded or not, on any device: the same bits
  out.fused = choice.is_fused();
  out.master_weights = choice.weights == Weights::master;
  out.moments = choice.moments;
  out.second_moment = choice.second_moment;
  if (choice.lr >= 0) out.lr = choice.lr;
  if (choice.weight_decay >= 0) out.weight_decay = choice.weight_decay;
  return out;
}

Error unknown(const std::string& name) { return Error("[train] optimizer, got '" + name + "', want " + kOptimizers); }

void require_none(const OptimizerChoice& choice, bool momentum) {
  if ((choice.momentum >= 0 && !momentum) || choice.nesterov)
    throw Error("[train] optimizer " + choice.name + ", got " + (choice.nesterov ? "nesterov" : "a momentum") +
                ", want it with " + (choice.nesterov ? "sgd" : "sgd or rmsprop") + " alone");
}

}  // namespace

const char* name(Weights weights) {
  constexpr const char* kNames[] = {"fp32", "master", "low"};
  return kNames[static_cast<int>(weights)];
}

OptimizerChoice OptimizerChoice::with_defaults() const {
  OptimizerChoice out = *this;
  const auto fill = [&](const auto& defaults) {
    if (out.lr < 0) out.lr = defaults.lr;
    if (out.weight_decay < 0) out.weight_decay = defaults.weight_decay;
    if constexpr (requires { defaults.momentum; })
      if (out.momentum < 0) out.momentum = defaults.momentum;
  };
  if (name == "sgd")
    fill(SgdOptions{});
  else if (name == "adam")
    fill(AdamOptions{});
  else if (name == "adamw")
    fill(AdamWOptions{});
  else if (name == "adagrad")
    fill(AdagradOptions{});
  else if (name == "rmsprop")
    fill(RmspropOptions{});
  else
    throw unknown(name);
  return out;
}

OptimizerChoice OptimizerChoice::in_fp64() const {
  OptimizerChoice out = *this;
  out.fused = false;
  out.weights = Weights::fp32;
  out.moments.reset();
  out.second_moment.reset();
  return out;
}

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
  throw unknown(choice.name);
}

OptimizerChoice optimizer_of(const Net& net, OptimizerChoice choice) {
  if (choice.lr < 0) choice.lr = net.rate;
  if (choice.momentum < 0 && choice.name == "sgd") choice.momentum = net.momentum;
  return choice;
}

LrFactor make_schedule(const std::string& text) {
  if (text.empty() || text == "constant") return nullptr;
  const auto fail = [&]() -> Error { return Error("[train] lr schedule, got '" + text + "', want " + kSchedules); };
  const std::size_t first = text.find(':'), second = text.find(':', first + 1);
  if (first == std::string::npos) throw fail();
  const auto read = [&](std::size_t from, std::size_t to, auto& value) {
    const char* const end = text.data() + std::min(to, text.size());
    const auto [stop, error] = std::from_chars(text.data() + from, end, value);
    if (error != std::errc() || stop != end) throw fail();
  };
  const std::string name = text.substr(0, first);
  const bool more = second != std::string::npos;
  std::int64_t steps = 0, total = 0;
  double share = name == "step" ? 0.1 : 0;
  read(first + 1, second, steps);
  if (more && name == "warmup")
    read(second + 1, text.size(), total);
  else if (more)
    read(second + 1, text.size(), share);
  if (!(share >= 0 && share <= 1) || total < 0) throw fail();  // NaN is no share
  if (name == "step") return step_lr(steps, share);
  if (name == "cosine") return cosine_lr(steps, share);
  if (name == "warmup") return warmup_linear_lr(steps, total);
  throw fail();
}

}  // namespace ampcheck::checks::train
