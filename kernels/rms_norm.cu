// SPDX-License-Identifier: Apache-2.0
// y = x / sqrt(mean(x^2) + eps) * weight, along the last axis.       Run it alone: ampcheck check rms_norm
// Zhang & Sennrich 2019, eq. 4. Saves inv_rms in fp32.
// Backward, with n = x inv_rms and g = dy weight: dx = inv_rms (g - n mean(g n)).
#include "kernels/column_reduce.h"
#include "kernels/row_reduce.h"

namespace ampcheck::kernels {

namespace {

struct RmsNorm {
  float eps;

  template <class Row>
  AMPCHECK_HD void operator()(const Row& row) const {
    const float squares = row.sum([&](std::int64_t i) { return row.in(0, i) * row.in(0, i); });
    const float inv_rms = math::rsqrt(math::divide(squares, static_cast<float>(row.size())) + eps);
    row.out(0, [&](std::int64_t i) { return row.in(0, i) * inv_rms * row.in(1, i); });
    row.save(1, inv_rms);
  }
};

struct RmsNormBackward {
  template <class Row>
  AMPCHECK_HD void operator()(const Row& row) const {
    const float inv_rms = row.scalar(3);
    const auto n = [&](std::int64_t i) { return row.in(0, i) * inv_rms; };
    const auto g = [&](std::int64_t i) { return row.in(2, i) * row.in(1, i); };
    const float mean_gn =
        math::divide(row.sum([&](std::int64_t i) { return g(i) * n(i); }), static_cast<float>(row.size()));
    row.out(0, [&](std::int64_t i) { return inv_rms * (g(i) - n(i) * mean_gn); });
  }
};

struct WeightTerm {
  static constexpr std::size_t kOnePerRow = 1;
  AMPCHECK_HD float operator()(float dy, float x, float inv_rms) const { return dy * (x * inv_rms); }
};

void forward(const KernelCall& call) {
  const TensorView& x = call.at("x");
  row_reduce(call, row_count(x.shape), x.shape.last(), RmsNorm{static_cast<float>(call.number("eps"))},
             {x, parameter(call.find("weight"), x.shape, 1.0f)}, {call.at("y"), call.find("inv_rms")});
}

void backward(const KernelCall& call) {
  const TensorView &x = call.at("x"), &dy = call.at("dy"), &inv_rms = call.at("inv_rms");
  if (call.find("dx"))
    row_reduce(call, row_count(x.shape), x.shape.last(), RmsNormBackward{},
               {x, parameter(call.find("weight"), x.shape, 1.0f), dy, inv_rms}, {call.at("dx")});
  column_reduce(call, call.find("dweight"), x.shape, WeightTerm{}, Same{}, dy, x, inv_rms);
}

}  // namespace

Kernel rms_norm_kernel() { return {forward, backward}; }

}  // namespace ampcheck::kernels
