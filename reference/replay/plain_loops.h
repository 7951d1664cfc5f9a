// SPDX-License-Identifier: Apache-2.0
// PlainEvaluator's loops in fp64, so that they vectorise: the same operations on the same operands in the same order as
// its general ones, so the same bits.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "reference/graph/expr.h"

namespace ampcheck::reference {

/// An elementwise primitive of operands that broadcast to the node's shape.
std::vector<double> plain_elementwise(const Node& node, std::span<const std::vector<double>* const> args,
                                      std::span<const Shape* const> shapes);

/// out[o, i] = sum over k of x[o, k, i], k ascending from zero; `out` holds zeros.
void plain_sums(const double* x, std::int64_t outer, std::int64_t n, std::int64_t inner, double* out);

/// a [n, k] or, turned, [k, n]; b [k, m] or, turned, [m, k].
struct MatmulSizes {
  std::int64_t n, k, m;
  bool transpose_a, transpose_b;
};
/// out [n, m]: each element a sum over k, ascending from zero, of rounded products.
void plain_matmul(const MatmulSizes& sizes, const double* a, const double* b, double* out);

}  // namespace ampcheck::reference
