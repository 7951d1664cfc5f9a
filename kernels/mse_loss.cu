// SPDX-License-Identifier: Apache-2.0
// loss = mean((x - target)^2) over all elements.       Run it alone: ampcheck check mse_loss
// Backward: dx = dloss (2/n) (x - target), dtarget = -dx.
#include "kernels/column_reduce.h"
#include "kernels/elementwise.h"

namespace ampcheck::kernels {

namespace {

struct SquaredDifference {
  AMPCHECK_HD float operator()(float x, float target) const {
    const float d = x - target;
    return d * d;
  }
};

struct Slope {
  float scale;  ///< 2/n
  AMPCHECK_HD float operator()(float x, float target, float dloss) const { return dloss * (scale * (x - target)); }
};

void forward(const KernelCall& call) {
  const TensorView& x = call.at("x");
  tensor_reduce(call, call.at("loss"), x.shape, SquaredDifference{}, Divide{static_cast<float>(x.count())}, x,
                call.at("target"));
}

void backward(const KernelCall& call) {
  const TensorView &x = call.at("x"), &target = call.at("target"), &dloss = call.at("dloss");
  const Slope slope{2.0f / static_cast<float>(x.count())};
  elementwise(call, call.find("dx"), slope, x, target, dloss);
  elementwise(call, call.find("dtarget"), slope, target, x, dloss);
}

}  // namespace

Kernel mse_loss_kernel() { return {forward, backward}; }

}  // namespace ampcheck::kernels
