// SPDX-License-Identifier: Apache-2.0
// Calls a plug-in's kernel as kernels are called. Only checks/plugin*.cpp include this.
#pragma once

#include "kernels/kernel.h"
#include "src/api/ampcheck/ampcheck_op.h"

namespace ampcheck::checks {

struct PluginKernels {
  kernels::Kernel kernel;
  kernels::KernelFn double_backward = nullptr;  ///< null where the op has none
};

/// The kernels of a described op; the signature is that of the description, `double_backward` that of its extension or
/// null. Errors that a kernel returns or throws become Error; a device that it has not, EnvironmentError.
PluginKernels plugin_kernels(const ac_op& op, const OpSignature& signature, ac_kernel double_backward);

/// AC_FP32, ... of a dtype.
int ac_dtype_of(Dtype dtype);

/// AC_FP32, AC_TENSOR_CORE_H100, ... of an accumulator, and the other way round: false if that is none.
int ac_accumulator_of(const Accumulator& accumulator);
bool accumulator_of(int constant, Accumulator& out);

}  // namespace ampcheck::checks
