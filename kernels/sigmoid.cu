// SPDX-License-Identifier: Apache-2.0
// y = 1 / (1 + exp(-x)).       Run it alone: ampcheck check sigmoid
// Backward: dx = dy s (1 - s), s computed again in fp32.
#include "kernels/elementwise.h"

namespace ampcheck::kernels {

namespace {

struct Sigmoid {
  AMPCHECK_HD float operator()(float x) const { return math::sigmoid(x); }
};

struct SigmoidBackward {
  AMPCHECK_HD float operator()(float x, float dy) const {
    const float s = math::sigmoid(x);
    return dy * (s * (1.0f - s));
  }
};

void forward(const KernelCall& call) { elementwise(call, &call.at("y"), Sigmoid{}, call.at("x")); }

void backward(const KernelCall& call) {
  elementwise(call, call.find("dx"), SigmoidBackward{}, call.at("x"), call.at("dy"));
}

}  // namespace

Kernel sigmoid_kernel() { return {forward, backward}; }

}  // namespace ampcheck::kernels
