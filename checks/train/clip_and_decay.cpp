// SPDX-License-Identifier: Apache-2.0
#include "checks/train/clip_and_decay.h"

#include <algorithm>
#include <cmath>

#include "src/amp/clip.h"
#include "src/float_format.h"
#include "src/tensor.h"

namespace ampcheck::checks::train {

namespace {

Clipping clip_together(const ClipRule& rule, const std::vector<Parameter*>& parameters) {
  Clipping out;
  if (rule.norm > 0) {
    out.norm = to_doubles(clip_grad_norm_(parameters, rule.norm).view())[0];
    if (std::isfinite(*out.norm)) out.factor = std::min(1.0, rule.norm / (*out.norm + 1e-6));
  }
  if (rule.value > 0) {
    for (const Parameter* const parameter : parameters)
      if (parameter->grad.defined())
        for (const double g : to_doubles(parameter->grad.view())) out.elements += std::fabs(g) > rule.value ? 1 : 0;
    clip_grad_value_(parameters, rule.value);
  }
  return out;
}

}  // namespace

std::vector<Clipping> clip(const StepRule& rule, const std::vector<Parameter*>& parameters) {
  std::vector<Clipping> out;
  if (!rule.clips()) return out;
  std::vector<std::vector<Parameter*>> together(rule.optimizers());
  for (Parameter* const parameter : parameters) together[rule.clipped_with(parameter->name)].push_back(parameter);
  for (std::size_t k = 0; k < together.size(); ++k) {
    if (!rule.clip_of(k).clips() || together[k].empty()) continue;
    out.push_back(clip_together(rule.clip_of(k), together[k]));
    out.back().optimizer = k;
  }
  return out;
}

DecayCount decay_of(const std::vector<Parameter*>& parameters, double lr, double weight_decay) {
  DecayCount out;
  for (const Parameter* const parameter : parameters) {
    const FloatFormat& type = format(parameter->value.dtype());
    for (const double w : to_doubles(parameter->value.view())) {
      if (w == 0 || !std::isfinite(w)) continue;
      const double spacing = std::max(std::ldexp(2 * type.unit_roundoff(), std::ilogb(w)), type.min_subnormal());
      ++out.weights;
      out.lost += std::fabs(lr * weight_decay * w) < spacing / 2 ? 1 : 0;
    }
  }
  return out;
}

}  // namespace ampcheck::checks::train
