// SPDX-License-Identifier: Apache-2.0
// Ops that stay what they are, and where they are, to the end of the process. What is found of one holds for good.
#pragma once

#include "checks/define/op_def.h"

namespace ampcheck::checks {

/// Says so of an op of a library.
void keep_for_good(const OpDef& op);
/// Whether it is such an op, or a built-in one. A copy is none.
bool is_kept_for_good(const OpDef& op);

}  // namespace ampcheck::checks
