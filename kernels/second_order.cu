// SPDX-License-Identifier: Apache-2.0
#include "kernels/second_order.h"

#include "kernels/elementwise.h"

namespace ampcheck::kernels {

namespace {

struct TanhByX {
  AMPCHECK_HD float operator()(float x, float dy, float cotangent) const {
    const float t = math::tanh(x);
    return -2.0f * t * ((1.0f - t * t) * (dy * cotangent));
  }
};

struct TanhByCotangent {
  AMPCHECK_HD float operator()(float x, float cotangent) const {
    const float t = math::tanh(x);
    return cotangent * (1.0f - t * t);
  }
};

struct Product {
  AMPCHECK_HD float operator()(float a, float b) const { return a * b; }
};

struct SumOfProducts {
  AMPCHECK_HD float operator()(float a, float b, float c, float d) const { return a * b + c * d; }
};

}  // namespace

void tanh_double_backward(const KernelCall& call) {
  elementwise(call, call.find("dx"), TanhByX{}, call.at("x"), call.at("dy"), call.at("dgrad_x"));
  elementwise(call, call.find("ddy"), TanhByCotangent{}, call.at("x"), call.at("dgrad_x"));
}

void mul_double_backward(const KernelCall& call) {
  elementwise(call, call.find("dx"), Product{}, call.at("dz"), call.at("dgrad_y"));
  elementwise(call, call.find("dy"), Product{}, call.at("dz"), call.at("dgrad_x"));
  elementwise(call, call.find("ddz"), SumOfProducts{}, call.at("y"), call.at("dgrad_x"), call.at("x"), call.at("dgrad_y"));
}

}  // namespace ampcheck::kernels
