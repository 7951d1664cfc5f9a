// SPDX-License-Identifier: Apache-2.0
// What a formula guards by `where` is the guard's: 0/0 and 0 times infinity in the branch that is not chosen leave
// nothing open, forward or backward.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <string>

#include "checks/run/run_case.h"
#include "reference/text/formula_text.h"
#include "src/tensor.h"

namespace ampcheck::checks {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

/// y = x / d where d > 0, else 0; at guarded elements the gradients are `slip`.
OpDef guarded_quotient(float slip) {
  OpDef op;
  op.signature = {.name = "quotient",
                  .inputs = {{.name = "x", .dims = "N D"}, {.name = "d", .dims = "N D"}},
                  .outputs = {{.name = "y"}},
                  .dims = {{"N", {2, 3, 4}}, {"D", {3, 5, 7}}}};
  op.forms = {reference::form_from_text(op.signature, "guarded", "y = where(d > 0, x / d, 0)")};
  op.kernel.forward = [](const kernels::KernelCall& call) {
    const std::vector<double> x = to_doubles(call.at("x")), d = to_doubles(call.at("d"));
    std::vector<double> y(x.size());
    for (std::size_t i = 0; i < x.size(); ++i)
      y[i] = d[i] > 0 ? static_cast<double>(static_cast<float>(x[i]) / static_cast<float>(d[i])) : 0.0;
    from_doubles(y, call.at("y"));
  };
  op.kernel.backward = [slip](const kernels::KernelCall& call) {
    const std::vector<double> x = to_doubles(call.at("x")), d = to_doubles(call.at("d")), g = to_doubles(call.at("dy"));
    std::vector<double> dx(x.size()), dd(x.size());
    for (std::size_t i = 0; i < x.size(); ++i) {
      const float a = static_cast<float>(x[i]), b = static_cast<float>(d[i]), c = static_cast<float>(g[i]);
      dx[i] = static_cast<double>(b > 0 ? c / b : slip);
      dd[i] = static_cast<double>(b > 0 ? -(c * (a / b) / b) : slip);
    }
    from_doubles(dx, call.at("dx"));
    from_doubles(dd, call.at("dd"));
  };
  return op;
}

/// y = x / |x| of a row, 0 of a row of zeros, whose gradient is `slip`.
OpDef guarded_norm(float slip) {
  OpDef op;
  op.signature = {.name = "unit_rows",
                  .inputs = {{.name = "x", .dims = "N D"}},
                  .outputs = {{.name = "y"}},
                  .dims = {{"N", {2, 3, 4}}, {"D", {3, 5, 7}}}};
  op.forms = {reference::form_from_text(op.signature, "guarded",
                                        "size = sqrt(sum(x^2, -1)); y = where(size > 0, x / size, 0)")};
  const auto by_rows = [](const kernels::KernelCall& call, const char* to, const auto& element) {
    const std::vector<double> x = to_doubles(call.at("x"));
    const auto columns = static_cast<std::size_t>(call.at("x").shape.last());
    std::vector<double> out(x.size());
    for (std::size_t row = 0; row < x.size() / columns; ++row) {
      double size = 0;
      for (std::size_t k = 0; k < columns; ++k) size += x[row * columns + k] * x[row * columns + k];
      for (std::size_t k = 0; k < columns; ++k)
        out[row * columns + k] = static_cast<double>(static_cast<float>(element(row * columns, k, std::sqrt(size))));
    }
    from_doubles(out, call.at(to));
  };
  op.kernel.forward = [by_rows](const kernels::KernelCall& call) {
    const std::vector<double> x = to_doubles(call.at("x"));
    by_rows(call, "y", [&](std::size_t row, std::size_t k, double size) { return size > 0 ? x[row + k] / size : 0.0; });
  };
  op.kernel.backward = [by_rows, slip](const kernels::KernelCall& call) {
    const std::vector<double> x = to_doubles(call.at("x")), g = to_doubles(call.at("dy"));
    const auto columns = static_cast<std::size_t>(call.at("x").shape.last());
    by_rows(call, "dx", [&](std::size_t row, std::size_t k, double size) {
      if (!(size > 0)) return static_cast<double>(slip);
      double dot = 0;
      for (std::size_t j = 0; j < columns; ++j) dot += g[row + j] * x[row + j] / size;
      return (g[row + k] - dot * x[row + k] / size) / size;
    });
  };
  return op;
}

struct Judged {
  Verdict verdict;
  std::int64_t open;
};

Judged judged(const OpDef& op, const std::string& name) {
  RunOptions options;
  options.relations = false;
  const CaseResult result = run_case(op, parse_call(name, op.signature), options);
  std::int64_t open = 0;
  for (const CheckResult& check : result.checks) open += check.range;
  return {result.verdict, open};
}

TEST(Guarded, GradientsOfTheBranchThatIsNotChosenAreZero) {
  const std::string cases[] = {"quotient(x=fp32[5,7],range=signed_zeros,seed=1)",
                               "quotient(x=fp32[5,7],range=zeros,seed=1)",
                               "quotient(x=bf16[5,7],range=signed_zeros,seed=2)"};
  for (const std::string& name : cases) {
    const Judged right = judged(guarded_quotient(0), name);
    EXPECT_EQ(right.verdict, Verdict::rounding) << name;
    EXPECT_EQ(right.open, 0) << name;
    for (const float slip : {kNan, 1e30f, 1.0f})
      EXPECT_EQ(judged(guarded_quotient(slip), name).verdict, Verdict::bug) << name << " " << slip;
  }
}

TEST(Guarded, TheGuardHoldsBehindARootAndASum) {
  const std::string name = "unit_rows(x=fp32[5,7],range=zeros,seed=1)";
  const Judged right = judged(guarded_norm(0), name);
  EXPECT_EQ(right.verdict, Verdict::rounding);
  EXPECT_EQ(right.open, 0);
  for (const float slip : {kNan, 1e30f, 1.0f})
    EXPECT_EQ(judged(guarded_norm(slip), name).verdict, Verdict::bug) << slip;
  EXPECT_EQ(judged(guarded_norm(kNan), "unit_rows(x=fp32[5,7],seed=1)").verdict, Verdict::rounding) << "no such row";
}

/// 0 for x/0 is no rounding; 0/0 has no value.
TEST(Guarded, APoleThatIsMetExactlyIsJudged) {
  const std::string name = "div.guarded(x=fp32[5,7],range=signed_zeros,seed=1)";
  const OpDef& wrong = *find_op("div.guarded");
  EXPECT_EQ(judged(wrong, name).verdict, Verdict::bug);
  const OpDef& right = *find_op("div");
  const Judged whole = judged(right, "div(x=fp32[5,7],range=signed_zeros,seed=1)");
  EXPECT_EQ(whole.verdict, Verdict::rounding);
  EXPECT_GT(whole.open, 0);
}

/// y = max(1 - x t, 0), written with a guard; a masked gradient is multiplied by the other input, or is `masked_as`.
OpDef hinge(bool multiplies, float masked_as = 0) {
  OpDef op;
  op.signature = {.name = "hinge",
                  .inputs = {{.name = "x", .dims = "N D"}, {.name = "t", .dims = "N D"}},
                  .outputs = {{.name = "y"}},
                  .dims = {{"N", {2, 3, 4}}, {"D", {3, 5, 7}}}};
  op.forms = {reference::form_from_text(op.signature, "guarded", "v = 1 - x * t; y = where(v <= 0, 0, v)")};
  op.kernel.forward = [](const kernels::KernelCall& call) {
    const std::vector<double> x = to_doubles(call.at("x")), t = to_doubles(call.at("t"));
    std::vector<double> y(x.size());
    for (std::size_t i = 0; i < x.size(); ++i) {
      const float v = 1 - static_cast<float>(x[i]) * static_cast<float>(t[i]);
      y[i] = static_cast<double>(v <= 0 ? 0.0f : v);
    }
    from_doubles(y, call.at("y"));
  };
  op.kernel.backward = [=](const kernels::KernelCall& call) {
    const std::vector<double> x = to_doubles(call.at("x")), t = to_doubles(call.at("t")), g = to_doubles(call.at("dy"));
    std::vector<double> dx(x.size()), dt(x.size());
    for (std::size_t i = 0; i < x.size(); ++i) {
      const float a = static_cast<float>(x[i]), b = static_cast<float>(t[i]), c = static_cast<float>(g[i]);
      const bool off = 1 - a * b <= 0;
      const float masked = off ? 0.0f : -c;
      dx[i] = static_cast<double>(!off || multiplies ? masked * b : masked_as);
      dt[i] = static_cast<double>(!off || multiplies ? masked * a : masked_as);
    }
    from_doubles(dx, call.at("dx"));
    from_doubles(dt, call.at("dt"));
  };
  return op;
}

TEST(Guarded, InfiniteInputsMayMeetAMaskedGradientOrNot) {
  for (const bool multiplies : {true, false}) {
    const OpDef op = hinge(multiplies);
    for (const char* const range : {"normal", "specials"})
      for (std::uint64_t seed = 1; seed <= 4; ++seed) {
        OpCall call = default_call(op.signature, Dtype::fp32);
        call.dims = {{"N", 6}, {"D", 10}};
        call.range = range;
        call.seed = seed;
        const CaseResult result = run_case(op, call, {});
        EXPECT_FALSE(convicts(result.verdict)) << result.name << " " << result.code;
      }
  }
  const OpDef slips = hinge(false, 1e30f);  // planted: what is masked is not 0
  OpCall call = default_call(slips.signature, Dtype::fp32);
  call.dims = {{"N", 6}, {"D", 10}};
  const CaseResult wrong = run_case(slips, call, {});
  EXPECT_TRUE(std::ranges::any_of(wrong.checks, [](const CheckResult& c) { return c.code == Code::ac101; }));
}

}  // namespace
}  // namespace ampcheck::checks
