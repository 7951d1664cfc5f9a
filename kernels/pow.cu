// SPDX-License-Identifier: Apache-2.0
// y = x^exponent.       Run it alone: ampcheck check pow
// Backward: dx = dy (exponent x^(exponent - 1)), 0 where the exponent is 0.
#include "kernels/elementwise.h"

namespace ampcheck::kernels {

namespace {

struct Pow {
  float exponent;

  AMPCHECK_HD float operator()(float x) const { return math::pow(x, exponent); }
};

struct PowBackward {
  float exponent;

  AMPCHECK_HD float operator()(float x, float dy) const {
    const float slope = exponent * math::pow(x, exponent - 1.0f);
    return math::select(exponent == 0.0f, 0.0f, dy * slope);  // 0 times the pole of 1/x is no number
  }
};

float exponent_of(const KernelCall& call) { return static_cast<float>(call.number("exponent")); }

void forward(const KernelCall& call) { elementwise(call, &call.at("y"), Pow{exponent_of(call)}, call.at("x")); }

void backward(const KernelCall& call) {
  elementwise(call, call.find("dx"), PowBackward{exponent_of(call)}, call.at("x"), call.at("dy"));
}

}  // namespace

Kernel pow_kernel() { return {forward, backward}; }

}  // namespace ampcheck::kernels
