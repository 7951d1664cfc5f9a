// SPDX-License-Identifier: Apache-2.0
// y = limit - log(1 + exp(limit - x)), a smooth min(x, limit).       Run it alone: ampcheck check soft_clip
// The kernel of tests/newcomer_test.cmake, which adds an op by the steps of CONTRIBUTING.md.
#include "kernels/elementwise.h"

namespace ampcheck::kernels {

namespace {

struct SoftClip {
  float limit;

  AMPCHECK_HD float operator()(float x) const {
    const float z = limit - x;
    return limit - (math::at_least(z, 0.0f) + math::log1p(math::exp(-math::abs(z))));
  }
};

struct SoftClipBackward {
  float limit;

  AMPCHECK_HD float operator()(float x, float dy) const { return dy * math::sigmoid(limit - x); }
};

float limit_of(const KernelCall& call) { return static_cast<float>(call.number("limit")); }

void forward(const KernelCall& call) { elementwise(call, &call.at("y"), SoftClip{limit_of(call)}, call.at("x")); }

void backward(const KernelCall& call) {
  elementwise(call, call.find("dx"), SoftClipBackward{limit_of(call)}, call.at("x"), call.at("dy"));
}

}  // namespace

Kernel soft_clip_kernel() { return {forward, backward}; }

}  // namespace ampcheck::kernels
