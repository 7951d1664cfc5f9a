// SPDX-License-Identifier: Apache-2.0
// y = x where x > 0, else alpha (exp(x) - 1).       Run it alone: ampcheck check elu
// Backward: dx = dy where x > 0, else dy alpha exp(x): at 0 the slope of the left side.
#include "kernels/elementwise.h"

namespace ampcheck::kernels {

namespace {

struct Elu {
  float alpha;

  AMPCHECK_HD float operator()(float x) const { return math::select(x <= 0.0f, alpha * math::expm1(x), x); }
};

struct EluBackward {
  float alpha;

  AMPCHECK_HD float operator()(float x, float dy) const {
    return math::select(x <= 0.0f, dy * (alpha * math::exp(x)), dy);
  }
};

float alpha_of(const KernelCall& call) { return static_cast<float>(call.number("alpha")); }

void forward(const KernelCall& call) { elementwise(call, &call.at("y"), Elu{alpha_of(call)}, call.at("x")); }

void backward(const KernelCall& call) {
  elementwise(call, call.find("dx"), EluBackward{alpha_of(call)}, call.at("x"), call.at("dy"));
}

}  // namespace

Kernel elu_kernel() { return {forward, backward}; }

}  // namespace ampcheck::kernels
