// SPDX-License-Identifier: Apache-2.0
// What a set of cases leaves to the next larger one.
#pragma once

#include <string>
#include <vector>

#include "checks/data/regimes.h"
#include "checks/run/runner.h"

namespace ampcheck::tools {

/// In words, what the quick set leaves to the standard one, or the standard one to all, for the ops and storage types
/// of `cases`: data, cotangents, layouts, attributes and sizes that no case of it has. Empty where nothing is left.
std::string left_out(const std::vector<checks::Case>& cases, checks::CaseSet set, std::uint64_t seed);

}  // namespace ampcheck::tools
