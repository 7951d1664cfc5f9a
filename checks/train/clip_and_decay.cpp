// SPDX-License-Identifier: Apache-2.0
#include "checks/train/clip_and_decay.h"

#include <algorithm>
#include <cmath>

#include "src/amp/clip.h"
#include "src/float_format.h"
#include "src/tensor.h"

namespace ampcheck::checks::train {

std::optional<Clipping> clip(double norm, double value, const std::vector<Parameter*>& parameters) {
  if (norm <= 0 && value <= 0) return std::nullopt;
  Clipping out;
  if (norm > 0) {
    out.norm = to_doubles(clip_grad_norm_(parameters, norm).view())[0];
    if (std::isfinite(*out.norm)) out.factor = std::min(1.0, norm / (*out.norm + 1e-6));
  }
  if (value > 0) {
    for (const Parameter* const parameter : parameters)
      if (parameter->grad.defined())
        for (const double g : to_doubles(parameter->grad.view())) out.elements += std::fabs(g) > value ? 1 : 0;
    clip_grad_value_(parameters, value);
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
