// SPDX-License-Identifier: Apache-2.0
// y = x held between min and max, NaN for NaN.       Run it alone: ampcheck check clamp
// Backward: dx = dy where min <= x <= max, else 0.
#include "kernels/elementwise.h"

namespace ampcheck::kernels {

namespace {

struct Clamp {
  float low, high;

  AMPCHECK_HD float operator()(float x) const { return math::at_most(math::at_least(x, low), high); }
};

struct ClampBackward {
  float low, high;

  AMPCHECK_HD float operator()(float x, float dy) const { return math::select((x < low) | (x > high), 0.0f, dy); }
};

template <class Functor>
Functor between(const KernelCall& call) {
  return {static_cast<float>(call.number("min")), static_cast<float>(call.number("max"))};
}

void forward(const KernelCall& call) { elementwise(call, &call.at("y"), between<Clamp>(call), call.at("x")); }

void backward(const KernelCall& call) {
  elementwise(call, call.find("dx"), between<ClampBackward>(call), call.at("x"), call.at("dy"));
}

}  // namespace

Kernel clamp_kernel() { return {forward, backward}; }

}  // namespace ampcheck::kernels
