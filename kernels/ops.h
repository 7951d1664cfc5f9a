// SPDX-License-Identifier: Apache-2.0
// Declares <op>_kernel() for every op of the list in CMakeLists.txt.
#pragma once

#include "kernels/kernel.h"

namespace ampcheck::kernels {

#define AMPCHECK_OP(name) Kernel name##_kernel();
#include "ampcheck_ops.inc"
#undef AMPCHECK_OP

}  // namespace ampcheck::kernels
