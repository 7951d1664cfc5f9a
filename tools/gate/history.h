// SPDX-License-Identifier: Apache-2.0
// How the errors of an op grew or shrank from one acceptance to the next.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "tools/gate/baseline.h"
#include "tools/gate/ladder.h"
#include "tools/report/reports.h"

namespace ampcheck::tools {

/// Of each tensor the largest error over all cases, in ulps.
std::map<std::string, double> largest_errors(const Baseline& baseline);

/// Makes the history of `next` that of `before` with its accepted state at the end. Twenty states are kept.
void remember(const Baseline& before, Baseline& next);

/// Of ops with an accepted state, each tensor at each acceptance and in this run. `before`: of each gate; null: none.
std::vector<ErrorHistory> histories_of(const std::vector<OpGate>& gates, const std::vector<const Baseline*>& before);

}  // namespace ampcheck::tools
