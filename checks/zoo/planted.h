// SPDX-License-Identifier: Apache-2.0
// Planted faults and correct variants: every check is proved by a kernel that it must catch and one that it must not
// flag. They are ops like any other, named <op>.<variant>, run only when asked for by name.
#pragma once

#include <span>

#include "checks/define/planted_op.h"

namespace ampcheck::checks {

std::span<const PlantedOp> planted_ops();

}  // namespace ampcheck::checks
