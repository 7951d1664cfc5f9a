// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "checks/case/case_run.h"

namespace ampcheck::checks {

/// Words if `agrees` to the values of another activation of the inputs, or of its gradient; empty otherwise.
std::string another_activation(CaseRun& run, const Written& tensor, Pass pass,
                               const std::function<bool(const std::vector<double>&)>& agrees);

}  // namespace ampcheck::checks
