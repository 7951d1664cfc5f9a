// SPDX-License-Identifier: Apache-2.0
// Row programs of the norms that subtract a mean: y = (x - mean) / sqrt(mean((x - mean)^2) + eps) * weight + bias over
// one row, the variance in two passes, and dx = inv_std (g - mean(g) - n mean(g n)) with n = (x - mean) inv_std, g = dy
// weight.
#pragma once

#include "kernels/row_reduce.h"

namespace ampcheck::kernels {

struct RowStatistics {
  float mean, squares, inv_std;  ///< squares: the sum of (x - mean)^2
};

/// Inputs x, weight, bias; outputs y, mean, inv_std. Its statistics.
template <class Row>
AMPCHECK_HD RowStatistics normalize_row(const Row& row, float eps) {
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
  return {mean, squares, inv_std};
}

/// The program that does this and nothing else.
struct Normalize {
  float eps;

  template <class Row>
  AMPCHECK_HD void operator()(const Row& row) const {
    normalize_row(row, eps);
  }
};

/// Inputs x, weight, dy, mean, inv_std; output dx.
struct NormalizeBackward {
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

}  // namespace ampcheck::kernels
