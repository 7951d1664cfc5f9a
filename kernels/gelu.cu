// SPDX-License-Identifier: Apache-2.0
// y = x/2 (1 + erf(x / sqrt(2))).       Run it alone: ampcheck check gelu
// Hendrycks & Gimpel 2016. Backward: dx = dy (cdf + x pdf) of the normal distribution.
#include "kernels/elementwise.h"

namespace ampcheck::kernels {

namespace {

constexpr float kSqrtHalf = 0.70710678118654752f;
constexpr float kInverseSqrtTwoPi = 0.39894228040143268f;

struct Gelu {
  AMPCHECK_HD float operator()(float x) const { return 0.5f * x * (1.0f + math::erf(x * kSqrtHalf)); }
};

struct GeluBackward {
  AMPCHECK_HD float operator()(float x, float dy) const {
    const float cdf = 0.5f * (1.0f + math::erf(x * kSqrtHalf));
    const float pdf = math::exp(-0.5f * x * x) * kInverseSqrtTwoPi;
    return dy * (cdf + x * pdf);
  }
};

void forward(const KernelCall& call) { elementwise(call, &call.at("y"), Gelu{}, call.at("x")); }

void backward(const KernelCall& call) {
  elementwise(call, call.find("dx"), GeluBackward{}, call.at("x"), call.at("dy"));
}

}  // namespace

Kernel gelu_kernel() { return {forward, backward}; }

}  // namespace ampcheck::kernels
