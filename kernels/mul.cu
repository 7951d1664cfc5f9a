// SPDX-License-Identifier: Apache-2.0
// z = x y.       Run it alone: ampcheck check mul
// Backward: dx = dz y, dy = dz x.
#include "kernels/elementwise.h"

namespace ampcheck::kernels {

namespace {

struct Mul {
  AMPCHECK_HD float operator()(float x, float y) const { return x * y; }
};

void forward(const KernelCall& call) { elementwise(call, &call.at("z"), Mul{}, call.at("x"), call.at("y")); }

void backward(const KernelCall& call) {
  elementwise(call, call.find("dx"), Mul{}, call.at("dz"), call.at("y"));
  elementwise(call, call.find("dy"), Mul{}, call.at("dz"), call.at("x"));
}

}  // namespace

Kernel mul_kernel() { return {forward, backward}; }

}  // namespace ampcheck::kernels
