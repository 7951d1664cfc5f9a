// SPDX-License-Identifier: Apache-2.0
// y[i] = x[0] + ... + x[i] along the last axis.       Run it alone: ampcheck check cumsum
// Backward: dx[i] = dy[i] + dy[i + 1] + ... to the end.
#include "kernels/row_reduce.h"

namespace ampcheck::kernels {

namespace {

struct RunningSum {
  bool reversed;

  template <class Row>
  AMPCHECK_HD void operator()(const Row& row) const {
    row.scan(0, reversed, [&](std::int64_t i) { return row.in(0, i); });
  }
};

void run(const KernelCall& call, const TensorView& from, const TensorView& to, bool reversed) {
  row_reduce(call, row_count(from.shape), from.shape.last(), RunningSum{reversed}, {from}, {to});
}

void forward(const KernelCall& call) { run(call, call.at("x"), call.at("y"), false); }

void backward(const KernelCall& call) {
  if (const TensorView* const dx = call.find("dx")) run(call, call.at("dy"), *dx, true);
}

}  // namespace

Kernel cumsum_kernel() { return {forward, backward}; }

}  // namespace ampcheck::kernels
