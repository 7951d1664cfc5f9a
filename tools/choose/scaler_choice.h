// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "checks/train/trainer.h"

namespace ampcheck::tools {

/// Sets the scaler and its rule in `out`, whose dtype is set. `rule`: a name of scale_rules(), "none", or empty for
/// torch's in fp16 and none otherwise. Negative numbers: the rule's own. Throws UsageError for an unknown rule.
void choose_scaler(const std::string& rule, double init_scale, double growth_interval,
                   checks::train::TrainOptions& out);

}  // namespace ampcheck::tools
