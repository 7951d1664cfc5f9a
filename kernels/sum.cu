// SPDX-License-Identifier: Apache-2.0
// y = sum(x) along the last axis (axis = -1) or over rows (axis = 0), the axis kept.       Run it alone: ampcheck check
// sum Backward: dx = dy, repeated. Of an empty axis: 0.
#include "kernels/column_reduce.h"
#include "kernels/elementwise.h"
#include "kernels/row_reduce.h"

namespace ampcheck::kernels {

namespace {

struct RowSum {
  template <class Row>
  AMPCHECK_HD void operator()(const Row& row) const {
    row.save(0, row.sum([&](std::int64_t i) { return row.in(0, i); }));
  }
};

bool over_rows(const KernelCall& call) { return call.attributes->integer("axis") == 0; }

void forward(const KernelCall& call) {
  const TensorView& x = call.at("x");
  if (over_rows(call))
    column_reduce(call, &call.at("y"), x.shape, Same{}, Same{}, x);
  else
    row_reduce(call, row_count(x.shape), x.shape.last(), RowSum{}, {x}, {call.at("y")});
}

void backward(const KernelCall& call) { elementwise(call, call.find("dx"), Copy{}, call.at("dy")); }

}  // namespace

Kernel sum_kernel() { return {forward, backward}; }

}  // namespace ampcheck::kernels
