// SPDX-License-Identifier: Apache-2.0
// y = (x - mean) / sqrt(mean((x - mean)^2) + eps) * weight + bias over all images and places of a channel, and
// new_running_mean = (1 - momentum) running_mean + momentum mean, new_running_var the same with the variance over n
// - 1.
//                                                                      Run it alone: ampcheck check batch_norm
// Ioffe & Szegedy 2015, training mode. A row is a channel: N L elements in the order of the images. Saves mean and
// inv_std in fp32. Backward as layer_norm's over these rows, with dweight = sum(dy n) and dbias = sum(dy) of each row.
#include "kernels/normalize.h"

namespace ampcheck::kernels {

namespace {

/// Inputs x, weight, bias, running_mean, running_var; outputs y, mean, inv_std, new_running_mean, new_running_var.
struct BatchNorm {
  float eps, momentum;

  template <class Row>
  AMPCHECK_HD void operator()(const Row& row) const {
    const RowStatistics of = normalize_row(row, eps);
    const float kept = 1.0f - momentum;
    const float unbiased = math::divide(of.squares, static_cast<float>(row.size() - 1));
    row.save(3, kept * row.scalar(3) + momentum * of.mean);
    row.save(4, kept * row.scalar(4) + momentum * unbiased);
  }
};

/// Inputs x, weight, dy, mean, inv_std; outputs dx, dweight, dbias.
struct BatchNormBackward {
  template <class Row>
  AMPCHECK_HD void operator()(const Row& row) const {
    const float mean = row.scalar(3), inv_std = row.scalar(4);
    NormalizeBackward()(row);
    row.save(1, row.sum([&](std::int64_t i) { return row.in(2, i) * ((row.in(0, i) - mean) * inv_std); }));
    row.save(2, row.sum([&](std::int64_t i) { return row.in(2, i); }));
  }
};

/// x, y, dy or dx [N, C, L] with a channel a row.
RowOperand channels(const TensorView& view) {
  return {Operand(permute(view, {1, 0, 2})), view.shape[0] * view.shape[2]};
}

/// A tensor [C], the same all along a row or one element a row.
RowOperand repeated(const TensorView* parameter, const Shape& x, float fill) {
  const std::int64_t length = x[0] * x[2];
  if (parameter == nullptr) return {Operand(x.count(), fill), length};
  TensorView column = *parameter;
  column.shape = Shape{x[1], 1};
  column.strides = Shape{parameter->strides[0], 0};
  return {Operand(expand(column, Shape{x[1], length})), length};
}
RowOperand one_each(const TensorView* view) { return view != nullptr ? per_row(*view) : RowOperand(); }

void forward(const KernelCall& call) {
  const TensorView& x = call.at("x");
  const BatchNorm program{static_cast<float>(call.number("eps")), static_cast<float>(call.number("momentum"))};
  row_reduce(call, x.shape[1], x.shape[0] * x.shape[2], program,
             {channels(x), repeated(call.find("weight"), x.shape, 1.0f), repeated(call.find("bias"), x.shape, -0.0f),
              per_row(call.at("running_mean")), per_row(call.at("running_var"))},
             {channels(call.at("y")), one_each(call.find("mean")), one_each(call.find("inv_std")),
              one_each(call.find("new_running_mean")), one_each(call.find("new_running_var"))});
}

void backward(const KernelCall& call) {
  const TensorView &x = call.at("x"), *dx = call.find("dx");
  row_reduce(
      call, x.shape[1], x.shape[0] * x.shape[2], BatchNormBackward{},
      {channels(x), repeated(call.find("weight"), x.shape, 1.0f), channels(call.at("dy")), per_row(call.at("mean")),
       per_row(call.at("inv_std"))},
      {dx != nullptr ? channels(*dx) : RowOperand(), one_each(call.find("dweight")), one_each(call.find("dbias"))});
}

}  // namespace

Kernel batch_norm_kernel() { return {forward, backward}; }

}  // namespace ampcheck::kernels
