// SPDX-License-Identifier: Apache-2.0
// Gradients that are a convention.
#include <gtest/gtest.h>

#include "checks/define/op_def.h"
#include "reference/ball/ball.h"
#include "reference/certify/certify.h"
#include "tests/support/small_formula.h"

namespace ampcheck::reference {
namespace {

using Call = FormulaCall;

/// Rows of a table by index, of which those at index 1 have no gradient by convention; `rows` may give its own adjoint.
SmallFormula padded(const std::function<Expr(Expr rows)>& rows, const std::function<Expr(Expr rows)>& at_padding) {
  return SmallFormula({{"x", {3, 2}}}, [=](Call& c) {
    const std::vector<std::int64_t> index = {2, 1, 0, 1};
    const Expr all = exp(rows(gather_rows(c["x"], index)));
    return where(indicator(c.graph(), Shape{4, 1}, {0, 1, 0, 1}), at_padding(all), all);
  });
}
Expr same(Expr x) { return x; }
Expr by_convention(Expr x) { return no_gradient("rows at index 1", x); }

TEST(CertifyConventions, AreHeldFixedAndNamed) {
  const FormulaCertificate certificate = padded(same, by_convention).certify_all();
  EXPECT_GE(certificate.digits, kWantedDigits);
  EXPECT_EQ(certificate.conventions, std::vector<std::string>{"rows at index 1"});
  EXPECT_EQ(certificate.points.size(), 6u);
  EXPECT_EQ(certificate.flat, 2);  // the row that the convention is about
  EXPECT_NEAR(certificate.error_ratio, 4.0, 4e-6);
  EXPECT_TRUE(padded(same, same).certify_all().conventions.empty());
  // Not said to be a convention, the same gradient is refuted.
  EXPECT_LT(padded(same, stop_gradient).certify_all().digits, 1.0);
}

TEST(CertifyConventions, WrongGradientOfTheOtherPartIsRefuted) {
  const auto scaled = [](double factor) {
    return [factor](Expr x) { return own_adjoint(x, {x}, [factor](Expr g) { return std::vector<Expr>{g * factor}; }); };
  };
  EXPECT_GE(padded(scaled(1), by_convention).certify_all().digits, kWantedDigits);
  EXPECT_LT(padded(scaled(2), by_convention).certify_all().digits, 1.0);
  EXPECT_LT(padded(scaled(-1), by_convention).certify_all().digits, 1.0);
  EXPECT_LT(padded(scaled(1 + 1e-9), by_convention).certify_all().digits, 10.0);
}

TEST(CertifyConventions, GradientWhereTheConventionHasNoneIsRefuted) {
  const auto leaking = [](Expr x) {
    return own_adjoint(by_convention(x), {x}, [](Expr g) { return std::vector<Expr>{g}; });
  };
  EXPECT_LT(padded(same, leaking).certify_all().digits, 1.0);
}

TEST(CertifyConventions, AreHeldAnewWhereACoordinateMovesFromAKink) {
  SmallFormula formula({{"x", {4}}}, [](Call& c) {
    const Expr x = c["x"], zero = constant(c.graph(), 0.0);
    return where(less(zero, x), x, zero) * by_convention(exp(x));  // d/dx is exp(x) for x > 0, exp at the moved x
  });
  CertificationCase data = formula.data();
  data.values["x"] = {1.5, 0.0, -0.25, 0.0};
  const FormulaCertificate certificate = formula.certify_at(data);
  EXPECT_EQ(certificate.kinks, 2);
  EXPECT_GE(certificate.digits, kWantedDigits);
}

TEST(CertifyConventions, SecondOrderHoldsThemToo) {
  const SmallFormula formula({{"x", {3}}}, [](Call& c) { return exp(c["x"]) * by_convention(exp(c["x"])); });
  EXPECT_GE(formula.second_order().digits, kWantedDigits);
  EXPECT_EQ(formula.second_order().points.size(), 6u);
}

TEST(CertifyConventions, LessonsHoldThemToo) {
  const SmallFormula formula({{"x", {3, 7}}}, [](Call& c) { return exp(c["x"]) * by_convention(exp(c["x"])); });
  const auto lessons = difference_lessons(formula.signature, formula.forms[0], formula.variant(), 1);
  EXPECT_LT(lessons[0].best_error, 1e-9);  // not held, every derivative would be wrong by a factor of two
}

TEST(CertifyConventions, KeepTheRadius) {  // unlike a shift that cancels
  Graph g;
  const Expr x = g.input("x", {3}), total = sum(exp(x), 0), through = by_convention(total);
  BallEvaluator balls(g, {}, {total, through});
  balls.set(x, std::vector<double>{1, 2, 3});
  balls.run({total, through});
  EXPECT_GT(balls.result(total).r[0], 0);
  EXPECT_EQ(balls.result(through).r[0], balls.result(total).r[0]);
  EXPECT_EQ(balls.result(through).v[0], balls.result(total).v[0]);
}

TEST(CertifyConventions, EmbeddingWithPaddingAndItsFaults) {
  const checks::OpDef& op = *checks::find_op("embedding");
  const std::vector<FormulaVariant> variants = formula_variants(op.signature);
  const auto certified = [&](const std::function<Expr(Expr weight)>& through) {
    Form form = {"faulty", [&op, through](FormulaCall& call) {
                   call.inputs_["weight"] = through(call["weight"]);
                   op.forms.front().formula(call);
                 }};
    return certify(op.signature, {form}, variants, 8, 1);
  };
  const FormulaCertificate right = certified(same);
  EXPECT_GE(right.digits, kWantedDigits);
  EXPECT_EQ(right.conventions, std::vector<std::string>{"rows of weight at padding_idx"});
  for (const VariantCertificate& variant : right.variants)
    EXPECT_EQ(variant.conventions.size(), variant.name.empty() ? 0u : 1u);
  const FormulaCertificate wrong =
      certified([](Expr w) { return own_adjoint(w, {w}, [](Expr g) { return std::vector<Expr>{g * 2.0}; }); });
  for (const VariantCertificate& variant : wrong.variants) EXPECT_LT(variant.digits, 1.0) << variant.name;
}

}  // namespace
}  // namespace ampcheck::reference
