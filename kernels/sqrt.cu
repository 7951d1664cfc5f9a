// SPDX-License-Identifier: Apache-2.0
// y = sqrt(x).       Run it alone: ampcheck check sqrt
// Backward: dx = dy / (2 y).
#include "kernels/elementwise.h"

namespace ampcheck::kernels {

namespace {

struct Sqrt {
  AMPCHECK_HD float operator()(float x) const { return math::sqrt(x); }
};

struct SqrtBackward {
  AMPCHECK_HD float operator()(float x, float dy) const { return math::divide(0.5f * dy, math::sqrt(x)); }
};

void forward(const KernelCall& call) { elementwise(call, &call.at("y"), Sqrt{}, call.at("x")); }

void backward(const KernelCall& call) {
  elementwise(call, call.find("dx"), SqrtBackward{}, call.at("x"), call.at("dy"));
}

}  // namespace

Kernel sqrt_kernel() { return {forward, backward}; }

}  // namespace ampcheck::kernels
