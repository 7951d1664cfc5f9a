// SPDX-License-Identifier: Apache-2.0
// y = log(x), the natural logarithm.       Run it alone: ampcheck check log
// Backward: dx = dy / x.
#include "kernels/elementwise.h"

namespace ampcheck::kernels {

namespace {

struct Log {
  AMPCHECK_HD float operator()(float x) const { return math::log(x); }
};

struct LogBackward {
  AMPCHECK_HD float operator()(float x, float dy) const { return math::divide(dy, x); }
};

void forward(const KernelCall& call) { elementwise(call, &call.at("y"), Log{}, call.at("x")); }

void backward(const KernelCall& call) {
  elementwise(call, call.find("dx"), LogBackward{}, call.at("x"), call.at("dy"));
}

}  // namespace

Kernel log_kernel() { return {forward, backward}; }

}  // namespace ampcheck::kernels
