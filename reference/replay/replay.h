// SPDX-License-Identifier: Apache-2.0
// Replays a graph in fp32 with a chosen order of summation and a chosen accumulator: what a kernel of that kind would
// compute. Replays calibrate and explain; they never convict by themselves.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "reference/graph/expr.h"
#include "src/float_format.h"

namespace ampcheck::reference {

enum class SumOrder { sequential, lanes32, pairwise, reversed };

struct ReplayOptions {
  SumOrder order = SumOrder::sequential;
  const FloatFormat* accumulate = nullptr;  ///< partial sums are rounded to this; null: fp32
  bool products = false;  ///< in products of matrices each product is rounded to it too, before it is added
  /// A planted mistake: > 0, sums leave out what follows the last full vector of that width; -1, they leave out the
  /// last term; 0, none.
  int dropped = 0;
  /// Where partial sums are rounded to it: after every addition (0), or sums of that many terms in fp32 are, which are
  /// added up in it (> 0), or those of -parts equal parts, which are added up in fp32 (< 0). The latter two take the
  /// terms in order. Cumulative sums carry sums of blocks of that many terms, or of 16 for each of -parts, narrowed.
  int parts = 0;
  /// Sums of products take each product unrounded into the partial sum, by fma: matmul, and sums of mul or square. Not
  /// with `dropped` or `parts`.
  bool fused = false;
  /// > 0: every elementwise operation errs by that many units in the last place, up or down by a random bit of `seed`:
  /// a kernel that uses up what its contract allows its functions, in every operation.
  double scatter = 0;
  bool one_sided = false;  ///< each of the functions errs by it always up or always down, as an approximation may
  std::uint64_t seed = 0;
};

/// Values of the targets, from exact values of the leaves.
std::vector<std::vector<double>> replay(const Graph& graph,
                                        const std::vector<std::pair<Expr, std::vector<double>>>& leaves,
                                        const std::vector<Expr>& targets, const ReplayOptions& options);

}  // namespace ampcheck::reference
