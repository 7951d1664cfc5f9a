// SPDX-License-Identifier: Apache-2.0
// y = (x - mean) / sqrt(mean((x - mean)^2) + eps) * weight + bias over the channels of a group and all places, weight
// and bias per channel.       Run it alone: ampcheck check group_norm Wu & He 2018. A row is a group of an image:
// C/groups * L elements that lie side by side. Saves mean and inv_std in fp32. Backward as layer_norm's over these
// rows; parameter gradients as column_reduce.h, a group at a time.
#include "kernels/column_reduce.h"
#include "kernels/normalize.h"

namespace ampcheck::kernels {

namespace {

struct WeightTerm {
  static constexpr std::size_t kOnePerRow = 2;
  AMPCHECK_HD float operator()(float dy, float x, float mean, float inv_std) const {
    return dy * ((x - mean) * inv_std);
  }
};

/// Rows and their length.
struct Groups {
  std::int64_t count, channels, places;  ///< groups of an image, channels of a group, places of a channel

  explicit Groups(const KernelCall& call) {
    const Shape& x = call.at("x").shape;
    count = call.attributes->integer("groups");
    channels = x[1] / count;
    places = x[2];
  }
  std::int64_t size() const { return channels * places; }
  RowOperand rows(const TensorView& view) const { return {Operand(view), size()}; }
  /// A parameter [C] beside x.
  RowOperand rows(const TensorView* parameter, const Shape& x, float fill) const {
    if (parameter == nullptr) return {Operand(x.count(), fill), size()};
    TensorView column = *parameter;
    column.shape = Shape{parameter->shape[0], 1};
    column.strides = Shape{parameter->strides[0], 0};
    return {Operand(expand(column, x)), size()};
  }
};

/// `length` elements along `axis` from `first` on.
TensorView part(TensorView view, int axis, std::int64_t first, std::int64_t length) {
  view.data = static_cast<std::byte*>(view.data) + first * view.strides[axis] * bytes(view.dtype);
  view.shape[axis] = length;
  return view;
}

void forward(const KernelCall& call) {
  const TensorView& x = call.at("x");
  const Groups groups(call);
  row_reduce(
      call, x.shape[0] * groups.count, groups.size(), Normalize{static_cast<float>(call.number("eps"))},
      {groups.rows(x), groups.rows(call.find("weight"), x.shape, 1.0f), groups.rows(call.find("bias"), x.shape, -0.0f)},
      {groups.rows(call.at("y")), call.find("mean"), call.find("inv_std")});
}

void backward(const KernelCall& call) {
  const TensorView &x = call.at("x"), &dy = call.at("dy"), &mean = call.at("mean"), &inv_std = call.at("inv_std");
  const Groups groups(call);
  if (const TensorView* dx = call.find("dx"))
    row_reduce(call, x.shape[0] * groups.count, groups.size(), NormalizeBackward{},
               {groups.rows(x), groups.rows(call.find("weight"), x.shape, 1.0f), groups.rows(dy), mean, inv_std},
               {groups.rows(*dx)});
  const TensorView *dweight = call.find("dweight"), *dbias = call.find("dbias");
  for (std::int64_t g = 0; g < groups.count; ++g) {
    const std::int64_t first = g * groups.channels;
    const auto channels_last = [&](const TensorView& view) {
      return permute(part(view, 1, first, groups.channels), {0, 2, 1});
    };
    const TensorView dy_g = channels_last(dy), x_g = channels_last(x);
    if (dweight != nullptr) {
      const TensorView to = part(*dweight, 0, first, groups.channels);
      column_reduce(call, &to, dy_g.shape, WeightTerm{}, Same{}, dy_g, x_g, part(mean, 1, g, 1),
                    part(inv_std, 1, g, 1));
    }
    if (dbias != nullptr) {
      const TensorView to = part(*dbias, 0, first, groups.channels);
      column_reduce(call, &to, dy_g.shape, Same{}, Same{}, dy_g);
    }
  }
}

}  // namespace

Kernel group_norm_kernel() { return {forward, backward}; }

}  // namespace ampcheck::kernels
