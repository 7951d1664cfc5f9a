// SPDX-License-Identifier: Apache-2.0
// Declares <op>_op() for every op of the list in CMakeLists.txt; included by checks/ops/*.cpp.
#pragma once

#include "checks/define/op_def.h"
#include "kernels/ops.h"

namespace ampcheck::checks {

#define AMPCHECK_OP(name) OpDef name##_op();
#include "ampcheck_ops.inc"
#undef AMPCHECK_OP

}  // namespace ampcheck::checks
