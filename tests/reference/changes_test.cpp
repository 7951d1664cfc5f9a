// SPDX-License-Identifier: Apache-2.0
// Slips are named by the one change of the formula that gives the kernel's numbers, and right or merely less precise
// kernels are not taken for one.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "checks/define/op_def.h"
#include "checks/run/runner.h"
#include "checks/zoo/planted.h"
#include "reference/replay/changes.h"
#include "reference/text/formula_functions.h"
#include "src/rounding.h"

namespace ampcheck::reference {
namespace {

TEST(Changes, ANodeReadsAsInAFormula) {
  Graph graph;
  const Expr x = graph.input("x", Shape{3, 4}), w = graph.input("w", Shape{4});
  const Expr inv = stored("inv_rms", rsqrt(mean(x * x, -1) + 1e-6)), y = x * inv * w;
  EXPECT_EQ(text_of(graph, y.id), "(x * inv_rms) * w");
  EXPECT_EQ(text_of(graph, y.id, {{y.id, "y"}}), "y");
  EXPECT_EQ(text_of(graph, (-(mean(x * x, -1) + 1.0)).id), "-(mean(x * x) + 1)");
}

/// What the changes of a graph say that give these values of its target.
std::vector<std::string> that_give(const Graph& graph, const std::vector<std::pair<Expr, std::vector<double>>>& leaves,
                                   Expr target, const std::vector<double>& wanted) {
  std::vector<std::string> out;
  for_each_change(graph, leaves, target, {}, 1 << 20, [&](const Change& change, const std::vector<double>& values) {
    bool same = true;
    for (std::size_t i = 0; i < wanted.size(); ++i)
      same &= std::fabs(values[i] - wanted[i]) <= 1e-12 * std::fabs(wanted[i]);
    if (same) out.push_back(change.words);
    return true;
  });
  return out;
}

TEST(Changes, EachSlipIsAmongThem) {
  Graph graph;
  const Expr x = graph.input("x", Shape{2, 3}), g = graph.input("g", Shape{2, 3});
  const Expr target = g - x * mean(g * x, -1);
  const std::vector<double> vx{1, 2, 4, -3, 5, 0.5}, vg{0.25, -1, 3, 2, 0.75, -2};
  const std::vector<std::pair<Expr, std::vector<double>>> leaves{{x, vx}, {g, vg}};
  const auto slip = [&](auto f) {
    std::vector<double> out;
    for (std::size_t i = 0; i < 6; ++i) {
      double dot = 0;
      for (std::size_t k = i / 3 * 3; k < i / 3 * 3 + 3; ++k) dot += vg[k] * vx[k];
      out.push_back(f(vg[i], vx[i], dot, i));
    }
    return out;
  };
  const auto says = [&](const std::vector<double>& values, const std::string& words) {
    const auto found = that_give(graph, leaves, target, values);
    return std::find(found.begin(), found.end(), words) != found.end();
  };
  EXPECT_TRUE(says(slip([](double a, double b, double dot, std::size_t) { return a + b * dot / 3; }),
                   "with the other sign of the term x * mean(g * x)"));
  EXPECT_TRUE(says(slip([](double a, double, double, std::size_t) { return a; }), "without the term x * mean(g * x)"));
  EXPECT_TRUE(
      says(slip([](double a, double, double dot, std::size_t) { return a - dot / 3; }), "without the factor x"));
  EXPECT_TRUE(says(slip([](double a, double b, double dot, std::size_t) { return a - b * dot / 2; }),
                   "with 1/2 for 1/3: the count is off by one"));
  EXPECT_TRUE(
      says(slip([](double a, double b, double dot, std::size_t) { return a - b * dot; }), "without the factor 1/3"));
  EXPECT_TRUE(says(slip([&](double a, double b, double, std::size_t) {
                     double all = 0;
                     for (std::size_t k = 0; k < 6; ++k) all += vg[k] * vx[k];
                     return a - b * all / 3;
                   }),
                   "with the sum of g * x over axis 0 as well"));
  EXPECT_TRUE(says(slip([](double, double b, double, std::size_t) { return -b * 0; }), "without g"));
  EXPECT_TRUE(that_give(graph, leaves, target,
                        slip([](double a, double b, double dot, std::size_t) { return a - b * dot / 3 + 0.125; }))
                  .empty());
}

/// r (g - n mean(g n)) without its r: the derivative of x r has no such product, of which a factor could be missing.
TEST(Changes, SlipsOfPowersAndCumulativeSums) {
  Graph graph;
  const Expr x = graph.input("x", Shape{2, 3});
  const std::vector<double> v{1, -2, 4, -3, 5, 0.5};
  const auto says = [&](Expr target, const std::vector<double>& values, const std::string& words) {
    const auto found = that_give(graph, {{x, v}}, target, values);
    return std::find(found.begin(), found.end(), words) != found.end();
  };
  const Expr running = cumsum(x, 1), back = cumsum(x, 1, true), cube = pow(x, constant(graph, 3.0));
  EXPECT_TRUE(
      says(running, {0, 1, -1, 0, -3, 2}, "with the exclusive cumulative sum of x: off by one, without the own term"));
  EXPECT_TRUE(says(running, {3, 2, 4, 2.5, 5.5, 0.5}, "with the cumulative sum of x from the other end: reversed"));
  EXPECT_TRUE(says(back, {1, -1, 3, -3, 2, 2.5}, "with the cumulative sum of x from the other end: reversed"));
  EXPECT_TRUE(says(running, {1, -1, 3, 0, 5, 5.5}, "with cumulative sums of x that run on from row to row"));
  EXPECT_TRUE(says(running, {1, -2, 4, -2, 3, 4.5}, "with the cumulative sum of x along axis 0 for axis 1"));
  EXPECT_TRUE(says(running, v, "with x for its cumulative sum, without the terms of the other elements"));
  EXPECT_TRUE(says(running, {3, 3, 3, 2.5, 2.5, 2.5}, "with the sum of x for all its cumulative sums"));
  EXPECT_TRUE(says(cube, {1, 4, 16, 9, 25, 0.25}, "with x to the power of 3 - 1: another exponent"));
  EXPECT_TRUE(says(cube, {1, 8, 64, 27, 125, 0.125}, "with |v|^3 for v^3 of x, without its sign"));
  EXPECT_TRUE(that_give(graph, {{x, v}}, running, {1, -1, 3.5, -3, 2, 2.5}).empty());
}

TEST(Changes, AFactorOfAllOfItIsMissed) {
  Graph graph;
  const Expr x = graph.input("x", Shape{2, 3}), g = graph.input("g", Shape{2, 3});
  const Expr r = stored("r", rsqrt(mean(x * x, -1) + 1e-5));
  const Expr target = g * r - x * r * r * r * mean(g * x, -1);
  const std::vector<double> vx{1, 2, 4, -3, 5, 0.5}, vg{0.25, -1, 3, 2, 0.75, -2};
  const std::vector<std::pair<Expr, std::vector<double>>> leaves{{x, vx}, {g, vg}};
  std::vector<double> without, inside;
  for (std::size_t i = 0; i < 6; ++i) {
    double dot = 0, squares = 0;
    for (std::size_t k = i / 3 * 3; k < i / 3 * 3 + 3; ++k) {
      dot += vg[k] * vx[k] / 3;
      squares += vx[k] * vx[k];
    }
    const double rv = 1 / std::sqrt(squares / 3 + 1e-5);
    without.push_back(vg[i] - vx[i] * rv * rv * dot);
    inside.push_back(vx[i] / std::sqrt((squares + 1e-5) / 3));
  }
  EXPECT_EQ(that_give(graph, leaves, target, without), std::vector<std::string>{"without the factor r of all of it"});
  EXPECT_EQ(that_give(graph, {{x, vx}}, x * r, inside),
            std::vector<std::string>{
                "with 1/3 of the constant 1e-05, as if it were added to a sum of 3 and not to its mean"});
}

/// What is saved is saved in one type: both in 16 bits, not one after the other.
TEST(Changes, SavedTensorsAreNarrowedTogether) {
  Graph graph;
  const Expr x = graph.input("x", Shape{4});
  const Expr a = stored("a", exp(x)), b = stored("b", a * x), target = a + b;
  const std::vector<double> vx{0.3, 1.7, -0.6, 2.2};
  const auto bf16 = [](double v) {
    round_values(kBf16, RoundingMode{}, {&v, 1}, {&v, 1});
    return v;
  };
  std::vector<double> both, first;
  for (const double v : vx) {
    both.push_back(bf16(std::exp(v)) + bf16(std::exp(v) * v));
    first.push_back(bf16(std::exp(v)) * (1 + v));
  }
  EXPECT_EQ(that_give(graph, {{x, vx}}, target, both), std::vector<std::string>{"keeps a and b in bf16"});
  const std::vector<std::string> of_first = that_give(graph, {{x, vx}}, target, first);
  EXPECT_TRUE(std::find(of_first.begin(), of_first.end(), "keeps a and b in bf16") == of_first.end());
}

}  // namespace
}  // namespace ampcheck::reference

namespace ampcheck::checks {
namespace {

std::string cause_of(const std::string& name) {
  for (const PlantedOp& fault : planted_ops())
    if (fault.op.signature.name == name.substr(0, name.find('('))) {
      const CaseResult result = run_case(fault.op, parse_call(name, fault.op.signature), {});
      for (const CheckResult& check : result.checks)
        if (!check.cause.empty()) return std::string(ampcheck::name(check.code)) + " " + check.cause;
      return "none";
    }
  return "no such op";
}

TEST(Changes, PlantedSlipsOfSoftmaxAreNamed) {
  EXPECT_EQ(cause_of("softmax.sign(x=bf16[8,33],seed=2)"),
            "AC101 these are the values of the formula with the other sign of the term sum(dy * y)");
  EXPECT_EQ(cause_of("softmax.missing_factor(x=fp32[8,33])"),
            "AC101 these are the values of the formula without the factor y");
  EXPECT_EQ(cause_of("softmax.dropped_tail(x=bf16[64,133])"),
            "AC101 a sum leaves out what follows the last full vector of 8");
  EXPECT_TRUE(cause_of("softmax.bf16_accumulation(x=bf16[64,129])").starts_with("AC301 accumulates in bf16"))
      << cause_of("softmax.bf16_accumulation(x=bf16[64,129])");
  EXPECT_EQ(cause_of("softmax.kahan(x=bf16[8,33])"), "none");
}

}  // namespace
}  // namespace ampcheck::checks
