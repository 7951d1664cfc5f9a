// SPDX-License-Identifier: Apache-2.0
// Double backwards: the gradients of a backward. They read what the backward reads and the cotangents of its gradients
// ("dgrad_x" of "dx"), and write the gradients by its operands: "dx" by x, "ddy" by the cotangent dy. An absent
// gradient is left out.
#pragma once

#include "kernels/kernel.h"

namespace ampcheck::kernels {

/// Of dx = dy (1 - t^2): dx = -2 t (1 - t^2) dy dgrad_x, ddy = (1 - t^2) dgrad_x, t computed again in fp32.
void tanh_double_backward(const KernelCall& call);
/// Of dx = dz y, dy = dz x: dx = dz dgrad_y, dy = dz dgrad_x, ddz = y dgrad_x + x dgrad_y.
void mul_double_backward(const KernelCall& call);

/// Of dx = dz / y, dy = -dz x / y / y: dx = -dgrad_y dz / y / y, dy = dz (2 dgrad_y x / y - dgrad_x) / y / y, ddz =
/// (dgrad_x - dgrad_y x / y) / y.
void div_double_backward(const KernelCall& call);

// Of dx = dy s(x), s the slope of the activation: dx = dgrad_x dy s'(x), ddy = dgrad_x s(x). pdf, cdf: of the normal
// distribution.
/// s' = 2 pdf - x^2 pdf.
void gelu_double_backward(const KernelCall& call);
/// u = sqrt(2/pi) (x + 0.044715 x^3), t = tanh(u): s' = (1 - t^2) (u' + x/2 u'' - x t u'^2).
void gelu_tanh_double_backward(const KernelCall& call);
/// s' = p (1 - p) (2 + x (1 - 2 p)), p = sigmoid(x).
void silu_double_backward(const KernelCall& call);

/// s' = p (1 - p) (1 - 2 p).
void sigmoid_double_backward(const KernelCall& call);
/// s = s' = exp(x).
void exp_double_backward(const KernelCall& call);
/// Of dx = dy p x^(p-1): dx = dgrad_x dy p (p-1) x^(p-2), ddy = dgrad_x p x^(p-1).
void pow_double_backward(const KernelCall& call);
/// Of dx = dy / x: dx = -dgrad_x dy / x / x, ddy = dgrad_x / x.
void log_double_backward(const KernelCall& call);
/// Of y = silu(gate) up, s the slope of silu: ddy = dgrad_gate up s + dgrad_up silu, dgate = dy (dgrad_gate up s' +
/// dgrad_up s), dup = dgrad_gate dy s.
void swiglu_double_backward(const KernelCall& call);
/// Of dx = p (dy - s), s = sum p dy: ddy = p (g - sum p g), g = dgrad_x; with h = g (dy - s) - dy sum p g: dx = p (h -
/// sum p h).
void softmax_double_backward(const KernelCall& call);
/// Of dx = dy - p S, S = sum dy: ddy = g - sum p g, dx = -S p (g - sum p g).
void log_softmax_double_backward(const KernelCall& call);

// Of dx = P(dy weight), dweight = sum of dy n over the rows, dbias = sum of dy, where n is the normalised row, r =
// inv_std or inv_rms, and P v = r (v - mean(v) - n mean(v n)), without mean(v) for rms_norm: a symmetric map, which is
// also the derivative of n. With q = P dgrad_x, a = mean(dgrad_x n), b = mean(dy weight n):
//   ddy = weight q + dgrad_weight n + dgrad_bias,  dweight = sum of dy q,  dbias = 0,
//   dx = P(dgrad_weight dy) - r (n mean(dgrad_x dx0) + b q + a dx0),  dx0 = P(dy weight).
// They read the statistics that the forward saved.
void layer_norm_double_backward(const KernelCall& call);
void rms_norm_double_backward(const KernelCall& call);

/// Of dx = dy at the winner of each window: ddy = dgrad_x there; by x nothing.
void max_pool2d_double_backward(const KernelCall& call);

/// With b = (dgrad_q k^T + q dgrad_k^T) / sqrt(E), dp = do v^T, ds = p (dp - sum p dp), e = p (b - sum p b):
///   ddo = e v + p dgrad_v, dv = e^T do, and by the scores f = p (w - sum p w), w = b (dp - sum p dp) - dp sum p b + do
///   dgrad_v^T: dq = (f k + ds dgrad_k) / sqrt(E), dk = (f^T q + ds^T dgrad_q) / sqrt(E).
/// Reads lse, as saved. On the CPU alone (Error otherwise).
void attention_double_backward(const KernelCall& call);

}  // namespace ampcheck::kernels
