// SPDX-License-Identifier: Apache-2.0
// The facts about the training loop around autocast: where backward stands, scaling, accumulation, zeroing, inference.
#pragma once

#include "checks/train/facts.h"

namespace ampcheck::checks::train {

std::vector<Fact> facts_of_loops(const std::filesystem::path& data);

}  // namespace ampcheck::checks::train
