// SPDX-License-Identifier: Apache-2.0
// Double backwards: the gradients of a backward. They read what the backward reads and the cotangents of its gradients ("dgrad_x" of "dx"),
// and write the gradients by its operands: "dx" by x, "ddy" by the cotangent dy. An absent gradient is left out.
#pragma once

#include "kernels/kernel.h"

namespace ampcheck::kernels {

/// Of dx = dy (1 - t^2): dx = -2 t (1 - t^2) dy dgrad_x, ddy = (1 - t^2) dgrad_x, t computed again in fp32.
void tanh_double_backward(const KernelCall& call);
/// Of dx = dz y, dy = dz x: dx = dz dgrad_y, dy = dz dgrad_x, ddz = y dgrad_x + x dgrad_y.
void mul_double_backward(const KernelCall& call);

}  // namespace ampcheck::kernels
