// SPDX-License-Identifier: Apache-2.0
// Errors that the elements of a row share are found although every element lies in its interval, and none of right
// kernels.
#include "checks/judge/correlation.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "checks/run/runner.h"
#include "src/random.h"
#include "tests/support/check_named.h"
#include "tests/support/correlation_cases.h"
#include "tests/support/run_program.h"
#include "tests/support/sanitized.h"

namespace ampcheck::checks {
namespace {

using ampcheck::testing::contains;

TEST(RowErrors, SeesAFactorAndAShift) {
  const std::vector<double> exact{3, -3, 1, -1};
  const RowErrors factor = row_errors({3.03, -3.03, 1.02, -1.02}, exact, 2),
                  shift = row_errors({3.03, -2.97, 1.02, -0.98}, exact, 2);
  EXPECT_NEAR(factor.factor, 0.01 * 0.01 + 0.02 * 0.02, 1e-12);
  EXPECT_NEAR(factor.shift, 0, 1e-12);
  EXPECT_NEAR(shift.factor, 0, 1e-12);
  EXPECT_NEAR(shift.shift, 0.01 * 0.01 + 0.02 * 0.02, 1e-12);
  EXPECT_EQ(row_errors({1, 1}, {0, 0}, 2).factor, 0);
  EXPECT_EQ(row_errors({}, {}, 0).shift, 0);
}

/// A sign that follows from the row's data alone, so that launches repeat.
double sign_of(const double* row, std::size_t n) {
  std::uint64_t hash = 0;
  for (std::size_t i = 0; i < n; ++i) {
    std::uint64_t bits = 0;
    std::memcpy(&bits, row + i, sizeof bits);
    hash = Random(hash ^ bits, "sign").bits(0);
  }
  return (hash & 1) != 0 ? 1 : -1;
}

/// A norm in fp64 but for its statistics, which are off by `factor` u relative (inv) and `shift` u of the spread
/// (mean), up or down by row.
OpDef coarse_norm(const char* name, double factor, double shift) {
  OpDef op = *find_op(name);
  const bool centred = std::string(name) == "layer_norm";
  op.kernel.forward = [=](const kernels::KernelCall& call) {
    const std::vector<double> x = to_doubles(call.at("x"));
    const std::vector<double> weight =
        call.find("weight") != nullptr ? to_doubles(call.at("weight")) : std::vector<double>();
    const std::vector<double> bias = call.find("bias") != nullptr ? to_doubles(call.at("bias")) : std::vector<double>();
    const auto n = static_cast<std::size_t>(call.at("x").shape.last());
    std::vector<double> y(x.size()), means, invs;
    for (std::size_t row = 0; row < x.size(); row += n) {
      double mean = 0, squares = 0;
      for (std::size_t i = 0; centred && i < n; ++i) mean += x[row + i] / static_cast<double>(n);
      for (std::size_t i = 0; i < n; ++i) squares += (x[row + i] - mean) * (x[row + i] - mean) / static_cast<double>(n);
      const double sign = sign_of(&x[row], n),
                   inv = (1 + sign * factor * 0x1p-24) / std::sqrt(squares + call.number("eps"));
      if (shift != 0) mean += sign * shift * 0x1p-24 / inv;
      for (std::size_t i = 0; i < n; ++i)
        y[row + i] = (x[row + i] - mean) * inv * (weight.empty() ? 1 : weight[i]) + (bias.empty() ? 0 : bias[i]);
      means.push_back(mean);
      invs.push_back(inv);
    }
    from_doubles(y, call.at("y"));
    if (centred) from_doubles(means, call.at("mean"));
    from_doubles(invs, call.at(centred ? "inv_std" : "inv_rms"));
  };
  return op;
}

/// softmax in fp64 but for its denominator.
OpDef coarse_softmax(double factor) {
  OpDef op = *find_op("softmax");
  op.kernel.forward = [=](const kernels::KernelCall& call) {
    const std::vector<double> x = to_doubles(call.at("x"));
    const auto n = static_cast<std::size_t>(call.at("x").shape.last());
    std::vector<double> y(x.size());
    for (std::size_t row = 0; row < x.size(); row += n) {
      double sum = 0;
      for (std::size_t i = row; i < row + n; ++i) sum += std::exp(x[i]);
      sum *= 1 + sign_of(&x[row], n) * factor * 0x1p-24;
      for (std::size_t i = row; i < row + n; ++i) y[i] = std::exp(x[i]) / sum;
    }
    from_doubles(y, call.at("y"));
  };
  return op;
}

const CheckResult* correlation_of(const CaseResult& result, const std::string& tensor) {
  return check_named(result, "correlation " + tensor);
}

void expect_convicted(const OpDef& op, const char* what) {
  const CaseResult result = result_of(op, Dtype::fp32);
  EXPECT_EQ(result.code, Code::ac105) << op.signature.name;
  EXPECT_EQ(result.verdict, Verdict::bug);
  for (const CheckResult& check : result.checks)
    if (check.name().starts_with("forward ")) {
      EXPECT_EQ(check.failed, 0) << check.name() << ": outside its interval, no matter of statistics";
    }
  const CheckResult* const y = correlation_of(result, "y");
  ASSERT_NE(y, nullptr);
  EXPECT_EQ(y->code, Code::ac105) << op.signature.name;
  for (const char* words : {what, " of 64 fresh seeds", "p = ", "sign test", "1000 looks", "16,64]"})
    EXPECT_TRUE(contains(y->cause, words)) << y->cause;
}

TEST(Correlation, OfCoarseRowStatisticsIsFound) {
  expect_convicted(coarse_norm("layer_norm", 8, 0), "share a factor");
  expect_convicted(coarse_norm("layer_norm", 0, 8), "share a shift");
  expect_convicted(coarse_norm("rms_norm", 8, 0), "share a factor");
  expect_convicted(coarse_softmax(16), "share a factor");
}

/// The same kernels with exact statistics, with statistics within what rsqrt may err, and in 16 bits.
TEST(Correlation, NoneOfStatisticsWithinTheContract) {
  for (const double factor : {0.0, 2.0})
    for (const char* name : {"layer_norm", "rms_norm"}) {
      const CaseResult result = result_of(coarse_norm(name, factor, 0), Dtype::fp32);
      EXPECT_FALSE(convicts(result.verdict)) << name << " " << factor << " " << result.code;
      ASSERT_NE(correlation_of(result, "y"), nullptr);
      EXPECT_EQ(correlation_of(result, "y")->code, Code::none);
    }
  const CaseResult half = result_of(coarse_norm("layer_norm", 8, 0), Dtype::bf16);
  EXPECT_FALSE(convicts(half.verdict)) << half.code;
  EXPECT_EQ(correlation_of(half, "y"), nullptr);
}

/// A function may err to one side: all elements of a row then share a factor, within what the contract allows.
TEST(Correlation, NoneOfOneSidedFunctions) {
  for (const char* name : {"exp", "tanh", "log"})
    for (const double ulps : {-0.4, 0.4}) {
      OpDef op = *find_op(name);
      op.kernel.forward = [=](const kernels::KernelCall& call) {
        std::vector<double> y = to_doubles(call.at("x"));
        for (double& v : y) {
          v = *name == 'e' ? std::exp(v) : *name == 't' ? std::tanh(v) : std::log(v);
          if (v != 0 && std::isfinite(v)) v += ulps * std::ldexp(1.0, std::ilogb(v) - 23);
        }
        from_doubles(y, call.at("y"));
      };
      const CaseResult result = result_of(op, Dtype::fp32);
      EXPECT_FALSE(convicts(result.verdict)) << name << " " << ulps << " " << result.code;
      ASSERT_NE(correlation_of(result, "y"), nullptr) << name;
      EXPECT_EQ(correlation_of(result, "y")->code, Code::none) << name << " " << ulps;
    }
}

TEST(Correlation, OutsideTheIntervalIsLeftToTheJudge) {
  const CaseResult result = result_of(coarse_norm("layer_norm", 1e4, 0), Dtype::fp32);
  EXPECT_NE(result.code, Code::ac105);
  EXPECT_TRUE(convicts(result.verdict));
  EXPECT_EQ(correlation_of(result, "y"), nullptr);
}

/// A quick sample of the soak test.
TEST(Correlation, NoneOfRightKernels) {
  int tested = 0, ops = 0;
  const std::vector<const OpDef*> right = right_ops();
  for (std::size_t i = 0; i < right.size(); i += testing::kSanitized ? 5 : 1) {
    ++ops;
    tested += expect_no_correlation(*right[i], 1);
  }
  EXPECT_GT(tested, ops / 2);
}

}  // namespace
}  // namespace ampcheck::checks
