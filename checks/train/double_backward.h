// SPDX-License-Identifier: Apache-2.0
// Gradients of gradients by the kernels: the backward of an op's backward, from the op's own kernels wherever a product
// rule leads back to them (of linear, dx = dy W gives dy's gradient W dx' : a forward), from kernels/second_order.h
// where it does not.
#pragma once

#include "checks/define/op_def.h"

namespace ampcheck::checks::train {

/// The gradients of sum <"dgrad_x", dx>. `call` has the inputs, the cotangent ("dy"), and for each gradient dx that
/// something depends on "dgrad_x", as kernels/second_order.h names them, and what the forward saved; dtypes as in the
/// backward. Writes those of "dx" (by input) and "ddy" (by cotangent) that it finds in the call; these are zero
/// beforehand and stay so where nothing depends on them. Error "[grad] op sigmoid has no double backward, known: ..."
/// for another op.
void double_backward(const OpDef& op, const kernels::KernelCall& call);

}  // namespace ampcheck::checks::train
