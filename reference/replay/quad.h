// SPDX-License-Identifier: Apache-2.0
// Values of a graph in 113 bits, for kernels that compute in fp64: nothing that such a kernel may round is lost.
#pragma once

#include <memory>
#include <vector>

#include "reference/graph/expr.h"

namespace ampcheck::reference {

class QuadEvaluator {
 public:
  explicit QuadEvaluator(const Graph& graph);
  ~QuadEvaluator();
  QuadEvaluator(const QuadEvaluator&) = delete;
  QuadEvaluator& operator=(const QuadEvaluator&) = delete;

  /// Gives a node its values; what follows from it is evaluated anew when asked for.
  void set(Expr leaf, const std::vector<double>& values);
  /// Evaluates what `target` needs; each value is rounded to the nearest double.
  std::vector<double> value(Expr target);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ampcheck::reference
