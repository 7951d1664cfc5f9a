// SPDX-License-Identifier: Apache-2.0
// y = log(1 + exp(beta x)) / beta.       Run it alone: ampcheck check softplus
// Computed as (max(z, 0) + log1p(exp(-|z|))) / beta, z = beta x, which never overflows.
// Backward: dx = dy sigmoid(z).
#include "kernels/elementwise.h"

namespace ampcheck::kernels {

namespace {

struct Softplus {
  float beta;

  AMPCHECK_HD float operator()(float x) const {
    const float z = beta * x;
    return math::divide(math::at_least(z, 0.0f) + math::log1p(math::exp(-math::abs(z))), beta);
  }
};

struct SoftplusBackward {
  float beta;

  AMPCHECK_HD float operator()(float x, float dy) const { return dy * math::sigmoid(beta * x); }
};

float beta_of(const KernelCall& call) { return static_cast<float>(call.number("beta")); }

void forward(const KernelCall& call) { elementwise(call, &call.at("y"), Softplus{beta_of(call)}, call.at("x")); }

void backward(const KernelCall& call) {
  elementwise(call, call.find("dx"), SoftplusBackward{beta_of(call)}, call.at("x"), call.at("dy"));
}

}  // namespace

Kernel softplus_kernel() { return {forward, backward}; }

}  // namespace ampcheck::kernels
