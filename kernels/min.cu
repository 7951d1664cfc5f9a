// SPDX-License-Identifier: Apache-2.0
// y = the smallest element along the last axis (axis = -1) or over rows (axis = 0), the axis kept; NaN wins.
//                                                                      Run it alone: ampcheck check min
// Backward: dx = dy at the first of the smallest, else 0.
#include "kernels/extremum.h"

namespace ampcheck::kernels {

Kernel min_kernel() { return {extremum_forward<Smallest>, extremum_backward<Smallest>}; }

}  // namespace ampcheck::kernels
