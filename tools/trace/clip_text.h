// SPDX-License-Identifier: Apache-2.0
// What clipping and weight decay did over a run, in words: for train and for trace.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "checks/train/clip_and_decay.h"
#include "tools/report/json.h"

namespace ampcheck::tools {

/// Of one step.
struct ClipAndDecay {
  std::optional<checks::train::Clipping> clipping = {};
  std::optional<checks::train::DecayCount> decay = {};
};

/// "38 of 60 steps; gradients times 0.081 at the least, their norm 12.3 at the most"; empty without clipping.
std::string clipping_text(const std::vector<ClipAndDecay>& steps);
/// "of 99.8 % of the weights less than half their spacing: ..."; empty where rounding takes less than a tenth of it.
std::string decay_text(const std::vector<ClipAndDecay>& steps);

/// One of several optimizers in a step of JSON.
Json optimizer_json(const checks::train::OptimizerStep& of);

/// The fields of both in a step of JSON; null where there is nothing.
void add_clipping(Json& step, const ClipAndDecay& of);

}  // namespace ampcheck::tools
