// SPDX-License-Identifier: Apache-2.0
// Soundness: whatever an fp32 evaluation in any order gives lies in the ball, on thousands of random graphs.
#include <gtest/gtest.h>

#include <cmath>

#include "reference/ball/ball.h"
#include "reference/replay/replay.h"
#include "src/random.h"
#include "src/rounding.h"
#include "tests/support/small_balls.h"

namespace ampcheck::reference {
namespace {

/// A random expression over earlier nodes; shapes are [3,5] throughout but for what a reduction keeps.
class RandomGraph {
 public:
  RandomGraph(std::uint64_t seed, int nodes) : random_(seed, "graph") {
    for (const char* name : {"a", "b", "c"}) {
      const Expr leaf = graph.input(name, {3, 5});
      leaves.push_back({leaf, numbers()});
      pool_.push_back(leaf);
    }
    for (int k = 0; k < nodes; ++k) pool_.push_back(step());
  }
  Graph graph;
  std::vector<Leaf> leaves;

 private:
  std::uint64_t pick(std::uint64_t n) { return random_.below(count_++, n); }
  Expr any() { return pool_[pick(pool_.size())]; }
  /// Leaves of one scale: near one mostly, at the ends of the range sometimes; some elements zero or equal.
  Values numbers() {
    const int power = pick(4) == 0 ? static_cast<int>(pick(240)) - 130 : static_cast<int>(pick(9)) - 4;
    const bool whole = pick(5) == 0;
    Values out(15);
    for (double& v : out) {
      v = random_.normal(1000000 + count_++);
      if (whole) v = std::round(3 * v);
      if (pick(12) == 0) v = 0;
      v = static_cast<double>(static_cast<float>(std::ldexp(v, power)));
    }
    return out;
  }
  /// Whole powers of anything, others of what is not negative.
  Expr power(Expr a) {
    if (pick(2) == 0) return pow(a, constant(graph, static_cast<double>(pick(7)) - 3));
    return pow(abs(a), constant(graph, 0.25 * static_cast<double>(pick(13)) - 1.5));
  }
  Expr step() {
    const Expr a = any(), b = any();
    switch (pick(27)) {
      case 0:
      case 1: return a + b;
      case 2: return a - b;
      case 3:
      case 4: return a * b;
      case 5: return a / (abs(b) + 1.0);
      case 6: return a / b;
      case 7: return square(a);
      case 8: return exp(a);
      case 9: return log(abs(a) + 0.1);
      case 10: return tanh(a);
      case 11: return erf(a);
      case 12: return erfc(a);
      case 13: return sqrt(abs(a));
      case 14: return rsqrt(abs(a) + 0.01);
      case 15: return sigmoid(a);
      case 16: return maximum(a, b);
      case 17: return where(less(a, b), a * 0.3, b);
      case 18: return b + sum(a, 1);
      case 19: return sum(a, 0) * b;
      case 20: return a - max(a, 1);
      default: return further_step(a, b);
    }
  }
  Expr further_step(Expr a, Expr b) {
    switch (pick(8)) {
      case 0: return matmul(matmul(a, b, false, true), any());
      case 1: return a * mean(b, 1) - 0.7;
      case 2:
      case 3: return power(a);
      case 4: return cumsum(a, static_cast<int>(pick(2)) - 1, pick(2) != 0);
      case 5: return sin(a);
      case 6: return cos(a);
      default: return pick(2) ? expm1(a) : log1p(abs(a));
    }
  }
  Random random_;
  std::uint64_t count_ = 0;
  std::vector<Expr> pool_;
};

struct Tally {
  std::int64_t judged = 0, outside = 0, beyond_64th = 0, open = 0;
  double largest = 0;  ///< |replay - value| in units of the radius
  std::string first;
};

void compare_replays(const Graph& graph, const std::vector<Leaf>& leaves, const std::string& what, Tally& tally) {
  std::vector<Expr> targets;
  for (std::size_t id = 0; id < graph.nodes().size(); ++id)
    targets.push_back({const_cast<Graph*>(&graph), static_cast<int>(id)});
  BallEvaluator balls(graph, {}, targets);
  std::vector<std::pair<Expr, Values>> given;
  for (const Leaf& leaf : leaves) {
    balls.set(leaf.node, leaf.values);
    given.emplace_back(leaf.node, leaf.values);
  }
  balls.run(targets);
  for (const SumOrder order : {SumOrder::sequential, SumOrder::lanes32, SumOrder::pairwise, SumOrder::reversed}) {
    const auto values = replay(graph, given, targets, {order});
    for (std::size_t t = 0; t < targets.size(); ++t) {
      const Ball& ball = balls.result(targets[t]);
      for (std::int64_t i = 0; i < ball.count(); ++i) {
        const double v = ball.v[i], r = ball.r ? ball.r[i] : 0.0, got = values[t][static_cast<std::size_t>(i)];
        if ((ball.flags && (ball.flags[i] & (kLeftRange | kMayBeNan))) || !std::isfinite(v) || std::isinf(r)) {
          ++tally.open;
          continue;
        }
        const double wide = r == 0 ? 0 : r + r * 0x1p-40 + std::fabs(v) * 0x1p-51;
        double ends[2] = {v - wide, v + wide};
        round_values(kFp32, RoundingMode{}, ends, ends);
        ++tally.judged;
        if (!(got >= ends[0] && got <= ends[1]) && !tally.outside++)
          tally.first = what + " node " + std::to_string(t) + " " + name(graph.nodes()[t].primitive) + "[" +
                        std::to_string(i) + "]: " + std::to_string(got) + " for " + std::to_string(v) + " error/r " +
                        std::to_string((got - v) / r);
        if (r > 0 && std::isfinite(got)) {
          tally.beyond_64th += std::fabs(got - v) > r / 64;
          tally.largest = std::max(tally.largest, std::fabs(got - v) / r);
        }
      }
    }
  }
}

TEST(BallSoundness, RandomGraphsStayInTheirBalls) {
  Tally tally;
  for (std::uint64_t seed = 1; seed <= 3000; ++seed) {
    const RandomGraph random(seed, 2 + static_cast<int>(seed % 7));
    compare_replays(random.graph, random.leaves, "graph " + std::to_string(seed), tally);
  }
  EXPECT_EQ(tally.outside, 0) << tally.first;
  EXPECT_GT(tally.judged, 1000000);
  EXPECT_LT(tally.open, tally.judged);
  // The same test fails for a radius that is a 64th: the balls are not vacuous.
  EXPECT_GT(tally.beyond_64th, tally.judged / 100);
  EXPECT_GT(tally.largest, 0.5);
}

/// Were u half of what it is, correct sums and products of two would be convicted.
TEST(BallSoundness, UnitRoundoffIsTight) {
  Fixture f(10000);
  const Values a = full_mantissas(10000, "tight a"), b = full_mantissas(10000, "tight b", 0x1p-3);
  for (const Expr& y : {f.a + f.b, f.a - f.b, f.a * f.b, square(f.a)}) {
    const Out out = evaluate(y, {{f.a, a}, {f.b, b}});
    const Values got = replay(f.graph, {{f.a, a}, {f.b, b}}, {y}, {}).front();
    double largest = 0;
    for (std::size_t i = 0; i < got.size(); ++i)
      if (out.r[i] > 0) largest = std::max(largest, std::fabs(got[i] - out.v[i]) / out.r[i]);
    EXPECT_LE(largest, 1);
    EXPECT_GT(largest, 0.9) << name(f.graph.node(y.id).primitive);
  }
}

/// Were the factor n - 1 missing from the rule of sums, a correct sequential sum would be convicted.
TEST(BallSoundness, SumsNeedTheirCount) {
  Graph g;
  const Expr x = g.input("x", {4096});
  const Values v(4096, static_cast<double>(0.1f));
  const Out out = evaluate(sum(x, 0), {{x, v}});
  const double got = replay(g, {{x, v}}, {sum(x, 0)}, {}).front()[0];
  const double error = std::fabs(got - out.v[0]);
  EXPECT_LE(error, out.r[0]);
  EXPECT_GT(error, 2 * kU * total(v));
  // Three terms whose errors add up come within a rounding of the whole bound.
  const Expr three = g.input("three", {3});
  const Values ties = {1, 0x1p-24 * (1 + 0x1p-20), 0x1p-24 * (1 + 0x1p-20)};
  const double reached = std::fabs(replay(g, {{three, ties}}, {sum(three, 0)}, {}).front()[0] - (1 + 2 * ties[1]));
  EXPECT_LE(reached, evaluate(sum(three, 0), {{three, ties}}).r[0]);
  EXPECT_GT(reached, 0.49 * evaluate(sum(three, 0), {{three, ties}}).r[0]);
}

}  // namespace
}  // namespace ampcheck::reference
