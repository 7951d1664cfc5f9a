// SPDX-License-Identifier: Apache-2.0
// y = x sigmoid(x).       Run it alone: ampcheck check silu
// Backward: dx = dy s (1 + x (1 - s)), s = sigmoid(x).
#include "kernels/elementwise.h"

namespace ampcheck::kernels {

namespace {

struct Silu {
  AMPCHECK_HD float operator()(float x) const { return x * math::sigmoid(x); }
};

struct SiluBackward {
  AMPCHECK_HD float operator()(float x, float dy) const {
    const float s = math::sigmoid(x);
    return dy * (s * (1.0f + x * (1.0f - s)));
  }
};

void forward(const KernelCall& call) { elementwise(call, &call.at("y"), Silu{}, call.at("x")); }

void backward(const KernelCall& call) {
  elementwise(call, call.find("dx"), SiluBackward{}, call.at("x"), call.at("dy"));
}

}  // namespace

Kernel silu_kernel() { return {forward, backward}; }

}  // namespace ampcheck::kernels
