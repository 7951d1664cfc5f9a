// SPDX-License-Identifier: Apache-2.0
// y = tanh(x).       Run it alone: ampcheck check tanh
// Backward: dx = dy (1 - t^2), t computed again in fp32.
#include "kernels/elementwise.h"

namespace ampcheck::kernels {

namespace {

struct Tanh {
  AMPCHECK_HD float operator()(float x) const { return math::tanh(x); }
};

struct TanhBackward {
  AMPCHECK_HD float operator()(float x, float dy) const {
    const float t = math::tanh(x);
    return dy * (1.0f - t * t);
  }
};

void forward(const KernelCall& call) { elementwise(call, &call.at("y"), Tanh{}, call.at("x")); }

void backward(const KernelCall& call) {
  elementwise(call, call.find("dx"), TanhBackward{}, call.at("x"), call.at("dy"));
}

}  // namespace

Kernel tanh_kernel() { return {forward, backward}; }

}  // namespace ampcheck::kernels
