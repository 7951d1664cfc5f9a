// SPDX-License-Identifier: Apache-2.0
// y = the largest element along the last axis (axis = -1) or over rows (axis = 0), the axis kept; NaN wins.
//                                                                      Run it alone: ampcheck check max
// Backward: dx = dy at the first of the largest, else 0.
#include "kernels/extremum.h"

namespace ampcheck::kernels {

Kernel max_kernel() { return {extremum_forward<Largest>, extremum_backward<Largest>}; }

}  // namespace ampcheck::kernels
