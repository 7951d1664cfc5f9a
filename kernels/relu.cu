// SPDX-License-Identifier: Apache-2.0
// y = max(x, 0), NaN for NaN.       Run it alone: ampcheck check relu
// Backward: dx = dy where x > 0 or x is NaN, else 0.
#include "kernels/elementwise.h"

namespace ampcheck::kernels {

namespace {

struct Relu {
  AMPCHECK_HD float operator()(float x) const { return x <= 0.0f ? 0.0f : x; }
};

struct ReluBackward {
  AMPCHECK_HD float operator()(float x, float dy) const { return x <= 0.0f ? 0.0f : dy; }
};

void forward(const KernelCall& call) { elementwise(call, &call.at("y"), Relu{}, call.at("x")); }

void backward(const KernelCall& call) {
  elementwise(call, call.find("dx"), ReluBackward{}, call.at("x"), call.at("dy"));
}

}  // namespace

Kernel relu_kernel() { return {forward, backward}; }

}  // namespace ampcheck::kernels
