// SPDX-License-Identifier: Apache-2.0
// max_pool2d: windows, comparisons and places that are not the ones that are due.
#pragma once

#include "checks/zoo/kit.h"

namespace ampcheck::checks::zoo {

void add_shop_pools(std::vector<Specimen>& out);

}  // namespace ampcheck::checks::zoo
