// SPDX-License-Identifier: Apache-2.0
// Kernels that deceive a test: what hosts of kernel benchmarks have been handed in, each with a cause that is due in
// words, and honest twins that keep something from call to call as well.
#pragma once

#include <span>
#include <string>

#include "checks/define/planted_op.h"

namespace ampcheck::checks {

struct Cheat {
  PlantedOp planted;  ///< code none: an honest twin
  std::string words;  ///< of a right cause, any of them, separated by |; empty: the code says it
};

/// All of them, named <op>.cheat_... and <op>.honest_....
std::span<const Cheat> cheats();

}  // namespace ampcheck::checks
