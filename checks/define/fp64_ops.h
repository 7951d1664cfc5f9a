// SPDX-License-Identifier: Apache-2.0
// Built-in ops that store in fp64. Nobody trains so: only who asks for it gets their cases.
#pragma once

#include "checks/define/op_def.h"

namespace ampcheck::checks {

/// The same op with a kernel in double (kernels/doubles.h) and storage in fp64 alone; null for an op without one.
const OpDef* op_in_fp64(const OpDef& op);

}  // namespace ampcheck::checks
