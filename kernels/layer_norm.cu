// SPDX-License-Identifier: Apache-2.0
// y = (x - mean(x)) / sqrt(mean((x - mean(x))^2) + eps) * weight + bias.       Run it alone: ampcheck check layer_norm
// Ba et al. 2016, along the last axis; the variance in two passes. Saves mean and inv_std in fp32.
// Backward, with n = (x - mean) inv_std and g = dy weight: dx = inv_std (g - mean(g) - n mean(g n)).
#include "kernels/column_reduce.h"
#include "kernels/normalize.h"

namespace ampcheck::kernels {

namespace {

struct WeightTerm {
  static constexpr std::size_t kOnePerRow = 2;
  AMPCHECK_HD float operator()(float dy, float x, float mean, float inv_std) const {
    return dy * ((x - mean) * inv_std);
  }
};

void forward(const KernelCall& call) {
  const TensorView& x = call.at("x");
  row_reduce(call, row_count(x.shape), x.shape.last(), Normalize{static_cast<float>(call.number("eps"))},
             {x, parameter(call.find("weight"), x.shape, 1.0f), parameter(call.find("bias"), x.shape, -0.0f)},
             {call.at("y"), call.find("mean"), call.find("inv_std")});
}

void backward(const KernelCall& call) {
  const TensorView &x = call.at("x"), &dy = call.at("dy"), &mean = call.at("mean"), &inv_std = call.at("inv_std");
  if (call.find("dx"))
    row_reduce(call, row_count(x.shape), x.shape.last(), NormalizeBackward{},
               {x, parameter(call.find("weight"), x.shape, 1.0f), dy, mean, inv_std}, {call.at("dx")});
  column_reduce(call, call.find("dweight"), x.shape, WeightTerm{}, Same{}, dy, x, mean, inv_std);
  column_reduce(call, call.find("dbias"), x.shape, Same{}, Same{}, dy);
}

}  // namespace

Kernel layer_norm_kernel() { return {forward, backward}; }

}  // namespace ampcheck::kernels
