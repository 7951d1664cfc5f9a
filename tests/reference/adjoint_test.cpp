// SPDX-License-Identifier: Apache-2.0
// The adjoint of every primitive, proved by 100-digit differences of small formulas: this is the proof of
// reference/graph/adjoint.cpp.
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "tests/support/small_formula.h"

namespace ampcheck::reference {
namespace {

struct PrimitiveCase {
  std::string name;
  std::vector<Primitive> proves;
  SmallFormula formula;
  bool linear = false;  ///< no third derivative: no error ratio
};

constexpr Domain kPositive = Domain::positive;

std::vector<PrimitiveCase> arithmetic_cases() {
  using P = Primitive;
  using Call = FormulaCall;
  return {
      {"add", {P::add}, {{{"a", {2, 3}}, {"b", {2, 3}}}, [](Call& c) { return c["a"] + c["b"]; }}, true},
      {"add, left stretched", {P::add}, {{{"a", {3}}, {"b", {2, 3}}}, [](Call& c) { return c["a"] + c["b"]; }}, true},
      {"sub, right stretched",
       {P::sub},
       {{{"a", {2, 3}}, {"b", {2, 1}}}, [](Call& c) { return c["a"] - c["b"]; }},
       true},
      {"sub, both stretched",
       {P::sub},
       {{{"a", {3, 1}}, {"b", {1, 4}}}, [](Call& c) { return c["a"] - c["b"]; }},
       true},
      {"neg", {P::neg}, {{{"a", {2, 3}}}, [](Call& c) { return -c["a"]; }}, true},
      {"mul", {P::mul}, {{{"a", {2, 3}}, {"b", {2, 3}}}, [](Call& c) { return c["a"] * c["b"]; }}, true},
      {"mul, both stretched",
       {P::mul},
       {{{"a", {2, 1, 3}}, {"b", {4, 1}}}, [](Call& c) { return c["a"] * c["b"]; }},
       true},
      {"mul by itself", {P::mul}, {{{"a", {4}}}, [](Call& c) { return c["a"] * c["a"] * c["a"]; }}},
      {"mul by a scalar tensor", {P::mul}, {{{"a", {}}, {"b", {2, 3}}}, [](Call& c) { return c["a"] * c["b"]; }}, true},
      {"div", {P::div}, {{{"a", {2, 3}}, {"b", {2, 3}}}, [](Call& c) { return c["a"] / c["b"]; }}},
      {"div, left stretched", {P::div}, {{{"a", {1, 3}}, {"b", {2, 3}}}, [](Call& c) { return c["a"] / c["b"]; }}},
      {"div, right stretched", {P::div}, {{{"a", {2, 3}}, {"b", {}}}, [](Call& c) { return c["a"] / c["b"]; }}},
      {"constants",
       {P::constant},
       {{{"a", {3}}}, [](Call& c) { return (2.5 - c["a"]) / 3.0 + 1.0 / (c["a"] + 9.0) * 0.1; }}},
  };
}

std::vector<PrimitiveCase> function_cases() {
  using P = Primitive;
  using Call = FormulaCall;
  const auto unary = [](P primitive, Expr (*f)(Expr), Domain domain = Domain::any, bool linear = false) {
    return PrimitiveCase{
        name(primitive), {primitive}, {{{"x", {2, 3}, domain}}, [f](Call& c) { return f(c["x"]); }}, linear};
  };
  return {
      unary(P::square, square, Domain::any, true),
      unary(P::exp, exp),
      unary(P::expm1, expm1),
      unary(P::log, log, kPositive),
      unary(P::log1p, log1p, kPositive),
      unary(P::tanh, tanh),
      unary(P::erf, erf),
      unary(P::erfc, erfc),
      unary(P::sin, sin),
      unary(P::cos, cos),
      unary(P::sqrt, sqrt, kPositive),
      unary(P::rsqrt, rsqrt, kPositive),
      unary(P::sigmoid, sigmoid),
      unary(P::abs, abs, Domain::any, true),
      {"abs of a curve", {P::abs, P::sign}, {{{"x", {2, 3}}}, [](Call& c) { return abs(tanh(c["x"])); }}},
  };
}

std::vector<PrimitiveCase> choice_cases() {
  using P = Primitive;
  using Call = FormulaCall;
  return {
      {"less and where",
       {P::less, P::where},
       {{{"x", {2, 3}}, {"a", {1, 3}}, {"b", {2, 1}}},
        [](Call& c) { return where(less(c["x"], constant(c.graph(), 0.1)), c["a"] * c["x"], exp(c["b"])); }}},
      {"less_equal and where",
       {P::less_equal},
       {{{"x", {5}}},
        [](Call& c) {
          return where(less_equal(c["x"], constant(c.graph(), 0.1)), constant(c.graph(), 3.0), exp(c["x"]));
        }}},
      {"where, condition stretched",
       {P::where},
       {{{"x", {3}}, {"a", {2, 3}}, {"b", {}}},
        [](Call& c) { return where(less(c["x"], constant(c.graph(), 0.0)), c["a"], c["b"]); }},
       true},
      {"equal", {P::equal}, {{{"x", {2, 3}}}, [](Call& c) { return equal(c["x"], max(c["x"], 1)) * exp(c["x"]); }}},
      {"maximum", {P::maximum}, {{{"a", {2, 3}}, {"b", {3}}}, [](Call& c) { return maximum(exp(c["a"]), c["b"]); }}},
      {"maximum with a constant",
       {P::maximum},
       {{{"a", {7}}}, [](Call& c) { return maximum(c["a"], constant(c.graph(), 0.0)); }},
       true},
      {"where, behind it a quotient, a root and a sum",
       {P::where},
       {{{"x", {2, 3}}, {"d", {2, 1}}},
        [](Call& c) {
          const Expr size = sqrt(sum(square(c["x"]), -1)), some = less(c["d"], size);
          return where(some, exp(c["x"] / size), c["d"] * c["x"]);
        }}},
      {"where, a root without a value behind it",
       {P::where},
       {{{"x", {7}}},
        [](Call& c) {
          const Expr x = c["x"];
          return where(less(constant(c.graph(), 0.0), x), sqrt(x) * log(x), exp(x));
        }}},
      {"where within where",
       {P::where},
       {{{"x", {7}}, {"a", {7}}},
        [](Call& c) {
          const Expr zero = constant(c.graph(), 0.0), inner = where(less(c["a"], c["x"]), exp(c["a"]), c["x"] * c["a"]);
          return where(less(c["x"], zero), inner, exp(c["x"]) / (inner + 9.0));
        }}},
  };
}

std::vector<PrimitiveCase> power_cases() {
  using P = Primitive;
  using Call = FormulaCall;
  return {
      {"pow, exponent 3", {P::pow}, {{{"x", {2, 3}}}, [](Call& c) { return pow(c["x"], constant(c.graph(), 3.0)); }}},
      {"pow, exponent 0.7",
       {P::pow},
       {{{"x", {2, 3}, kPositive}}, [](Call& c) { return pow(c["x"], constant(c.graph(), 0.7)); }}},
      {"pow, exponent 0",
       {P::pow},
       {{{"x", {2, 3}}}, [](Call& c) { return exp(c["x"]) * pow(c["x"], constant(c.graph(), 0.0)); }}},
      {"pow, a tensor of exponents",
       {P::pow},
       {{{"x", {2, 3}, kPositive}, {"p", {3}}}, [](Call& c) { return pow(c["x"], c["p"]); }}},
  };
}

std::vector<PrimitiveCase> reduction_cases() {
  using P = Primitive;
  using Call = FormulaCall;
  return {
      {"sum, axis 0", {P::sum}, {{{"x", {3, 2}}}, [](Call& c) { return square(sum(c["x"], 0)); }}, true},
      {"sum, axis -1", {P::sum}, {{{"x", {2, 3}}}, [](Call& c) { return exp(c["x"]) / sum(exp(c["x"]), -1); }}},
      {"sum, middle axis", {P::sum}, {{{"x", {2, 3, 2}}}, [](Call& c) { return tanh(sum(c["x"], -2)); }}},
      {"mean", {P::sum}, {{{"x", {2, 3}}}, [](Call& c) { return exp(mean(c["x"], -1)) * c["x"]; }}},
      {"sum_all", {P::sum, P::reshape}, {{{"x", {2, 3}}}, [](Call& c) { return exp(sum_all(c["x"])); }}},
      {"max, axis -1", {P::max, P::first_max}, {{{"x", {3, 4}}}, [](Call& c) { return exp(max(c["x"], -1)); }}},
      {"max, axis 0",
       {P::max, P::first_max},
       {{{"x", {3, 2, 2}}}, [](Call& c) { return c["x"] * max(c["x"], 0); }},
       true},
      {"first_max", {P::first_max}, {{{"x", {3, 4}}}, [](Call& c) { return first_max(c["x"], -2) * exp(c["x"]); }}},
      {"cumsum, axis -1", {P::cumsum}, {{{"x", {2, 4}}}, [](Call& c) { return exp(cumsum(c["x"], -1)); }}},
      {"cumsum, axis 0, reversed",
       {P::cumsum},
       {{{"x", {3, 2, 2}}}, [](Call& c) { return c["x"] * tanh(cumsum(c["x"], 0, true)); }}},
      {"cumsum of a sum's cotangent",
       {P::cumsum, P::sum},
       {{{"x", {2, 3}}}, [](Call& c) { return exp(sum(cumsum(c["x"], 1), -1)); }}},
      {"matmul", {P::matmul}, {{{"a", {2, 3}}, {"b", {3, 4}}}, [](Call& c) { return exp(matmul(c["a"], c["b"])); }}},
      {"matmul, a transposed",
       {P::matmul},
       {{{"a", {3, 2}}, {"b", {3, 4}}}, [](Call& c) { return exp(matmul(c["a"], c["b"], true)); }}},
      {"matmul, b transposed",
       {P::matmul},
       {{{"a", {2, 3}}, {"b", {4, 3}}}, [](Call& c) { return exp(matmul(c["a"], c["b"], false, true)); }}},
      {"matmul, both transposed",
       {P::matmul},
       {{{"a", {3, 2}}, {"b", {4, 3}}}, [](Call& c) { return exp(matmul(c["a"], c["b"], true, true)); }}},
      {"matmul, batches",
       {P::matmul},
       {{{"a", {2, 2, 1, 3}}, {"b", {2, 2, 2, 3}}}, [](Call& c) { return exp(matmul(c["a"], c["b"], false, true)); }}},
      {"matmul, both transposed in batches",
       {P::matmul},
       {{{"a", {2, 3, 2}}, {"b", {2, 1, 3}}}, [](Call& c) { return exp(matmul(c["a"], c["b"], true, true)); }}},
      {"matmul with itself",
       {P::matmul},
       {{{"a", {2, 3}}}, [](Call& c) { return matmul(c["a"], c["a"], false, true); }},
       true},
      {"matmul of a sum's cotangent",
       {P::matmul, P::sum},
       {{{"a", {2, 3}}, {"b", {3, 2}}}, [](Call& c) { return exp(sum(matmul(c["a"], c["b"]), -1)); }}},
  };
}

std::vector<PrimitiveCase> movement_cases() {
  using P = Primitive;
  using Call = FormulaCall;
  static constexpr int kSwap[] = {2, 0, 1};
  return {
      {"reshape",
       {P::reshape},
       {{{"x", {2, 3}}},
        [](Call& c) {
          return exp(reshape(c["x"], Shape{3, 2})) * reshape(c["x"], Shape{3, 2});
        }}},
      {"transpose", {P::take}, {{{"x", {2, 3, 2}}}, [](Call& c) { return exp(transpose(c["x"], kSwap)); }}},
      {"slice, negative axis", {P::take}, {{{"x", {2, 4}}}, [](Call& c) { return exp(slice(c["x"], -1, 1, 3)); }}},
      {"slice, axis 0",
       {P::take},
       {{{"x", {4, 2}}}, [](Call& c) { return slice(c["x"], 0, 2, 4) * slice(c["x"], 0, 0, 2); }},
       true},
      {"concat, axis 0",
       {P::take, P::add},
       {{{"a", {2, 3}}, {"b", {1, 3}}, {"c", {2, 3}}},
        [](Call& c) {
          return exp(concat({c["a"], c["b"], c["c"]}, 0));
        }}},
      {"concat, negative axis",
       {P::take, P::add},
       {{{"a", {2, 1}}, {"b", {2, 2}}},
        [](Call& c) {
          return exp(concat({c["a"], c["b"]}, -1));
        }}},
      {"concat of windows of one tensor",
       {P::take},
       {{{"x", {2, 4}}},
        [](Call& c) {
          const Expr x = c["x"];
          return exp(concat(
              {slice(x, 1, 0, 2), reshape(slice(x, 1, 1, 3), Shape{2, 2}), slice(slice(x, 1, 1, 4), 1, 1, 3)}, 1));
        }}},
      {"take with repeats and holes",
       {P::take},
       {{{"x", {3}}},
        [](Call& c) {
          return exp(take(c["x"], {2, -1, 0, 2, 2, -1}, Shape{2, 3}));
        }}},
      {"put_add with repeats and holes",
       {P::put_add},
       {{{"x", {5}}},
        [](Call& c) {
          return exp(put_add(c["x"], {1, 1, -1, 3, 1}, Shape{2, 2}));
        }}},
      {"gather_rows",
       {P::take},
       {{{"x", {4, 2}}},
        [](Call& c) {
          return exp(gather_rows(c["x"], {3, 0, -1, 3}));
        }}},
  };
}

std::vector<PrimitiveCase> window_cases() {
  using P = Primitive;
  using Call = FormulaCall;
  return {
      {"unfold", {P::take}, {{{"x", {1, 2, 3, 3}}}, [](Call& c) { return exp(unfold(c["x"], 2, 3, 1, 1)); }}},
      {"unfold, stride 2", {P::take}, {{{"x", {2, 1, 4, 3}}}, [](Call& c) { return exp(unfold(c["x"], 3, 2, 2, 1)); }}},
      {"convolution",
       {P::take, P::matmul},
       {{{"x", {1, 2, 3, 3}}, {"w", {2, 8}}},
        [](Call& c) {
          return matmul(reshape(c["w"], Shape{1, 2, 8}), tanh(unfold(c["x"], 2, 2, 1, 0)));
        }}},
      {"max pooling",
       {P::take, P::max},
       {{{"x", {1, 1, 4, 4}}},
        [](Call& c) {
          return exp(max(reshape(unfold(c["x"], 2, 2, 2, 0), Shape{1, 1, 4, 4}), 2));
        }}},
  };
}

/// Leaves and marks.
std::vector<PrimitiveCase> mark_cases() {
  using P = Primitive;
  using Call = FormulaCall;
  return {
      {"one-hot",
       {P::indicator},
       {{{"x", {2, 3}}},
        [](Call& c) {
          return log(sum(exp(c["x"]), -1)) - sum(indicator(c.graph(), Shape{2, 3}, {0, 1, 0, 1, 0, 0}) * c["x"], -1);
        }}},
      {"stored",
       {P::stored},
       {{{"x", {2, 3}}}, [](Call& c) { return stored("e", exp(c["x"])) * stored("m", sum(c["x"], -1)); }}},
      {"stop_gradient of a shift",
       {P::stop_gradient},
       {{{"x", {2, 3}}},
        [](Call& c) {
          const Expr m = stop_gradient(max(c["x"], -1));
          return m + log(sum(exp(c["x"] - m), -1));
        }}},
      {"no_gradient",
       {P::no_gradient},
       {{{"x", {2, 3}}}, [](Call& c) { return exp(c["x"]) * no_gradient("a factor", c["x"]); }}},
      {"own_adjoint",
       {P::own_adjoint},
       {{{"x", {2, 3}}, {"w", {3}}},
        [](Call& c) {
          const Expr x = c["x"], w = c["w"], y = exp(x) * w;
          return own_adjoint(y, {x, w}, [=](Expr g) { return std::vector<Expr>{g * y, g * exp(x)}; });
        }}},
  };
}

std::vector<PrimitiveCase> all_cases() {
  std::vector<PrimitiveCase> out = arithmetic_cases();
  for (const auto& more : {power_cases(), function_cases(), choice_cases(), reduction_cases(), movement_cases(),
                           window_cases(), mark_cases()})
    out.insert(out.end(), more.begin(), more.end());
  return out;
}

TEST(Adjoint, EveryPrimitiveAgreesWithDifferences) {
  for (const PrimitiveCase& c : all_cases()) {
    const FormulaCertificate certificate = c.formula.certify_all();
    EXPECT_GE(certificate.digits, kWantedDigits) << c.name;
    EXPECT_EQ(certificate.kinks, 0) << c.name;
    EXPECT_FALSE(certificate.points.empty()) << c.name;
    if (c.linear)
      EXPECT_TRUE(std::isnan(certificate.error_ratio)) << c.name << ": " << certificate.error_ratio;
    else
      EXPECT_NEAR(certificate.error_ratio, 4.0, 4e-6) << c.name;  // truncation is h^2 = 1e-66 of itself
    std::printf("  %-36s %6.1f digits\n", c.name.c_str(), certificate.digits);
  }
}

TEST(Adjoint, EveryPrimitiveAgreesAtSecondOrder) {
  for (const PrimitiveCase& c : all_cases()) EXPECT_GE(c.formula.second_order().digits, kWantedDigits) << c.name;
}

TEST(Adjoint, EveryPrimitiveHasACase) {
  std::set<Primitive> proved = {Primitive::input};
  for (const PrimitiveCase& c : all_cases()) {
    proved.insert(c.proves.begin(), c.proves.end());
    Graph graph;  // a case must hold what it claims to prove
    const Recording recording =
        record(c.formula.signature, c.formula.forms[0], c.formula.attributes, c.formula.data().inputs);
    for (const Primitive wanted : c.proves) {
      bool found = false;
      for (const Node& node : recording.graph->nodes()) found |= node.primitive == wanted;
      EXPECT_TRUE(found) << c.name << " has no " << name(wanted);
    }
  }
  for (int p = 0; p < kPrimitives; ++p)
    EXPECT_TRUE(proved.contains(static_cast<Primitive>(p))) << name(static_cast<Primitive>(p));
}

// A tensor without elements: nothing flows back, and what it meets has a gradient of zeros.
TEST(Adjoint, ZeroExtents) {
  using Call = FormulaCall;
  const std::vector<std::pair<std::string, SmallFormula>> cases = {
      {"rows", {{{"x", {0, 3}}, {"w", {3}}}, [](Call& c) { return exp(c["x"]) * c["w"]; }}},
      {"columns", {{{"x", {2, 0}}, {"w", {2, 1}}}, [](Call& c) { return sum(c["x"] * c["w"], -1); }}},
      {"product without rows",
       {{{"x", {0, 3}}, {"w", {2, 3}}}, [](Call& c) { return matmul(c["x"], c["w"], false, true); }}},
      {"product over nothing",
       {{{"x", {2, 0}}, {"w", {0, 3}}, {"b", {3}}}, [](Call& c) { return exp(matmul(c["x"], c["w"]) + c["b"]); }}},
      {"no rows gathered", {{{"w", {4, 2}}}, [](Call& c) { return exp(gather_rows(c["w"], {})); }}},
      {"empty part",
       {{{"a", {2, 0}}, {"w", {2, 2}}},
        [](Call& c) {
          return exp(concat({c["a"], c["w"]}, -1));
        }}},
      {"empty scatter",
       {{{"a", {0}}, {"w", {3}}}, [](Call& c) { return exp(put_add(c["a"], {}, Shape{3}) + c["w"]); }}},
  };
  for (const auto& [name, formula] : cases) {
    const FormulaCertificate certificate = formula.certify_all();
    EXPECT_FALSE(certificate.points.empty()) << name;
    EXPECT_GE(certificate.digits, kWantedDigits) << name;
  }
}

TEST(Adjoint, InputThatTheOutputDoesNotDependOn) {
  const SmallFormula formula({{"x", {3}}, {"w", {2}}}, [](FormulaCall& c) { return exp(c["x"]); });
  const FormulaCertificate certificate = formula.certify_all();
  EXPECT_EQ(certificate.points.size(), 5u);
  EXPECT_GE(certificate.digits, kWantedDigits);
}

}  // namespace
}  // namespace ampcheck::reference
