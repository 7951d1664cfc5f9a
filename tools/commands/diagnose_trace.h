// SPDX-License-Identifier: Apache-2.0
// What a trace of our own knows beside the losses: tensors.
#pragma once

#include <string_view>

#include "checks/stacks/run_log.h"

namespace ampcheck::tools {

/// Whether the text is a trace that `train --record` wrote.
bool is_trace(std::string_view text);

/// Adds to what the losses of this trace say the op that made the first number that is not finite, gradients that
/// became zero, and the command that makes the run again with experiments. Error for a trace that cannot be read.
void look_at_tensors(checks::stacks::LogDiagnosis& found, const std::string& path);

}  // namespace ampcheck::tools
