// SPDX-License-Identifier: Apache-2.0
// Calls a plug-in's kernel as kernels are called. Only checks/plugin*.cpp include this.
#pragma once

#include "kernels/kernel.h"
#include "src/api/ampcheck/ampcheck_op.h"

namespace ampcheck::checks {

/// Forward and backward of a described op; the signature is that of the description. Errors that the kernel returns or
/// throws become Error; a device that it has not, EnvironmentError.
kernels::Kernel plugin_kernel(const ac_op& op, const OpSignature& signature);

/// AC_FP32, ... of a dtype.
int ac_dtype_of(Dtype dtype);

}  // namespace ampcheck::checks
