// SPDX-License-Identifier: Apache-2.0
// z = x / y.       Run it alone: ampcheck check div
// Backward: dx = dz / y, dy = -dz ((x / y) / y), which overflows later than dz x / y^2.
#include "kernels/elementwise.h"

namespace ampcheck::kernels {

namespace {

struct Div {
  AMPCHECK_HD float operator()(float x, float y) const { return math::divide(x, y); }
};

struct DivBackward {
  AMPCHECK_HD float operator()(float x, float y, float dz) const { return -dz * math::divide(math::divide(x, y), y); }
};

void forward(const KernelCall& call) { elementwise(call, &call.at("z"), Div{}, call.at("x"), call.at("y")); }

void backward(const KernelCall& call) {
  elementwise(call, call.find("dx"), Div{}, call.at("dz"), call.at("y"));
  elementwise(call, call.find("dy"), DivBackward{}, call.at("x"), call.at("y"), call.at("dz"));
}

}  // namespace

Kernel div_kernel() { return {forward, backward}; }

}  // namespace ampcheck::kernels
