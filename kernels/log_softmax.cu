// SPDX-License-Identifier: Apache-2.0
// y = x - max(x) - log(sum(exp(x - max(x)))) along the last axis.       Run it alone: ampcheck check log_softmax
// Backward keeps nothing: exp(y) is computed again in fp32, dx = dy - exp(y) * sum(dy).
#include "kernels/row_reduce.h"

namespace ampcheck::kernels {

namespace {

struct LogSoftmax {
  template <class Row>
  AMPCHECK_HD void operator()(const Row& row) const {
    const float shift = row.max([&](std::int64_t i) { return row.in(0, i); });
    const float log_total = math::log(row.sum([&](std::int64_t i) { return math::exp(row.in(0, i) - shift); }));
    row.out(0, [&](std::int64_t i) { return (row.in(0, i) - shift) - log_total; });
  }
};

struct LogSoftmaxBackward {
  template <class Row>
  AMPCHECK_HD void operator()(const Row& row) const {
    const float shift = row.max([&](std::int64_t i) { return row.in(0, i); });
    const auto e = row.once(0, [&](std::int64_t i) { return math::exp(row.in(0, i) - shift); });
    const float total = row.sum(e);
    const float sum = row.sum([&](std::int64_t i) { return row.in(1, i); });
    row.out(0, [&](std::int64_t i) { return row.in(1, i) - math::divide(e(i), total) * sum; });
  }
};

void forward(const KernelCall& call) {
  const TensorView& x = call.at("x");
  row_reduce(call, row_count(x.shape), x.shape.last(), LogSoftmax{}, {x}, {call.at("y")});
}

void backward(const KernelCall& call) {
  const TensorView& x = call.at("x");
  row_reduce(call, row_count(x.shape), x.shape.last(), LogSoftmaxBackward{}, {x, call.at("dy")}, {call.find("dx")});
}

}  // namespace

Kernel log_softmax_kernel() { return {forward, backward}; }

}  // namespace ampcheck::kernels
