// SPDX-License-Identifier: Apache-2.0
// y = gate sigmoid(gate) up.       Run it alone: ampcheck check swiglu
// Shazeer 2020. Backward: dgate = dy up s (1 + gate (1 - s)), dup = dy gate s, s = sigmoid(gate).
#include "kernels/elementwise.h"

namespace ampcheck::kernels {

namespace {

struct Swiglu {
  AMPCHECK_HD float operator()(float gate, float up) const { return gate * math::sigmoid(gate) * up; }
};

struct GateBackward {
  AMPCHECK_HD float operator()(float gate, float up, float dy) const {
    const float s = math::sigmoid(gate);
    return dy * up * (s * (1.0f + gate * (1.0f - s)));
  }
};

void forward(const KernelCall& call) { elementwise(call, &call.at("y"), Swiglu{}, call.at("gate"), call.at("up")); }

void backward(const KernelCall& call) {
  elementwise(call, call.find("dgate"), GateBackward{}, call.at("gate"), call.at("up"), call.at("dy"));
  elementwise(call, call.find("dup"), Swiglu{}, call.at("gate"), call.at("dy"));
}

}  // namespace

Kernel swiglu_kernel() { return {forward, backward}; }

}  // namespace ampcheck::kernels
