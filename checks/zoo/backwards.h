// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "checks/define/planted_op.h"

namespace ampcheck::checks {

/// One planted fault of each backward that has a backward (checks/define/second_order.h).
std::vector<PlantedOp> second_order_faults();

}  // namespace ampcheck::checks
