// SPDX-License-Identifier: Apache-2.0
// y = (x - mean(x)) / sqrt(mean((x - mean(x))^2) + eps) * weight + bias.       Run it alone: ampcheck check layer_norm
// Ba et al. 2016, along the last axis; the variance in two passes. Saves mean and inv_std in fp32.
// Backward, with n = (x - mean) inv_std and g = dy weight: dx = inv_std (g - mean(g) - n mean(g n)).
#include "kernels/column_reduce.h"
#include "kernels/row_reduce.h"

namespace ampcheck::kernels {

namespace {

struct LayerNorm {
  float eps;

  template <class Row>
  AMPCHECK_HD void operator()(const Row& row) const {
    const float size = static_cast<float>(row.size());
    const float mean = math::divide(row.sum([&](std::int64_t i) { return row.in(0, i); }), size);
    const float squares = row.sum([&](std::int64_t i) {
      const float d = row.in(0, i) - mean;
      return d * d;
    });
    const float inv_std = math::rsqrt(math::divide(squares, size) + eps);
    row.out(0, [&](std::int64_t i) { return (row.in(0, i) - mean) * inv_std * row.in(1, i) + row.in(2, i); });
    row.save(1, mean);
    row.save(2, inv_std);
  }
};

struct LayerNormBackward {
  template <class Row>
  AMPCHECK_HD void operator()(const Row& row) const {
    const float size = static_cast<float>(row.size());
    const float mean = row.scalar(3), inv_std = row.scalar(4);
    const auto n = [&](std::int64_t i) { return (row.in(0, i) - mean) * inv_std; };
    const auto g = [&](std::int64_t i) { return row.in(2, i) * row.in(1, i); };
    const float mean_g = math::divide(row.sum(g), size);
    const float mean_gn = math::divide(row.sum([&](std::int64_t i) { return g(i) * n(i); }), size);
    row.out(0, [&](std::int64_t i) { return inv_std * (g(i) - mean_g - n(i) * mean_gn); });
  }
};

struct WeightTerm {
  static constexpr std::size_t kOnePerRow = 2;
  AMPCHECK_HD float operator()(float dy, float x, float mean, float inv_std) const {
    return dy * ((x - mean) * inv_std);
  }
};

void forward(const KernelCall& call) {
  const TensorView& x = call.at("x");
  row_reduce(call, row_count(x.shape), x.shape.last(), LayerNorm{static_cast<float>(call.number("eps"))},
             {x, parameter(call.find("weight"), x.shape, 1.0f), parameter(call.find("bias"), x.shape, -0.0f)},
             {call.at("y"), call.find("mean"), call.find("inv_std")});
}

void backward(const KernelCall& call) {
  const TensorView &x = call.at("x"), &dy = call.at("dy"), &mean = call.at("mean"), &inv_std = call.at("inv_std");
  if (call.find("dx"))
    row_reduce(call, row_count(x.shape), x.shape.last(), LayerNormBackward{},
               {x, parameter(call.find("weight"), x.shape, 1.0f), dy, mean, inv_std}, {call.at("dx")});
  column_reduce(call, call.find("dweight"), x.shape, WeightTerm{}, Same{}, dy, x, mean, inv_std);
  column_reduce(call, call.find("dbias"), x.shape, Same{}, Same{}, dy);
}

}  // namespace

Kernel layer_norm_kernel() { return {forward, backward}; }

}  // namespace ampcheck::kernels
