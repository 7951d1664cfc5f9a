// SPDX-License-Identifier: Apache-2.0
// y = x where x > 0, else negative_slope x.       Run it alone: ampcheck check leaky_relu
// Backward: dx = dy where x > 0, else negative_slope dy: at 0 the slope of the left side.
#include "kernels/elementwise.h"

namespace ampcheck::kernels {

namespace {

struct LeakyRelu {
  float slope;

  AMPCHECK_HD float operator()(float x) const { return x <= 0.0f ? slope * x : x; }
};

struct LeakyReluBackward {
  float slope;

  AMPCHECK_HD float operator()(float x, float dy) const { return x <= 0.0f ? slope * dy : dy; }
};

float slope_of(const KernelCall& call) { return static_cast<float>(call.number("negative_slope")); }

void forward(const KernelCall& call) { elementwise(call, &call.at("y"), LeakyRelu{slope_of(call)}, call.at("x")); }

void backward(const KernelCall& call) {
  elementwise(call, call.find("dx"), LeakyReluBackward{slope_of(call)}, call.at("x"), call.at("dy"));
}

}  // namespace

Kernel leaky_relu_kernel() { return {forward, backward}; }

}  // namespace ampcheck::kernels
