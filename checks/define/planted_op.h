// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "checks/define/op_def.h"
#include "src/code.h"

namespace ampcheck::checks {

/// An op with a planted fault, or a correct variant of one.
struct PlantedOp {
  OpDef op;
  std::string what;  ///< one line: what is wrong, or how the variant computes
  Code code;         ///< the finding that is due; none for a correct variant
};

}  // namespace ampcheck::checks
