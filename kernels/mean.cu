// SPDX-License-Identifier: Apache-2.0
// y = sum(x) / n along the last axis (axis = -1) or over rows (axis = 0), the axis kept.       Run it alone: ampcheck
// check mean Backward: dx = dy / n, repeated. Of an empty axis: 0 / 0, NaN.
#include "kernels/column_reduce.h"
#include "kernels/elementwise.h"
#include "kernels/row_reduce.h"

namespace ampcheck::kernels {

namespace {

struct RowMean {
  template <class Row>
  AMPCHECK_HD void operator()(const Row& row) const {
    const float sum = row.sum([&](std::int64_t i) { return row.in(0, i); });
    row.save(0, math::divide(sum, static_cast<float>(row.size())));
  }
};

bool over_rows(const KernelCall& call) { return call.attributes->integer("axis") == 0; }

/// Divides by the number of elements of a sum.
Divide by_count(const KernelCall& call) {
  const Shape& shape = call.at("x").shape;
  return {static_cast<float>(over_rows(call) ? row_count(shape) : shape.last())};
}

void forward(const KernelCall& call) {
  const TensorView& x = call.at("x");
  if (over_rows(call))
    column_reduce(call, &call.at("y"), x.shape, Same{}, by_count(call), x);
  else
    row_reduce(call, row_count(x.shape), x.shape.last(), RowMean{}, {x}, {call.at("y")});
}

void backward(const KernelCall& call) { elementwise(call, call.find("dx"), by_count(call), call.at("dy")); }

}  // namespace

Kernel mean_kernel() { return {forward, backward}; }

}  // namespace ampcheck::kernels
