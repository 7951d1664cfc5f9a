// SPDX-License-Identifier: Apache-2.0
// Balls of graphs that are small enough to work out by hand.
#pragma once

#include <cmath>
#include <utility>
#include <vector>

#include "reference/ball/ball.h"
#include "src/random.h"

namespace ampcheck::reference {

inline constexpr double kU = 0x1p-24 * (1 + 0x1p-20);
using Values = std::vector<double>;

struct Leaf {
  Expr node;
  Values values, radius = {};
};

struct Out {
  Values v, r;
  std::vector<int> flags;
  bool full = false;
};

inline Out evaluate(const Expr& target, const std::vector<Leaf>& leaves, const Arithmetic& arithmetic = {},
                    const Switches& switches = {}) {
  BallEvaluator balls(*target.graph, arithmetic, {target}, switches);
  for (const Leaf& leaf : leaves) balls.set(leaf.node, leaf.values, leaf.radius);
  balls.run({target});
  const Ball& ball = balls.result(target);
  const auto n = static_cast<std::size_t>(ball.count());
  Out out;
  out.full = balls.full();
  out.v.assign(ball.v.get(), ball.v.get() + n);
  out.r = ball.r ? Values(ball.r.get(), ball.r.get() + n) : Values(n, 0.0);
  for (std::size_t i = 0; i < n; ++i) out.flags.push_back(ball.flags ? ball.flags[static_cast<std::ptrdiff_t>(i)] : 0);
  return out;
}

/// fp32 numbers with full mantissas in [1, 2) times `scale`.
inline Values full_mantissas(std::size_t n, const char* stream, double scale = 1) {
  const Random random(9, stream);
  Values out(n);
  for (std::size_t i = 0; i < n; ++i) out[i] = scale * static_cast<double>(static_cast<float>(1 + random.uniform(i)));
  return out;
}
inline double total(const Values& v) {
  double s = 0;
  for (const double x : v) s += std::fabs(x);
  return s;
}

/// A graph with leaves a, b, c of shape [n].
struct Fixture {
  explicit Fixture(std::int64_t n) : a(graph.input("a", {n})), b(graph.input("b", {n})), c(graph.input("c", {n})) {}
  Graph graph;
  Expr a, b, c;
};

}  // namespace ampcheck::reference
