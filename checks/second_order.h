// SPDX-License-Identifier: Apache-2.0
// Second order: a backward is a function of the inputs and the cotangents like any other, and its own backward, which a gradient of a
// gradient runs, is judged like any other: every regime, every relation, and a certificate by differences of the gradient in 100 digits.
#pragma once

#include <span>
#include <vector>

#include "checks/planted.h"

namespace ampcheck::checks {

/// The backward of an op as an op, named "<op>_backward": inputs are those of the op and its cotangents ("dy"), outputs its gradients ("grad_x" for
/// dx), each form the adjoint of a form of the op. `double_backward` reads inputs, cotangents and "dgrad_x", and writes "dx" and "ddy". Throws
/// Error for an op without a formula, with saved tensors (they follow from the inputs, so that the pair is no function of them), with a buffer
/// that is added to or overwritten, or without gradients.
OpDef backward_as_op(const OpDef& op, kernels::KernelFn double_backward);

/// The backwards that have a backward, of the built-in ops tanh and mul. find_op() knows them by name; nothing runs them unasked.
std::span<const OpDef> second_order_ops();
/// One planted fault of each.
std::vector<PlantedOp> second_order_faults();

}  // namespace ampcheck::checks
