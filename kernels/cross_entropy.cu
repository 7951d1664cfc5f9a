// SPDX-License-Identifier: Apache-2.0
// loss = log(sum(exp(x))) - (1 - s) x[target] - s/C sum(x), s = label_smoothing.  Run it alone: ampcheck check
// cross_entropy One loss a row, in fp32; rows whose target is ignore_index give 0 and no gradient. The weights of x sum
// to 1, so all three terms are taken of x - max(x): a confident row keeps its digits. Backward: dx = dloss (softmax(x)
// - (1 - s) [i = target] - s/C), the softmax computed again.
#include "kernels/gather_scatter.h"
#include "kernels/row_reduce.h"

namespace ampcheck::kernels {

namespace {

struct CrossEntropy {
  float smoothing;
  std::int64_t ignore_index;

  template <class Row>
  AMPCHECK_HD void operator()(const Row& row) const {
    const std::int64_t target = row.index(1);
    if (target == ignore_index) return row.save(0, 0.0f);
    const float shift = row.max([&](std::int64_t i) { return row.in(0, i); });
    const float total = row.sum([&](std::int64_t i) { return math::exp(row.in(0, i) - shift); });
    float loss = math::log(total) - (1.0f - smoothing) * (row.in(0, target) - shift);
    if (smoothing != 0.0f) {  // 0 * sum(x) would be NaN for a masked (-inf) class
      const float sum = row.sum([&](std::int64_t i) { return row.in(0, i) - shift; });
      loss -= math::divide(smoothing, static_cast<float>(row.size())) * sum;
    }
    row.save(0, loss);
  }
};

struct CrossEntropyBackward {
  float smoothing;
  std::int64_t ignore_index;

  template <class Row>
  AMPCHECK_HD void operator()(const Row& row) const {
    const std::int64_t target = row.index(1);
    if (target == ignore_index) return row.out(0, [](std::int64_t) { return 0.0f; });
    const float shift = row.max([&](std::int64_t i) { return row.in(0, i); });
    const auto e = row.once(0, [&](std::int64_t i) { return math::exp(row.in(0, i) - shift); });
    const float total = row.sum(e);
    const float dloss = row.scalar(2);
    const float uniform = math::divide(smoothing, static_cast<float>(row.size())), certain = 1.0f - smoothing;
    const auto class_index = static_cast<std::uint32_t>(target);  // 32 bits, so that the comparison vectorises
    row.out(0, [&](std::int64_t i) {
      const float p = math::divide(e(i), total);
      const float hit = math::select(static_cast<std::uint32_t>(i) == class_index, certain, 0.0f);
      return dloss * (p - hit - uniform);
    });
  }
};

void forward(const KernelCall& call) {
  const TensorView& x = call.at("x");
  const std::int64_t ignore = call.attributes->integer("ignore_index");
  check_indices(call, "target", x.shape.last(), ignore);
  row_reduce(call, row_count(x.shape), x.shape.last(),
             CrossEntropy{static_cast<float>(call.number("label_smoothing")), ignore}, {x, per_row(call.at("target"))},
             {per_row(call.at("loss"))});
}

void backward(const KernelCall& call) {
  const TensorView& x = call.at("x");
  const std::int64_t ignore = call.attributes->integer("ignore_index");
  check_indices(call, "target", x.shape.last(), ignore);
  row_reduce(call, row_count(x.shape), x.shape.last(),
             CrossEntropyBackward{static_cast<float>(call.number("label_smoothing")), ignore},
             {x, per_row(call.at("target")), per_row(call.at("dloss"))}, {call.find("dx")});
}

}  // namespace

Kernel cross_entropy_kernel() { return {forward, backward}; }

}  // namespace ampcheck::kernels
