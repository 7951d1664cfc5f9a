// SPDX-License-Identifier: Apache-2.0
// Second order: a backward is a function of the inputs and the cotangents like any other, and its own backward, which a
// gradient of a gradient runs, is judged like any other: every regime, every relation, and a certificate by differences
// of the gradient in 100 digits.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "checks/define/op_def.h"

namespace ampcheck::checks {

/// "grad_x": the gradient by x as an output of the backward.
inline std::string gradient_as_output(const std::string& input) { return "grad_" + input; }

/// A kernel that reads what the op saves, of whatever inputs it is called with.
kernels::KernelFn with_saved(const OpDef& op, kernels::KernelFn kernel);

/// The backward of an op as an op, named "<op>_backward": inputs are those of the op and its cotangents ("dy"), outputs
/// its gradients ("grad_x" for dx). Its forms are `usual`, backwards whose own adjoints are written as kernels compute
/// them, and the adjoints of the op's forms. Optional inputs with a gradient are always there. `double_backward` reads
/// inputs, saved tensors, cotangents and "dgrad_x", and writes "dx" and "ddy". Saved tensors, which follow from the
/// inputs, are computed by the op's own forward before either kernel runs: on the CPU alone where the op has integer
/// inputs. Throws Error for an op without a formula or gradients, with a buffer that is added to or overwritten, or
/// with saved tensors in another type than fp32.
OpDef backward_as_op(const OpDef& op, kernels::KernelFn double_backward, std::vector<reference::Form> usual = {});

/// The backwards that have a backward, of the built-in ops tanh, mul, gelu, gelu_tanh, silu, layer_norm and rms_norm.
/// find_op() knows them by name; nothing runs them unasked.
std::span<const OpDef> second_order_ops();

}  // namespace ampcheck::checks
