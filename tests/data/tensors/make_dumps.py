#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Writes rms_norm.safetensors and softmax.npz: what a training step would save of one call, computed here with numpy in fp32
# and rounded to bf16 where it is stored, and the same with a fault each. tests/checks/run/dump_test.cpp judges them.
import os

import ml_dtypes
import numpy as np
from safetensors.numpy import save_file

here = os.path.dirname(os.path.abspath(__file__))
rng = np.random.default_rng(7)
f32, bf16 = np.float32, ml_dtypes.bfloat16


def normal(*shape):
    return rng.standard_normal(shape).astype(bf16)


# y = x / sqrt(mean(x^2) + eps) * weight; weight in fp32 as mixed-precision training keeps it.
x, weight, dy = normal(12, 48), (1 + 0.3 * rng.standard_normal(48)).astype(f32), normal(12, 48)
X, G = x.astype(f32), dy.astype(f32)
inv_rms = (f32(1) / np.sqrt((X * X).mean(-1, keepdims=True, dtype=f32) + f32(1e-6))).astype(f32)
n = X * inv_rms
h = G * weight
y = (n * weight).astype(bf16)
dx = (inv_rms * (h - n * (h * n).mean(-1, keepdims=True, dtype=f32))).astype(bf16)
without_inv_rms = (h - n * (h * n).mean(-1, keepdims=True, dtype=f32)).astype(bf16)
dweight = (G * n).sum(0, dtype=f32)
summed_in_bf16 = np.zeros(48, bf16)
for row in (G * n).astype(bf16):
    summed_in_bf16 = (summed_in_bf16 + row).astype(bf16)
save_file({"x": x, "weight": weight, "dy": dy, "y": y, "dx": dx, "dweight": dweight, "without_inv_rms": without_inv_rms,
           "summed_in_bf16": summed_in_bf16.astype(f32)}, os.path.join(here, "rms_norm.safetensors"))

# y = softmax(x); NumPy has no bf16, so fp32 holds the bf16 numbers.
x, dy = normal(8, 33), normal(8, 33)
X, G = x.astype(f32), dy.astype(f32)
e = np.exp(X - X.max(-1, keepdims=True))
p = e / e.sum(-1, keepdims=True, dtype=f32)
dx = p * (G - (p * G).sum(-1, keepdims=True, dtype=f32))
np.savez(os.path.join(here, "softmax.npz"), x=X, dy=G, y=p.astype(bf16).astype(f32), dx=dx.astype(bf16).astype(f32))
