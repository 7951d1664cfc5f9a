// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "reference/graph/expr.h"

namespace ampcheck::reference {

/// Largest element of each kernel x kernel window of x [N, C, H, W]; padding counts as -inf; among equals the first in
/// row-major order has the gradient. At least one cell of each window must lie inside (padding <= kernel/2).
inline Expr max_pool2d(Expr x, int kernel, int stride, int padding) {
  const Shape& s = x.shape();
  const std::int64_t height = window_extent(s[2], kernel, stride, padding),
                     width = window_extent(s[3], kernel, stride, padding);
  const std::int64_t planes = s[0] * s[1];
  std::vector<std::int64_t> map;
  for (std::int64_t plane = 0; plane < planes; ++plane)
    for (std::int64_t i = 0; i < height; ++i)
      for (std::int64_t j = 0; j < width; ++j) {
        const std::size_t end = map.size() + static_cast<std::size_t>(kernel * kernel);
        for (std::int64_t row = i * stride - padding; row < i * stride - padding + kernel; ++row)
          for (std::int64_t column = j * stride - padding; column < j * stride - padding + kernel; ++column)
            if (row >= 0 && row < s[2] && column >= 0 && column < s[3])
              map.push_back((plane * s[2] + row) * s[3] + column);
        // Cells outside, put last, repeat the last one inside: never larger, never the first.
        if (map.size() < end) map.resize(end, map.back());
      }
  const Expr windows = take(x, std::move(map), Shape{planes * height * width, kernel * kernel});
  return reshape(max(windows, -1), Shape{s[0], s[1], height, width});
}

}  // namespace ampcheck::reference
