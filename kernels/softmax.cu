// SPDX-License-Identifier: Apache-2.0
// y = exp(x - max(x)) / sum(exp(x - max(x))) along the last axis.       Run it alone: ampcheck check softmax
// Backward keeps nothing: y is computed again in fp32, dx = y * (dy - sum(y * dy)).
#include "kernels/row_reduce.h"

namespace ampcheck::kernels {

namespace {

struct Softmax {
  template <class Row>
  AMPCHECK_HD void operator()(const Row& row) const {
    const float shift = row.max([&](std::int64_t i) { return row.in(0, i); });
    const auto e = row.once(0, [&](std::int64_t i) { return math::exp(row.in(0, i) - shift); });
    const float total = row.sum(e);
    row.out(0, [&](std::int64_t i) { return math::divide(e(i), total); });
  }
};

struct SoftmaxBackward {
  template <class Row>
  AMPCHECK_HD void operator()(const Row& row) const {
    const float shift = row.max([&](std::int64_t i) { return row.in(0, i); });
    const auto e = row.once(0, [&](std::int64_t i) { return math::exp(row.in(0, i) - shift); });
    const float total = row.sum(e);
    const auto y = row.once(1, [&](std::int64_t i) { return math::divide(e(i), total); });
    const float inner = row.sum([&](std::int64_t i) { return y(i) * row.in(1, i); });
    row.out(0, [&](std::int64_t i) { return y(i) * (row.in(1, i) - inner); });
  }
};

void forward(const KernelCall& call) {
  const TensorView& x = call.at("x");
  row_reduce(call, row_count(x.shape), x.shape.last(), Softmax{}, {x}, {call.at("y")});
}

void backward(const KernelCall& call) {
  const TensorView& x = call.at("x");
  row_reduce(call, row_count(x.shape), x.shape.last(), SoftmaxBackward{}, {x, call.at("dy")}, {call.find("dx")});
}

}  // namespace

Kernel softmax_kernel() { return {forward, backward}; }

}  // namespace ampcheck::kernels
