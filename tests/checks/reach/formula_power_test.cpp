// SPDX-License-Identifier: Apache-2.0
// Detection power of cases for an op of which no wrong kernels are at hand.
#include "checks/reach/formula_power.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "checks/data/regimes.h"

namespace ampcheck::checks {
namespace {

/// y = x / sqrt(mean(x^2) + eps) weight, whose kernel never runs here.
OpDef norm() {
  OpDef op;
  op.signature = {.name = "norm",
                  .inputs = {{.name = "x", .dims = "N D"}, {.name = "weight", .dims = "D", .role = Role::weight}},
                  .outputs = {{.name = "y"}},
                  .dims = {{"N", {5, 16, 2}}, {"D", {7, 33, 129}}}};
  op.forms = {{"x rsqrt(mean(x^2) + eps) weight", [](reference::FormulaCall& c) {
                 const reference::Expr x = c["x"];
                 c.output("y", x * rsqrt(mean(x * x, -1) + 1e-5) * c["weight"]);
               }}};
  op.kernel.forward = [](const kernels::KernelCall&) {};
  return op;
}

std::vector<OpCall> calls_of(const OpDef& op, const std::vector<std::string>& names) {
  std::vector<OpCall> out;
  for (const std::string& name : names) out.push_back(parse_call(name, op.signature));
  return out;
}

bool misses(const FormulaPower& power, const std::string& words) {
  return std::ranges::any_of(power.missed,
                             [&](const std::string& missed) { return missed.find(words) != std::string::npos; });
}

TEST(FormulaPower, SmallDataShowTheEpsAndOrdinaryDataDoNot) {
  const OpDef op = norm();
  const FormulaPower ordinary = formula_power(op, calls_of(op, {"norm(x=bf16[5,7],seed=1)"}), false);
  EXPECT_GT(ordinary.changes, 10);
  EXPECT_EQ(ordinary.found + std::ssize(ordinary.missed), ordinary.changes);
  EXPECT_TRUE(misses(ordinary, "without the term 1e-05"));
  const FormulaPower both =
      formula_power(op, calls_of(op, {"norm(x=bf16[5,7],seed=1)", "norm(x=bf16[5,7],range=scale-9,seed=1)"}), false);
  EXPECT_FALSE(misses(both, "without the term 1e-05"));
  EXPECT_GT(both.found, ordinary.found);
  EXPECT_EQ(both.cases, 2);
}

TEST(FormulaPower, LargeCasesAreLookedAtWhereThereAreNoOthers) {
  const OpDef op = norm();
  std::vector<std::string> names;
  for (int seed = 1; seed <= 40; ++seed) names.push_back("norm(x=fp32[1,8192],seed=" + std::to_string(seed) + ")");
  const FormulaPower large = formula_power(op, calls_of(op, names), false);
  EXPECT_GT(large.changes, 10);
  EXPECT_GT(large.found, large.changes / 2);
  EXPECT_LE(large.cases, 8);
  EXPECT_FALSE(misses(large, "without the factor weight"));
  names.emplace_back("norm(x=fp32[5,7],seed=1)");
  EXPECT_EQ(formula_power(op, calls_of(op, names), false).cases, 1) << "small ones are preferred";
}

TEST(FormulaPower, ManyCasesFindNearlyAllAndMoreIsNoLess) {
  const OpDef op = norm();
  const std::vector<OpCall> quick = cases_of(op.signature, Dtype::fp32, CaseSet::quick, 1);
  const FormulaPower power = formula_power(op, quick, false);
  EXPECT_GE(10 * power.found, 9 * power.changes);
  EXPECT_FALSE(misses(power, "without the factor weight"));
  const FormulaPower one = formula_power(op, {quick.begin(), quick.begin() + 1}, false);
  EXPECT_LE(one.found, power.found);
}

TEST(FormulaPower, AChangeThatMovesNothingIsNoChange) {
  OpDef op = norm();
  op.forms = {{"x", [](reference::FormulaCall& c) { c.output("y", c["x"] - 0.0 * c["weight"]); }}};
  EXPECT_EQ(formula_power(op, calls_of(op, {"norm(x=fp32[5,7],seed=1)"}), false).found,
            formula_power(op, calls_of(op, {"norm(x=fp32[5,7],seed=1)"}), false).changes);
  op.forms.clear();
  EXPECT_EQ(formula_power(op, {}, false).changes, 0);
}

}  // namespace
}  // namespace ampcheck::checks
