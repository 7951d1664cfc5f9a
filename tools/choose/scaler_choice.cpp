// SPDX-License-Identifier: Apache-2.0
#include "tools/choose/scaler_choice.h"

#include <algorithm>

#include "src/amp/scale_rule.h"
#include "src/suggestion.h"
#include "tools/report/usage_error.h"

namespace ampcheck::tools {

void choose_scaler(const std::string& rule, double init_scale, double growth_interval,
                   checks::train::TrainOptions& out) {
  // In fp32 it keeps what 16 bits on the wire, or a layer's own region, would flush.
  out.scaler.enabled = rule.empty() ? out.dtype == Dtype::fp16 : rule != "none";
  const auto interval = static_cast<std::int32_t>(std::min(growth_interval, 1e9));
  if (init_scale >= 0) out.scaler.init_scale = init_scale;
  if (interval >= 0) out.scaler.growth_interval = interval;
  if (rule.empty() || rule == "torch" || rule == "none") return;
  std::string list;
  std::vector<std::string> names = {"torch", "none"};
  for (const ScaleRule& known : scale_rules()) {
    list += std::string(known.name) + ", ";
    names.emplace_back(known.name);
    if (rule == known.name) out.scale_rule = known;
  }
  if (!out.scale_rule)
    throw UsageError("[--scaler] got '" + rule + "'" + did_you_mean(rule, names) + ", want " + list + "or none");
  if (init_scale >= 0) out.scale_rule->init_scale = init_scale;
  if (interval >= 0) out.scale_rule->window = interval;
}

}  // namespace ampcheck::tools
