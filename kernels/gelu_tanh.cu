// SPDX-License-Identifier: Apache-2.0
// y = x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))).       Run it alone: ampcheck check gelu_tanh
// Hendrycks & Gimpel 2016, the approximation.
#include "kernels/elementwise.h"

namespace ampcheck::kernels {

namespace {

constexpr float kScale = 0.79788456080286536f;  // sqrt(2/pi)
constexpr float kCubic = 0.044715f;

struct GeluTanh {
  AMPCHECK_HD float operator()(float x) const {
    return 0.5f * x * (1.0f + math::tanh(kScale * (x + kCubic * x * x * x)));
  }
};

struct GeluTanhBackward {
  AMPCHECK_HD float operator()(float x, float dy) const {
    const float t = math::tanh(kScale * (x + kCubic * x * x * x));
    const float slope = kScale * (1.0f + 3.0f * kCubic * x * x);
    return dy * (0.5f * (1.0f + t) + 0.5f * x * (1.0f - t * t) * slope);
  }
};

void forward(const KernelCall& call) { elementwise(call, &call.at("y"), GeluTanh{}, call.at("x")); }

void backward(const KernelCall& call) {
  elementwise(call, call.find("dx"), GeluTanhBackward{}, call.at("x"), call.at("dy"));
}

}  // namespace

Kernel gelu_tanh_kernel() { return {forward, backward}; }

}  // namespace ampcheck::kernels
