// SPDX-License-Identifier: Apache-2.0
#include "reference/certify/certify.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numbers>
#include <set>

#include "checks/define/op_def.h"
#include "reference/replay/quad.h"
#include "reference/softmax.h"
#include "tests/support/small_formula.h"

namespace ampcheck::reference {
namespace {

using Call = FormulaCall;

TEST(Certify, EveryBuiltInOpInEveryVariantAndForm) {
  for (const checks::OpDef& op : checks::all_ops()) {
    const auto start = std::chrono::steady_clock::now();
    const FormulaCertificate certificate = certify(op.signature, op.forms, formula_variants(op.signature), 4, 1);
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;
    std::printf("  %-16s %6.1f digits  ratio %.10f  %2zu variants  %4zu points (%d flat)  %6.1f ms\n",
                op.signature.name.c_str(), certificate.digits, certificate.error_ratio, certificate.variants.size(),
                certificate.points.size(), certificate.flat, took.count());
    EXPECT_GE(certificate.digits, kWantedDigits) << op.signature.name;
    for (const VariantCertificate& variant : certificate.variants) {
      EXPECT_GE(variant.digits, certificate.digits) << op.signature.name << " " << variant.name;
      EXPECT_GT(variant.points, variant.flat) << op.signature.name << " " << variant.name << ": no slope seen";
    }
    EXPECT_EQ(certificate.forms.size() + 1, op.forms.size()) << op.signature.name;
    EXPECT_EQ(certificate.kinks, 0) << op.signature.name;
    EXPECT_FALSE(certificate.points.empty()) << op.signature.name;
  }
}

TEST(Certify, SoftmaxShowsOrderTwo) {
  const SmallFormula formula({{"x", {2, 3}}}, [](Call& c) { return softmax(c["x"]); });
  const FormulaCertificate certificate = formula.certify_all();
  EXPECT_GE(certificate.digits, 60.0);
  EXPECT_EQ(certificate.points.size(), 6u);
  for (const CertifiedPoint& point : certificate.points) {
    EXPECT_NEAR(point.error_ratio, 4.0, 4e-6);
    EXPECT_NEAR(point.adjoint, point.difference, 1e-12 * std::fabs(point.adjoint));
  }
}

TEST(Certify, ThirtyTwoPointsOfASmallTensorUseFreshValues) {
  const SmallFormula formula({{"x", {5}}}, [](Call& c) { return tanh(c["x"]); });
  const FormulaCertificate certificate = formula.certify_some(32);
  ASSERT_EQ(certificate.points.size(), 32u);
  std::set<double> different;
  for (const CertifiedPoint& point : certificate.points) different.insert(point.x);
  EXPECT_EQ(different.size(), 32u);
}

// Planted faults: each must be refuted.

Expr with_adjoint(Call& c, const std::function<Expr(Expr g, Expr x)>& rule) {
  const Expr x = c["x"];
  return own_adjoint(square(x) * x, {x}, [x, rule](Expr g) { return std::vector<Expr>{rule(g, x)}; });
}

double digits_with_adjoint(const std::function<Expr(Expr g, Expr x)>& rule) {
  return SmallFormula({{"x", {2, 3}}}, [rule](Call& c) { return with_adjoint(c, rule); }).certify_all().digits;
}

TEST(CertifyRefutes, WrongAdjoints) {
  EXPECT_GE(digits_with_adjoint([](Expr g, Expr x) { return g * 3.0 * square(x); }), kWantedDigits);  // the right one
  EXPECT_LT(digits_with_adjoint([](Expr g, Expr x) { return -(g * 3.0 * square(x)); }), 1.0);
  EXPECT_LT(digits_with_adjoint([](Expr g, Expr x) { return g * 1.5 * square(x); }), 1.0);
  EXPECT_LT(digits_with_adjoint([](Expr g, Expr x) { return g * 3.0 * square(x) + 1e-9; }), 10.0);
  const double almost = digits_with_adjoint([](Expr g, Expr x) {
    const Expr d = g * 3.0 * square(x);
    return d + d * 1e-20;
  });
  EXPECT_LT(almost, kWantedDigits);
  EXPECT_NEAR(almost, 20.0, 0.1);
}

TEST(CertifyRefutes, AdjointWithAConstantOfSixteenDigits) {
  const auto pdf = [](double scale) {
    return SmallFormula({{"x", {3}}},
                        [scale](Call& c) {
                          const Expr x = c["x"];
                          return own_adjoint(erf(x), {x},
                                             [=](Expr g) { return std::vector<Expr>{g * scale * exp(-square(x))}; });
                        })
        .certify_all()
        .digits;
  };
  EXPECT_LT(pdf(2 * std::numbers::inv_sqrtpi), 18.0);
}

TEST(CertifyRefutes, StopGradientOnWhatDoesNotCancel) {
  EXPECT_LT(SmallFormula({{"x", {2, 3}}}, [](Call& c) { return c["x"] * stop_gradient(c["x"]); }).certify_all().digits,
            1.0);
}

TEST(CertifyRefutes, FormThatDiffersALittle) {
  const auto agree = [](double factor) {
    const SmallFormula formula(
        {{"x", {2, 3}}}, {[](Call& c) { return exp(c["x"]); }, [factor](Call& c) { return exp(c["x"]) * factor; }});
    return formula.certify_all();
  };
  EXPECT_GE(agree(1.0).digits, kWantedDigits);
  const FormulaCertificate off = agree(1.0 + 0x1p-40);
  EXPECT_NEAR(off.digits, 40 * std::log10(2.0), 0.01);
  ASSERT_EQ(off.forms.size(), 1u);
  EXPECT_LT(off.forms[0].forward_digits, 13.0);
  EXPECT_LT(off.forms[0].gradient_digits, 13.0);
  for (const CertifiedPoint& point : off.points) EXPECT_GE(point.digits, kWantedDigits);  // each is its own derivative
}

TEST(CertifyRefutes, FormWithAnotherGradientOnly) {
  const SmallFormula formula(
      {{"x", {2, 3}}}, {[](Call& c) { return softmax(c["x"]); },
                        [](Call& c) {
                          const Expr x = c["x"], y = softmax(x);  // the dot misses g
                          return own_adjoint(y, {x}, [y](Expr g) { return std::vector<Expr>{y * (g - sum(y, -1))}; });
                        }});
  const FormulaCertificate certificate = formula.certify_all();
  ASSERT_EQ(certificate.forms.size(), 1u);
  EXPECT_GE(certificate.forms[0].forward_digits, kWantedDigits);
  EXPECT_LT(certificate.forms[0].gradient_digits, 2.0);
  EXPECT_LT(certificate.digits, 2.0);
}

TEST(CertifyRefutes, FaultThatOnlyTheAbsenceOfAnOptionalInputShows) {
  const auto digits = [](double factor) {
    SmallFormula formula({{"x", {3}}, {"b", {3}}}, [factor](Call& c) {
      const Expr x = c["x"];
      if (c.has("b")) return exp(x) + c["b"];
      return own_adjoint(exp(x), {x}, [=](Expr g) { return std::vector<Expr>{g * factor * exp(x)}; });
    });
    formula.signature.inputs[1].optional = true;
    return certify(formula.signature, formula.forms, {formula.variant(), formula.without({"b"})}, 2, 1).digits;
  };
  EXPECT_GE(digits(1.0), kWantedDigits);
  EXPECT_LT(digits(2.0), 1.0);
}

// Rows that are left out have no gradient: a certificate of such rows alone would prove nothing.
TEST(Certify, LooksForCoordinatesWithASlope) {
  const auto certificate = [](double factor) {
    SmallFormula formula({{"x", {16}}}, [factor](Call& c) {
      const Expr x = slice(c["x"], 0, 11, 12);
      return own_adjoint(exp(x), {x}, [=](Expr g) { return std::vector<Expr>{g * factor * exp(x)}; });
    });
    return formula.certify_some(2);
  };
  EXPECT_GE(certificate(1.0).digits, kWantedDigits);
  EXPECT_EQ(certificate(1.0).flat, 1);
  EXPECT_LT(certificate(2.0).digits, 1.0);

  // The whole case flat: fresh data, here with other integers, until there is a slope.
  SmallFormula masked({{"x", {1, 3}}}, [](Call& c) {
    return exp(c["x"]) * indicator(c.graph(), Shape{1, 1}, {c.integers("keep")[0]});
  });
  masked.dims["one"] = 1;
  masked.signature.inputs.push_back({.name = "keep", .dims = "one", .role = Role::mask, .type = TypeRule::u8});
  bool seen_flat = false;
  for (std::uint64_t seed = 1; seed <= 8; ++seed) {
    const FormulaCertificate found = masked.certify_some(2, seed);
    EXPECT_LT(found.flat, static_cast<int>(found.points.size())) << seed;
    seen_flat |= found.flat > 0;
  }
  EXPECT_TRUE(seen_flat);
}

TEST(Certify, FormsWithTheSameGraphShareTheirPoints) {
  const SmallFormula::Body one = [](Call& c) { return softmax(c["x"]); };
  const SmallFormula formula({{"x", {2, 3}}}, std::vector<SmallFormula::Body>{one, one});
  const FormulaCertificate certificate = formula.certify_all();
  EXPECT_EQ(certificate.points.size(), 6u);
  ASSERT_EQ(certificate.forms.size(), 1u);
  EXPECT_EQ(certificate.forms[0].form, "form 1");
  EXPECT_GE(certificate.digits, kWantedDigits);
}

TEST(Certify, PowersEqualProductsAndRootsInAHundredDigits) {
  const auto digits = [](double exponent, Expr (*same)(Expr)) {
    return SmallFormula({{"x", {2, 3}, Domain::positive}},
                        {[exponent](Call& c) { return pow(c["x"], constant(c.graph(), exponent)); },
                         [same](Call& c) { return same(c["x"]); }})
        .certify_all()
        .digits;
  };
  EXPECT_GE(digits(0.5, sqrt), kWantedDigits);
  EXPECT_GE(digits(-1.5, [](Expr x) { return rsqrt(x) / x; }), kWantedDigits);
  EXPECT_GE(digits(-3, [](Expr x) { return 1.0 / (x * square(x)); }), kWantedDigits);
  EXPECT_LT(digits(3.0000000001, [](Expr x) { return x * square(x); }), 12.0);
}

// A root of negative numbers is no reason to refute x^p where the default p takes them; at the default it is.
TEST(Certify, DomainsThatAttributesNarrow) {
  const auto digits = [](double by_default, double other) {
    OpSignature signature = SmallFormula({{"x", {6}}}, [](Call& c) { return c["x"]; }).signature;
    signature.attributes = {{"p", by_default, {other}}};
    signature.dims = {{"x0", {6, 6, 6}}};
    const Form form{"power", [](Call& c) { c.output("y", pow(c["x"], c.attribute("p"))); }};
    return certify(signature, {form}, formula_variants(signature), 6, 1).digits;
  };
  EXPECT_GE(digits(2, 0.5), kWantedDigits);
  EXPECT_EQ(digits(0.5, 2), 0.0);
}

TEST(CertifyRefutes, NaN) {
  EXPECT_EQ(SmallFormula({{"x", {6}}}, [](Call& c) { return log(-square(c["x"])); }).certify_all().digits, 0.0);
}

TEST(CertifyRefutes, NothingCompared) {
  EXPECT_EQ(SmallFormula({{"x", {0}}}, [](Call& c) { return exp(c["x"]); }).certify_all().digits, 0.0);
}

TEST(CertifyKinks, AreCountedAndTheCoordinateMoves) {
  const SmallFormula relu({{"x", {4}}}, [](Call& c) {
    const Expr zero = constant(c.graph(), 0.0);
    return where(less(zero, c["x"]), c["x"], zero);
  });
  CertificationCase data = relu.data();
  data.values["x"] = {1.5, 0.0, -0.25, 0.0};
  const FormulaCertificate certificate = relu.certify_at(data);
  EXPECT_EQ(certificate.kinks, 2);
  EXPECT_EQ(certificate.points.size(), 4u);
  EXPECT_GE(certificate.digits, kWantedDigits);
  for (const CertifiedPoint& point : certificate.points) EXPECT_NE(point.x, 0.0);
}

TEST(CertifyKinks, TiesOfAMaximum) {
  const SmallFormula pool({{"x", {1, 3}}}, [](Call& c) { return max(c["x"], -1); });
  CertificationCase data = pool.data();
  data.values["x"] = {1.0, 2.0, 2.0};
  const FormulaCertificate certificate = pool.certify_at(data);
  EXPECT_GE(certificate.kinks, 1);
  EXPECT_GE(certificate.digits, kWantedDigits);
}

TEST(CertifySecondOrder, ActivationsAndSoftmax) {
  const std::vector<std::pair<std::string, SmallFormula>> formulas = {
      {"softmax", {{{"x", {2, 3}}}, [](Call& c) { return softmax(c["x"]); }}},
      {"softmax with the usual adjoint", {{{"x", {2, 3}}}, [](Call& c) { return softmax_usual_adjoint(c["x"]); }}},
      {"softmax by lse", {{{"x", {2, 3}}}, [](Call& c) { return softmax_by_lse(c["x"]); }}},
      {"tanh", {{{"x", {6}}}, [](Call& c) { return tanh(c["x"]); }}},
      {"gelu",
       {{{"x", {6}}},
        [](Call& c) {
          const Expr x = c["x"];
          return 0.5 * x * (1.0 + erf(x * named_constant(c.graph(), "1/sqrt(2)")));
        }}},
  };
  for (const auto& [name, formula] : formulas) {
    const FormulaCertificate certificate = formula.second_order();
    EXPECT_GE(certificate.digits, kWantedDigits) << name;
    EXPECT_NEAR(certificate.error_ratio, 4.0, 4e-6) << name;
    EXPECT_EQ(certificate.points.size(), 12u) << name;  // by x and by dy
  }
}

TEST(CertifySecondOrder, RefutesAnAdjointThatDoesNotDifferentiate) {
  // The first order is right, but the rule hides its dependence on x.
  const SmallFormula formula({{"x", {4}}}, [](Call& c) {
    const Expr x = c["x"];
    return own_adjoint(exp(x), {x}, [x](Expr g) { return std::vector<Expr>{g * stop_gradient(exp(x))}; });
  });
  EXPECT_GE(formula.certify_all().digits, kWantedDigits);
  EXPECT_LT(formula.second_order().digits, 1.0);
}

TEST(DifferenceLessons, WhatEachArithmeticAllows) {
  const SmallFormula formula({{"x", {3, 7}}}, [](Call& c) {
    const Expr x = c["x"];
    return 0.5 * x * (1.0 + erf(x * named_constant(c.graph(), "1/sqrt(2)")));
  });
  const auto lessons = difference_lessons(formula.signature, formula.forms[0], formula.variant(), 1);
  ASSERT_EQ(lessons.size(), 4u);
  const double roundoff[] = {0x1p-53, 0x1p-24, 0x1p-11, 0x1p-8};
  const char* names[] = {"fp64", "fp32", "fp16", "bf16"};
  for (std::size_t i = 0; i < 4; ++i) {
    const DifferenceLesson& lesson = lessons[i];
    std::printf("  %s best step %.1e error %.1e, with 1e-6 %.1e%s\n", lesson.arithmetic.c_str(), lesson.best_step,
                lesson.best_error, lesson.error_at_1e_6, lesson.step_vanishes ? ", step vanishes" : "");
    EXPECT_EQ(lesson.arithmetic, names[i]);
    // Theory: E* = u^(2/3), h* = u^(1/3), up to the function's own constants; a factor of 100 either way tells the
    // arithmetics apart by their exponents.
    const double theory = std::pow(roundoff[i], 2.0 / 3.0);
    EXPECT_LT(lesson.best_error, 100 * theory) << lesson.arithmetic;
    EXPECT_GT(lesson.best_error, theory / 100) << lesson.arithmetic;
    EXPECT_LT(lesson.best_step, 100 * std::cbrt(roundoff[i])) << lesson.arithmetic;
    EXPECT_GT(lesson.best_step, std::cbrt(roundoff[i]) / 100) << lesson.arithmetic;
  }
  EXPECT_LT(lessons[0].error_at_1e_6, 1e-7);
  EXPECT_GT(lessons[1].error_at_1e_6, 1e-3);
  EXPECT_EQ(lessons[3].error_at_1e_6, 1.0);  // the derivative reads 0
  EXPECT_FALSE(lessons[0].step_vanishes);
  EXPECT_FALSE(lessons[1].step_vanishes);
  EXPECT_TRUE(lessons[2].step_vanishes);
  EXPECT_TRUE(lessons[3].step_vanishes);
}

struct KnownValue {
  Primitive function;
  const char *x, *value;  // 100 digits
};

// mpmath 1.3 at 130 digits.
const KnownValue kKnownValues[] = {
    {Primitive::erf, "0.03125",
     "3.525037386732282599861658807396348907529159930568116973422547385134899976422032104279082941099086052e-2"},
    {Primitive::erf, "0.7",
     "6.778011938374184729756288092441513967162881743348702789905699152489732672957347953008115161251114688e-1"},
    {Primitive::erf, "3.9",
     "9.999999652077514027682577216923648384863344451950457828392845061472539772829172332782893466535929370e-1"},
    {Primitive::erf, "5.1",
     "9.999999999994506179782444700402993477042538738415922077906668899816694287939302797677296610610723609e-1"},
    {Primitive::erf, "-2.5",
     "-9.995930479825550410604357842600250872796513225962865798608792212309029939701503343580384559212367757e-1"},
    {Primitive::erf, "9",
     "9.999999999999999999999999999999999995862968253486189761946096532637475404289808014052037540194090098e-1"},
    {Primitive::erfc, "0.03125",
     "9.647496261326771740013834119260365109247084006943188302657745261486510002357796789572091705890091395e-1"},
    {Primitive::erfc, "0.7",
     "3.221988061625815270243711907558486032837118256651297210094300847510267327042652046991884838748885312e-1"},
    {Primitive::erfc, "3.9",
     "3.479224859723174227830763516151366555480495421716071549385274602271708276672171065334640706296634467e-8"},
    {Primitive::erfc, "5.1",
     "5.493820217555299597006522957461261584077922093331100183305712060697202322703389389276390827742341439e-13"},
    {Primitive::erfc, "-2.5",
     "1.999593047982555041060435784260025087279651322596286579860879221230902993970150334358038455921236776"},
    {Primitive::erfc, "9",
     "4.137031746513810238053903467362524595710191985947962459805909901907620354768184359704899053858908639e-37"},
    {Primitive::expm1, "1e-30",
     "1.000000000000000000000000000000500000000000000000000000000000166666666666666666666666666666708333333e-30"},
    {Primitive::expm1, "0.3",
     "3.498588075760031039837443133280073303782996973593658030499179899396125873995398912937964857840967152e-1"},
    {Primitive::expm1, "2.75",
     "1.464263188418817161021269804615665884503803503410762285573065301167292577518599736953369200800092515e+1"},
    {Primitive::expm1, "-0.4",
     "-3.296799539643606992555670748521739280630190747891878001110896683741058248796462561736624560035420651e-1"},
    {Primitive::expm1, "-37.5",
     "-9.999999999999999482444499419813146514890929426117005397518953218544994380424963285573974025365158698e-1"},
    {Primitive::log1p, "1e-30",
     "9.999999999999999999999999999995000000000000000000000000000003333333333333333333333333333330833333333e-31"},
    {Primitive::log1p, "0.3",
     "2.623642644674910520354959868809543972041664561314341403857176096958920576470576991635774583508911904e-1"},
    {Primitive::log1p, "2.75",
     "1.321755839982319447161540327232360208022091643370756665405982206124886036986877300292022978914074325"},
    {Primitive::tanh, "1e-30",
     "9.999999999999999999999999999999999999999999999999999999999996666666666666666666666666666666666666667e-31"},
    {Primitive::tanh, "0.3",
     "2.913126124515909058182212728237659281535968049176121744143124195981916584078335960112312335245421010e-1"},
    {Primitive::tanh, "2.75",
     "9.918597245682077453496707891428503308655044874732411867735320772425934549187844828749893125821384158e-1"},
    {Primitive::tanh, "-0.4",
     "-3.799489622552248852677481238968733105131843743714001034844763324335016777597744242411093305540076116e-1"},
    {Primitive::tanh, "-37.5",
     "-9.999999999999999999999999999999946427260763838441113111695978449339562453118003145557993731915207577e-1"},
    {Primitive::exp, "1e-30",
     "1.000000000000000000000000000001000000000000000000000000000000500000000000000000000000000000166666667"},
    {Primitive::exp, "0.3",
     "1.349858807576003103983744313328007330378299697359365803049917989939612587399539891293796485784096715"},
    {Primitive::exp, "2.75",
     "1.564263188418817161021269804615665884503803503410762285573065301167292577518599736953369200800092515e+1"},
    {Primitive::exp, "-0.4",
     "6.703200460356393007444329251478260719369809252108121998889103316258941751203537438263375439964579349e-1"},
    {Primitive::exp, "-37.5",
     "5.175555005801868534851090705738829946024810467814550056195750367144260259746348413022027925384352186e-17"},
    {Primitive::log, "1e-30",
     "-6.907755278982137052053974364053092622803304465886318928099983702902717829032057440707991615268794895e+1"},
    {Primitive::log, "0.3",
     "-1.203972804325935992622746217761838502953610930806023524298633567330078316458743513362381450275866210"},
    {Primitive::log, "2.75",
     "1.011600911678479925227479335048776163670706585216906666977207690143786379973847281863328054009797416"},
    {Primitive::sin, "0.03125",
     "3.124491398532607873958112125746446462607811879893104039745972522154420800328570634152411799005336896e-2"},
    {Primitive::sin, "0.7",
     "6.442176872376910536726143513987201830658138445736896447439630880938299754496756647146266921687577054e-1"},
    {Primitive::sin, "-2.5",
     "-5.984721441039564940518547021861622717035971715772235733026270326387442721927370750402114715138763507e-1"},
    {Primitive::sin, "9",
     "4.121184852417565697562725663524351793438765268869727622356051615560967103075751598270939093988535752e-1"},
    {Primitive::sin, "52.3",
     "8.943942706297679524246247760256047271678535884937906552938050285306400255586116825031981810771217906e-1"},
    {Primitive::cos, "0.03125",
     "9.995117584851363692412293253957171205276837967052149479218176917118043709897561763605974053425297197e-1"},
    {Primitive::cos, "0.7",
     "7.648421872844884262558599901918649092682105503737033560729324582520658750437101630312019000526683327e-1"},
    {Primitive::cos, "-2.5",
     "-8.011436155469337148335027904673516644285678487678201350745979916620240771711863918801052195634272750e-1"},
    {Primitive::cos, "9",
     "-9.111302618846769883682947111811653112463475665693472621247827657805464066500789352263159782057923461e-1"},
    {Primitive::cos, "52.3",
     "-4.472794301827945714086879175370764936302019349226213905978293982232624154280967622035156877378789495e-1"},
    {Primitive::sqrt, "1e-30",
     "1.000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000e-15"},
    {Primitive::sqrt, "0.3",
     "5.477225575051661134569697828008021339527446949979832542268944497324932771227227338008584361638706258e-1"},
    {Primitive::sqrt, "2.75",
     "1.658312395177699924557466368335343341963544272794676798529341073058242321304521923354421699564145325"},
};

TEST(Digits, FunctionsAgreeWithMpmath) {
  for (const KnownValue& known : kKnownValues) {
    const std::string got = function_in_digits(known.function, known.x, 100), want = known.value;
    EXPECT_EQ(got.substr(0, 98), want.substr(0, 98)) << name(known.function) << "(" << known.x << ")";
    EXPECT_DOUBLE_EQ(std::stod(got), std::stod(want)) << name(known.function) << "(" << known.x << ")";
  }
}

/// Whole turns are taken off with as many digits of pi as the angle has: mpmath 1.3 at 400 digits.
TEST(Quad, AnglesOfAnySizeAreReduced) {
  Graph graph;
  const Expr x = graph.input("x", {4});
  const Expr sine = sin(x), cosine = cos(x);
  QuadEvaluator evaluator(graph);
  evaluator.set(x, {0x1p60, 1e22, 1e300, -0.5});
  const double sines[] = {-0.83064921763725465058, -0.85220084976718880177, -0.81788191211590859705, std::sin(-0.5)},
               cosines[] = {-0.55679608227664170368, 0.5232147853951389455, -0.57538611195754904669, std::cos(-0.5)};
  const std::vector<double> s = evaluator.value(sine), c = evaluator.value(cosine);
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_DOUBLE_EQ(s[i], sines[i]) << i;
    EXPECT_DOUBLE_EQ(c[i], cosines[i]) << i;
  }
}

TEST(Digits, NamedConstants) {
  Graph graph;
  EXPECT_EQ(graph.node(named_constant(graph, "1/3").id).value, 1.0 / 3.0);
  EXPECT_EQ(graph.node(named_constant(graph, "1/sqrt(2)").id).value, 0.70710678118654752);
  EXPECT_THROW(named_constant(graph, "1/sqrt(3)"), std::exception);
  EXPECT_THROW(named_constant(graph, "1/3x"), std::exception);
  // Each squared or inverted by another form: equal in 100 digits.
  const SmallFormula formula({{"x", {2}}},
                             {[](Call& c) { return c["x"] / 6.0; },
                              [](Call& c) {
                                const auto k = [&](const char* name) { return named_constant(c.graph(), name); };
                                return c["x"] * k("1/6") * (k("2/sqrt(pi)") * k("1/sqrt(2)") / k("sqrt(2/pi)")) *
                                       (k("log(2)") * k("1/log(2)")) * (2.0 * square(k("1/sqrt(2 pi)")) * k("pi"));
                              }});
  const FormulaCertificate certificate = formula.certify_all();
  ASSERT_EQ(certificate.forms.size(), 1u);
  EXPECT_GE(certificate.forms[0].forward_digits, 100.0);
  EXPECT_GE(certificate.forms[0].gradient_digits, 100.0);
}

TEST(CertificationCase, DimsAreSmallAndValid) {
  OpSignature signature;
  signature.dims = {{"N", {64, 64, 64}}, {"H", {64, 64, 64}}, {"W", {64, 64, 64}}};
  EXPECT_EQ(certification_dims(signature, {}), (Dims{{"N", 2}, {"H", 3}, {"W", 3}}));
  signature.inputs = {{.name = "x", .dims = "N H W"}};
  signature.attributes = {{.name = "kernel", .default_value = 5.0, .other_values = {}}};
  signature.valid = [](const Dims& dims, const Attributes& a) {
    return static_cast<double>(dims.at("W")) >= a.number("kernel");
  };
  EXPECT_EQ(certification_dims(signature, default_attributes(signature)).value().at("W"), 5);
  Attributes wide, impossible;
  wide.set("kernel", 60.0);
  impossible.set("kernel", 65.0);
  EXPECT_EQ(certification_dims(signature, wide).value().at("W"), 64);  // a standard shape
  EXPECT_FALSE(certification_dims(signature, impossible).has_value());
  signature.dims = {{"N", {2, 64, 64}}, {"H", {7, 64, 64}}, {"W", {9, 64, 64}}};  // small enough as it is
  EXPECT_EQ(certification_dims(signature, default_attributes(signature)), (Dims{{"N", 2}, {"H", 7}, {"W", 9}}));
}

// Variants: attributes and optional inputs.

std::set<std::string> names_of(const std::vector<FormulaVariant>& variants) {
  std::set<std::string> out;
  for (const FormulaVariant& variant : variants) out.insert(variant.name);
  return out;
}

TEST(FormulaVariants, AreEveryAdmittedCombination) {
  OpSignature signature;
  signature.inputs = {{.name = "x", .dims = "N"}, {.name = "bias", .dims = "N", .optional = true}};
  signature.dims = {{"N", {8, 8, 8}}};
  signature.attributes = {{"eps", 1e-5, {0.1, 0.5}}, {"mode", std::string("a"), {std::string("b")}}};
  const std::vector<FormulaVariant> variants = formula_variants(signature);
  EXPECT_EQ(names_of(variants),
            (std::set<std::string>{"", "bias=none", "eps=0.1", "eps=0.5", "mode=b", "bias=none,eps=0.1",
                                   "bias=none,eps=0.5", "bias=none,mode=b", "eps=0.1,mode=b", "eps=0.5,mode=b",
                                   "bias=none,eps=0.1,mode=b", "bias=none,eps=0.5,mode=b"}));
  ASSERT_EQ(variants.size(), 12u);
  EXPECT_EQ(variants.front().name, "");
  EXPECT_EQ(variants.front().attributes.number("eps"), 1e-5);
  EXPECT_TRUE(variants.front().absent.empty());
  EXPECT_EQ(variants.back().attributes.text("mode"), "b");
  EXPECT_EQ(variants.back().attributes.number("eps"), 0.5);
  EXPECT_EQ(variants.back().absent, std::vector<std::string>{"bias"});
  // Outside the op's domain: no case has it.
  signature.valid = [](const Dims&, const Attributes& a) { return a.number("eps") < 0.2 || a.text("mode") == "a"; };
  EXPECT_EQ(formula_variants(signature).size(), 10u);
  EXPECT_FALSE(names_of(formula_variants(signature)).contains("eps=0.5,mode=b"));
}

TEST(FormulaVariants, OfVeryManyChangeOneThingAtATime) {
  OpSignature signature;
  signature.inputs = {{.name = "x", .dims = "N"}};
  signature.dims = {{"N", {8, 8, 8}}};
  for (const char* name : {"a", "b", "c", "d"}) signature.attributes.push_back({name, 0.0, {1.0, 2.0}});
  const std::vector<FormulaVariant> variants = formula_variants(signature);  // not 3^4
  EXPECT_EQ(names_of(variants), (std::set<std::string>{"", "a=1", "a=2", "b=1", "b=2", "c=1", "c=2", "d=1", "d=2"}));
}

TEST(CertifyRefutes, FaultInOneBranchOfTheAttributes) {
  const auto certificate = [](bool faulty) {
    SmallFormula formula({{"x", {3}}}, [faulty](Call& c) {
      const Expr x = c["x"];
      const double factor = faulty && c.number("k") == 2 && c.text("mode") == "b" ? 2 : 1;
      return own_adjoint(exp(x) * c.attribute("k"), {x}, [=](Expr g) {
        return std::vector<Expr>{g * factor * exp(x) * constant(*x.graph, c.number("k"))};
      });
    });
    formula.signature.dims = {{"x0", {3, 3, 3}}};
    formula.signature.attributes = {{"k", 1.0, {2.0, 3.0}}, {"mode", std::string("a"), {std::string("b")}}};
    return certify(formula.signature, formula.forms, formula_variants(formula.signature), 4, 1);
  };
  EXPECT_GE(certificate(false).digits, kWantedDigits);
  const FormulaCertificate wrong = certificate(true);
  EXPECT_LT(wrong.digits, 1.0);
  ASSERT_EQ(wrong.variants.size(), 6u);
  for (const VariantCertificate& variant : wrong.variants)
    EXPECT_EQ(variant.digits < kWantedDigits, variant.name == "k=2,mode=b") << variant.name;
}

TEST(CertifyRefutes, VariantOfWhichNothingIsCompared) {
  SmallFormula formula({{"x", {3}}, {"b", {3}}}, [](Call& c) { return c.has("x") ? exp(c["x"]) : exp(c["b"]); });
  formula.signature.inputs[1].differentiable = false;
  EXPECT_GE(certify(formula.signature, formula.forms, {formula.variant()}, 2, 1).digits, kWantedDigits);
  EXPECT_EQ(certify(formula.signature, formula.forms, {formula.variant(), formula.without({"x"})}, 2, 1).digits, 0.0);
  EXPECT_EQ(certify(formula.signature, formula.forms, std::vector<FormulaVariant>{}, 2, 1).digits, 0.0);
}

// Every case meets its sentinel: an op of which no row is ever left out has one branch uncertified.
TEST(CertificationCase, OneIndexIsTheSentinelAndOneIsNot) {
  for (const char* op : {"cross_entropy", "embedding"})
    for (const FormulaVariant& variant : formula_variants(checks::find_op(op)->signature))
      for (std::uint64_t seed = 1; seed <= 20; ++seed) {
        const bool loss = std::string_view(op) == "cross_entropy";
        const std::int64_t sentinel = variant.attributes.integer(loss ? "ignore_index" : "padding_idx");
        const CertificationCase data = certification_case(checks::find_op(op)->signature, variant, seed);
        const std::vector<std::int64_t>& indices = data.inputs.integers.at(loss ? "target" : "index");
        const std::int64_t hits = std::count(indices.begin(), indices.end(), sentinel), all = std::ssize(indices);
        if (!loss && sentinel < 0)
          EXPECT_EQ(hits, 0) << "an index addresses memory";
        else
          EXPECT_TRUE(hits >= 1 && hits < all) << op << " " << variant.name << " seed " << seed;
      }
}

TEST(CertificationCase, HasFullMantissasInsideTheDomains) {
  SmallFormula formula({{"x", {50}}, {"p", {50}, Domain::positive}, {"u", {50}, Domain::unit_interval}},
                       [](Call& c) { return c["x"]; });
  formula.signature.inputs.push_back(
      {.name = "i", .dims = "p0", .role = Role::index, .type = TypeRule::i64, .index_dim = "x0"});
  formula.signature.inputs.push_back({.name = "share", .dims = "x0", .role = Role::probability});
  formula.signature.inputs.push_back({.name = "angle", .dims = "x0", .role = Role::angle});
  const CertificationCase data = formula.data();
  int full = 0;
  for (const double v : data.values.at("x")) full += v != static_cast<double>(static_cast<float>(v));
  EXPECT_GE(full, 45);
  for (const double v : data.values.at("p")) EXPECT_GT(v, 0.0);
  for (const char* name : {"u", "share"})
    for (const double v : data.values.at(name)) EXPECT_TRUE(v > 0.0 && v < 1.0) << name;
  const std::vector<double>& angles = data.values.at("angle");
  for (const double v : angles) EXPECT_TRUE(v > -1.0 && v < 1.0);
  EXPECT_TRUE(std::any_of(angles.begin(), angles.end(), [](double v) { return v < 0; }));
  ASSERT_EQ(data.inputs.integers.at("i").size(), 50u);
  for (const std::int64_t v : data.inputs.integers.at("i")) EXPECT_TRUE(v >= 0 && v < 50);
}

}  // namespace
}  // namespace ampcheck::reference
