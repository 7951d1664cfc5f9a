// SPDX-License-Identifier: Apache-2.0
// The facts that a net has to be trained for.
#pragma once

#include "checks/train/facts.h"

namespace ampcheck::checks::train {

std::vector<Fact> facts_of_runs(const std::filesystem::path& data);

}  // namespace ampcheck::checks::train
