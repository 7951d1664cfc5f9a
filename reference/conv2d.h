// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "reference/graph/expr.h"

namespace ampcheck::reference {

/// Stride and zero padding, the same along both axes.
struct Window {
  int stride = 1, padding = 0;
};

namespace detail {

/// Patches of x [N, C, H, W], one a row: [N P, C R S], P = outputs per image; outside the image 0.
inline Expr patches(Expr x, const Shape& weight, Window window) {
  const Expr rows = ampcheck::reference::patches(x, static_cast<int>(weight[2]), static_cast<int>(weight[3]),
                                                 window.stride, window.padding);
  const Shape& s = rows.shape();
  return reshape(rows, Shape{s[0] * s[1], s[2]});
}

/// [N P, O] to [N, O, H', W'], after adding the bias.
inline Expr image(Expr rows, Expr bias, const Shape& x, const Shape& weight, Window window) {
  static constexpr int kChannelsFirst[] = {0, 3, 1, 2};
  if (bias.defined()) rows = rows + bias;
  const std::int64_t height = window_extent(x[2], static_cast<int>(weight[2]), window.stride, window.padding);
  const std::int64_t width = window_extent(x[3], static_cast<int>(weight[3]), window.stride, window.padding);
  return transpose(reshape(rows, Shape{x[0], height, width, weight[0]}), kChannelsFirst);
}

}  // namespace detail

/// y[n,o,i,j] = bias[o] + sum_{c,r,s} x[n, c, i stride + r - padding, j stride + s - padding] weight[o,c,r,s], x = 0
/// outside the image: x [N, C, H, W], weight [O, C, R, S], bias [O] or undefined.   As unfold and one product.
inline Expr conv2d(Expr x, Expr weight, Expr bias, Window window) {
  const Shape& w = weight.shape();
  const Expr rows = detail::patches(x, w, window), filters = reshape(weight, Shape{w[0], w[1] * w[2] * w[3]});
  return detail::image(matmul(rows, filters, false, true), bias, x.shape(), w, window);
}

/// The form that leaves cells outside the image out of the sum. It differs where a weight is not finite: 0 inf is NaN.
inline Expr conv2d_inside_only(Expr x, Expr weight, Expr bias, Window window) {
  const Shape &s = x.shape(), &w = weight.shape();
  const std::int64_t taps = w[1] * w[2] * w[3];
  const Expr rows = detail::patches(x, w, window);
  // The same patches of an image of ones: 1 inside, 0 outside.
  const Expr ones = indicator(*x.graph, s, std::vector<std::int64_t>(static_cast<std::size_t>(s.count()), 1));
  const Shape spread{rows.shape()[0], 1, taps};
  const Expr inside = reshape(detail::patches(ones, w, window), spread);
  const Expr products =
      where(inside, reshape(rows, spread) * reshape(weight, Shape{w[0], taps}), constant(*x.graph, 0.0));
  return detail::image(reshape(sum(products, -1), Shape{rows.shape()[0], w[0]}), bias, s, w, window);
}

}  // namespace ampcheck::reference
