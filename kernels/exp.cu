// SPDX-License-Identifier: Apache-2.0
// y = exp(x).       Run it alone: ampcheck check exp
// Backward: dx = dy exp(x).
#include "kernels/elementwise.h"

namespace ampcheck::kernels {

namespace {

struct Exp {
  AMPCHECK_HD float operator()(float x) const { return math::exp(x); }
};

struct ExpBackward {
  AMPCHECK_HD float operator()(float x, float dy) const { return dy * math::exp(x); }
};

void forward(const KernelCall& call) { elementwise(call, &call.at("y"), Exp{}, call.at("x")); }

void backward(const KernelCall& call) {
  elementwise(call, call.find("dx"), ExpBackward{}, call.at("x"), call.at("dy"));
}

}  // namespace

Kernel exp_kernel() { return {forward, backward}; }

}  // namespace ampcheck::kernels
