// SPDX-License-Identifier: Apache-2.0
// Planted faults and correct variants: every check is proved by a kernel that it must catch and one that it must not
// flag. They are ops like any other, named <op>.<variant>, run only when asked for by name.
#pragma once

#include <span>
#include <string>

#include "checks/op_def.h"

namespace ampcheck::checks {

struct PlantedOp {
  OpDef op;
  std::string what;    ///< one line: what is wrong, or how the variant computes
  std::string code;    ///< the finding that is due; empty for a correct variant
};

std::span<const PlantedOp> planted_ops();

}  // namespace ampcheck::checks
