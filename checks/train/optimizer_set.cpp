// SPDX-License-Identifier: Apache-2.0
#include "checks/train/optimizer_set.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "src/error.h"
#include "src/op_call.h"

namespace ampcheck::checks::train {

bool LayerOptimizer::has(const std::string& parameter) const {
  return std::any_of(layers.begin(), layers.end(), [&](const std::string& pattern) {
    return matches(pattern, parameter) || matches(pattern + ".*", parameter);
  });
}

OptimizerChoice StepRule::choice(std::size_t k) const {
  if (k == 0) return optimizer;
  OptimizerChoice out = further[k - 1].choice;
  out.fused = optimizer.fused;
  out.weights = optimizer.weights;
  out.moments = optimizer.moments;
  out.second_moment = optimizer.second_moment;
  return out;
}

ClipRule StepRule::clip_of(std::size_t k) const {
  if (k == 0) return {clip_norm, clip_value};
  const LayerOptimizer& own = further[k - 1];
  return own.clips_alone() ? ClipRule{std::max(own.clip_norm, 0.0), std::max(own.clip_value, 0.0)} : ClipRule{};
}

std::size_t StepRule::clipped_with(const std::string& parameter) const {
  for (std::size_t k = 1; k < optimizers(); ++k)
    if (further[k - 1].clips_alone() && further[k - 1].has(parameter)) return k;
  return 0;
}

bool StepRule::clips() const {
  for (std::size_t k = 0; k < optimizers(); ++k)
    if (clip_of(k).clips()) return true;
  return false;
}

std::string optimizer_text(const StepRule& rule, std::size_t k) {
  return fmt::format("optimizer {} ({} of {})", k + 1, rule.choice(k).name,
                     k == 0 ? "the rest" : fmt::format("{}", fmt::join(rule.further[k - 1].layers, ", ")));
}

StepRule StepRule::in_fp64() const {
  StepRule out = *this;
  out.optimizer = optimizer.in_fp64();
  return out;
}

OptimizerSet::OptimizerSet(const StepRule& rule, ParameterSet& parameters) : stepped_(rule.optimizers(), true) {
  std::vector<std::vector<Parameter*>> owned(rule.optimizers());
  for (Parameter& parameter : parameters.all()) {
    std::size_t owner = 0;
    for (std::size_t k = 1; k < owned.size(); ++k) {
      if (!rule.further[k - 1].has(parameter.name)) continue;
      if (owner > 0)
        throw Error(fmt::format("[train] optimizer, got '{}' for optimizers {} and {}, want one for each parameter",
                                parameter.name, owner + 1, k + 1));
      owner = k;
    }
    places_.push_back({owner, owned[owner].size()});
    owned[owner].push_back(&parameter);
  }
  for (std::size_t k = 0; k < owned.size(); ++k) {
    if (owned[k].empty() && owned.size() > 1) {
      std::vector<std::string> names;
      for (const Parameter& parameter : parameters.all()) names.push_back(parameter.name);
      throw Error(fmt::format("[train] optimizer {}, got {}, want some of {}", k + 1,
                              k == 0 ? "no parameters, as further ones have all"
                                     : fmt::format("layers {}", fmt::join(rule.further[k - 1].layers, ", ")),
                              fmt::join(names, ", ")));
    }
    optimizers_.push_back(make_optimizer(rule.choice(k), owned[k]));
    if (const LrFactor factor = make_schedule(rule.schedule))
      schedules_.push_back(std::make_unique<LrSchedule>(*optimizers_.back(), factor));
  }
}

OptimizerSet::~OptimizerSet() = default;

UpdateCounts OptimizerSet::counts() const {
  UpdateCounts out;
  for (const auto& optimizer : optimizers_) out.add(optimizer->counts());
  return out;
}

void OptimizerSet::reset_counts() {
  for (const auto& optimizer : optimizers_) optimizer->reset_counts();
}

void OptimizerSet::unscale(GradScaler& scaler) {
  for (const auto& optimizer : optimizers_) scaler.unscale_(*optimizer);
}

void OptimizerSet::step(GradScaler& scaler) {
  for (std::size_t k = 0; k < optimizers_.size(); ++k) {
    const std::int64_t before = optimizers_[k]->updates();
    scaler.step(*optimizers_[k]);
    stepped_[k] = optimizers_[k]->updates() > before;
  }
  for (const auto& schedule : schedules_) schedule->step();
}

void OptimizerSet::step() {
  for (const auto& optimizer : optimizers_) optimizer->step();
  for (const auto& schedule : schedules_) schedule->step();
}

void OptimizerSet::resume_at(std::span<const std::int64_t> updates) {
  for (std::size_t k = 0; k < schedules_.size(); ++k) schedules_[k]->resume_at(updates[k]);
}

}  // namespace ampcheck::checks::train
