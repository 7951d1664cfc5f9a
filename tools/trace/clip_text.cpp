// SPDX-License-Identifier: Apache-2.0
#include "tools/trace/clip_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "tools/report/numbers.h"

namespace ampcheck::tools {

std::string clipping_text(const std::vector<ClipAndDecay>& steps) {
  std::int64_t of = 0, clipped = 0, elements = 0;
  double factor = 1, norm = 0;
  for (const ClipAndDecay& step : steps) {
    if (!step.clipping) continue;
    ++of;
    clipped += step.clipping->clipped() ? 1 : 0;
    elements += step.clipping->elements;
    factor = std::min(factor, step.clipping->factor);
    if (step.clipping->norm && std::isfinite(*step.clipping->norm)) norm = std::max(norm, *step.clipping->norm);
  }
  if (of == 0) return "";
  std::string out = fmt::format("{} of {} steps", clipped, of);
  if (factor < 1) out += fmt::format("; gradients times {} at the least", rounded_decimal(factor, 2));
  if (norm > 0) out += fmt::format(", their norm {} at the most", rounded_decimal(norm, 3));
  if (elements > 0) out += fmt::format("; {} elements cut to the largest value", grouped(elements));
  return out;
}

std::string decay_text(const std::vector<ClipAndDecay>& steps) {
  constexpr double kLittle = 0.1;
  checks::train::DecayCount sum;
  for (const ClipAndDecay& step : steps) {
    if (!step.decay) continue;
    sum.weights += step.decay->weights;
    sum.lost += step.decay->lost;
  }
  const double share = sum.weights > 0 ? static_cast<double>(sum.lost) / static_cast<double>(sum.weights) : 0;
  if (share < kLittle) return "";
  return fmt::format(
      "of {} of the weights less than half their spacing: rounding takes it back unless the gradient moves them too "
      "(--weights master keeps it)",
      percent(share));
}

Json optimizer_json(const checks::train::OptimizerStep& of) {
  Json out = {{"stepped", of.stepped}, {"found_inf", of.found_inf}, {"skips", of.skips}, {"lr", json_number(of.lr)}};
  if (!of.clipping) return out;
  out["norm"] = of.clipping->norm ? json_number(*of.clipping->norm) : Json();
  out["clip_factor"] = of.clipping->factor;
  out["clipped"] = of.clipping->elements;
  return out;
}

void add_clipping(Json& step, const ClipAndDecay& of) {
  step["norm"] = of.clipping && of.clipping->norm ? json_number(*of.clipping->norm) : Json();
  step["clip_factor"] = of.clipping ? Json(of.clipping->factor) : Json();
  step["clipped"] = of.clipping ? Json(of.clipping->elements) : Json();
  step["decayed"] = of.decay ? Json(of.decay->weights) : Json();
  step["decay_lost"] = of.decay ? Json(of.decay->lost) : Json();
}

}  // namespace ampcheck::tools
