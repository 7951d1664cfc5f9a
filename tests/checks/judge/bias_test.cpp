// SPDX-License-Identifier: Apache-2.0
// Sums that round to one side are found although every element lies in its interval, and no right sum is, however it is
// added up.
#include "checks/judge/bias.h"
#include "checks/case/sign_test.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "checks/run/runner.h"
#include "checks/zoo/zoo.h"
#include "src/error.h"
#include "tests/support/check_named.h"
#include "tests/support/run_program.h"

namespace ampcheck::checks {
namespace {

using ampcheck::testing::contains;

TEST(SignTest, IsExact) {
  EXPECT_NEAR(sign_test(64, 64) / 0x1p-63, 1, 1e-12);
  EXPECT_NEAR(sign_test(0, 64) / 0x1p-63, 1, 1e-12);
  EXPECT_NEAR(sign_test(9, 10), 2 * 11 / 1024.0, 1e-15);
  EXPECT_EQ(sign_test(5, 10), 1);
  EXPECT_EQ(sign_test(0, 0), 1);
  // What convicts: all of 41 draws, and 61 of the 64, but not 40 of 40.
  EXPECT_LT(sign_test(41, 41), kBiasAlarm / kBiasLooks);
  EXPECT_GT(sign_test(40, 40), kBiasAlarm / kBiasLooks);
}

const CheckResult* bias_of(const CaseResult& result, const std::string& tensor) {
  return check_named(result, "bias " + tensor);
}

/// mean along the last axis, of which `total` adds up a row.
template <class Total>
OpDef mean_with(Total total) {
  OpDef op = *find_op("mean");
  op.kernel.forward = [total](const kernels::KernelCall& call) {
    const std::vector<double> x = to_doubles(call.at("x"));
    const std::int64_t columns = call.at("x").shape.last();
    std::vector<double> y;
    for (std::size_t row = 0; columns > 0 && row < x.size(); row += static_cast<std::size_t>(columns)) {
      std::vector<float> terms(x.begin() + static_cast<std::ptrdiff_t>(row),
                               x.begin() + static_cast<std::ptrdiff_t>(row) + columns);
      y.push_back(static_cast<double>(total(terms)));
    }
    from_doubles(y, call.at("y"));
  };
  return op;
}

float toward(double exact, double where) {
  const auto near = static_cast<float>(exact);
  const bool beyond = where > exact ? static_cast<double>(near) < exact : static_cast<double>(near) > exact;
  return beyond ? std::nextafter(near, static_cast<float>(where)) : near;
}

/// Every addition rounded toward +-infinity.
OpDef directed(double where) {
  return mean_with([where](const std::vector<float>& terms) {
    float s = 0;
    for (const float t : terms) s = toward(static_cast<double>(s) + static_cast<double>(t), where);
    return s / static_cast<float>(terms.size());
  });
}

TEST(Bias, OfTruncatingAccumulatorsIsFound) {
  for (const Dtype dtype : {Dtype::fp32, Dtype::fp16, Dtype::bf16}) {
    const CaseResult mean = result_of(*find_op("mean.truncating"), dtype),
                     linear = result_of(*find_op("linear.truncating"), dtype);
    EXPECT_EQ(mean.code, Code::ac305) << name(dtype);
    EXPECT_TRUE(
        contains(bias_of(mean, "y")->cause, "toward zero: its accumulator truncates; at x[4,256] in 64 of 64 draws"))
        << bias_of(mean, "y")->cause;
    for (const char* tensor : {"y", "dx", "dweight"}) EXPECT_EQ(bias_of(linear, tensor)->code, Code::ac305) << tensor;
    EXPECT_EQ(bias_of(linear, "dbias")->code, Code::none) << "rounds to nearest";
  }
}

TEST(Bias, UpAndDownHasItsOwnWords) {
  for (const double where : {INFINITY, -INFINITY}) {
    const CaseResult result = result_of(directed(where), Dtype::bf16);
    EXPECT_EQ(result.code, Code::ac105);
    EXPECT_TRUE(contains(bias_of(result, "y")->cause, where > 0 ? "sums round up" : "sums round down"))
        << bias_of(result, "y")->cause;
  }
}

TEST(Bias, ValuesOutsideTheirIntervalAreLeftToTheJudge) {
  const CaseResult result = result_of(*find_op("linear.without_last_k"), Dtype::bf16);
  EXPECT_EQ(result.code, Code::ac101);
  EXPECT_EQ(bias_of(result, "y"), nullptr);
  EXPECT_NE(bias_of(result_of(*find_op("linear"), Dtype::bf16), "y"), nullptr);
}

TEST(Bias, NoneOfRightSumsInAnyOrder) {
  int seen = 0;
  for (const zoo::Specimen& specimen : zoo::specimens()) {
    const std::string op = specimen.name().substr(0, specimen.name().find('.'));
    if (!specimen.correct() || (op != "sum" && op != "mean" && op != "linear" && op != "conv2d")) continue;
    for (const Dtype dtype :
         op == "conv2d" ? std::vector{Dtype::bf16} : std::vector{Dtype::fp32, Dtype::fp16, Dtype::bf16}) {
      const CaseResult result = result_of(specimen.op, dtype);
      EXPECT_FALSE(convicts(result.verdict)) << specimen.name() << " " << name(dtype) << " " << result.code;
      for (const CheckResult& check : result.checks) {
        if (!check.name().starts_with("bias ")) continue;
        ++seen;
        EXPECT_EQ(check.code, Code::none) << specimen.name() << " " << check.name() << " " << name(dtype);
      }
    }
  }
  EXPECT_GT(seen, 120);
}

/// The running mean of Welford 1962: no sum, and no mirror; its roundings depend on C, which each draw has its own of.
TEST(Bias, NoneOfARunningMean) {
  const OpDef op = mean_with([](const std::vector<float>& terms) {
    float mean = 0, n = 0;
    for (const float t : terms) mean += (t - mean) / ++n;
    return mean;
  });
  int seen = 0;
  for (const Dtype dtype : {Dtype::fp32, Dtype::fp16, Dtype::bf16})
    for (std::uint64_t seed = 1; seed <= 5; ++seed) {
      const CaseResult result = result_of(op, dtype, seed);
      const CheckResult* bias = bias_of(result, "y");
      if (bias == nullptr) {
        EXPECT_TRUE(convicts(result.verdict))
            << name(dtype) << " " << seed;  // its values are outside: the judge has said it
        continue;
      }
      ++seen;
      EXPECT_EQ(bias->code, Code::none) << name(dtype) << " " << seed;
    }
  EXPECT_GE(seen, 5);
}

TEST(Bias, NoneOfSortedSums) {
  const OpDef op = mean_with([](std::vector<float> terms) {
    std::sort(terms.begin(), terms.end());
    float s = 0;
    for (const float t : terms) s += t;
    return s / static_cast<float>(terms.size());
  });
  for (const Dtype dtype : {Dtype::fp32, Dtype::fp16, Dtype::bf16})
    for (std::uint64_t seed = 1; seed <= 5; ++seed)
      EXPECT_EQ(bias_of(result_of(op, dtype, seed), "y")->code, Code::none) << name(dtype) << " " << seed;
}

/// Another order at each call: no bias where the contract allows it, and seen where it does not, even behind 16 bits.
TEST(Bias, OrdersThatChangeAreNone) {
  OpDef op = *find_op("sum.atomics");
  for (const Dtype dtype : {Dtype::fp32, Dtype::fp16, Dtype::bf16}) {
    op.signature.precision.atomics = false;
    const CaseResult undeclared = result_of(op, dtype);
    EXPECT_EQ(undeclared.code, Code::ac404) << name(dtype);
    op.signature.precision.atomics = true;
    std::int64_t most = 0;
    for (std::uint64_t seed = 1; seed <= 5; ++seed) {
      const CaseResult declared = result_of(op, dtype, seed);
      EXPECT_FALSE(convicts(declared.verdict)) << name(dtype) << " " << declared.code;
      most = std::max(most, bias_of(declared, "y")->compared);
    }
    EXPECT_EQ(most, kBiasDraws * 4) << "where the orders show, the test is made";
  }
}

/// A buffer that is added to: the order of an embedding's gradient shows behind 16 bits too, and its truncation.
TEST(Bias, OfGradientsThatAccumulate) {
  for (const Dtype dtype : {Dtype::fp32, Dtype::fp16, Dtype::bf16}) {
    EXPECT_EQ(result_of(*find_op("embedding.atomics"), dtype).code, Code::ac404) << name(dtype);
    const CaseResult right = result_of(*find_op("embedding"), dtype);
    ASSERT_NE(bias_of(right, "dweight"), nullptr);
    EXPECT_FALSE(convicts(right.verdict)) << right.code;
    OpDef truncating = *find_op("embedding");
    truncating.kernel.backward = [](const kernels::KernelCall& call) {
      const std::vector<double> index = to_doubles(call.at("index")), dy = to_doubles(call.at("dy"));
      std::vector<double> sums = to_doubles(call.at("dweight"));
      const auto columns = static_cast<std::size_t>(call.at("dweight").shape.last());
      for (std::size_t i = 0; i < dy.size(); ++i) {
        double& s = sums[static_cast<std::size_t>(index[i / columns]) * columns + i % columns];
        s = static_cast<double>(toward(s + dy[i], 0));
      }
      from_doubles(sums, call.at("dweight"));
    };
    EXPECT_EQ(result_of(truncating, dtype).code, Code::ac305) << name(dtype);
  }
}

/// A kernel that refuses the long shape is not tested, and whoever reads the report sees why.
TEST(Bias, OfAKernelThatRefusesLongRowsIsSaidToBeUntested) {
  OpDef op = *find_op("mean");
  const kernels::KernelFn whole = op.kernel.forward;
  op.kernel.forward = [whole](const kernels::KernelCall& call) {
    if (call.at("x").shape.last() > 100) throw Error("[mean] columns, got more than 100, want 100 at most");
    whole(call);
  };
  const CaseResult result = result_of(op, Dtype::bf16);
  EXPECT_FALSE(convicts(result.verdict)) << result.code;
  const CheckResult* const untested = bias_of(result, "along D");
  ASSERT_NE(untested, nullptr);
  EXPECT_EQ(untested->verdict, Verdict::skipped);
  EXPECT_TRUE(contains(untested->note, "'mean(x=bf16[4,256],seed=1)': [mean] columns, got more than 100"))
      << untested->note;
  EXPECT_EQ(untested_bias({result, result}), std::vector<std::string>{"mean: " + untested->note});
  EXPECT_TRUE(untested_bias({result_of(*find_op("mean"), Dtype::bf16)}).empty());
  const Report report = run_cases({{&op, default_call(op.signature, Dtype::bf16)}}, {});
  EXPECT_EQ(report.notes, std::vector<std::string>{"mean: " + untested->note});
}

/// Only sums whose terms all have one power of two as a factor are mirrored; softmax and the gradient of a norm's
/// weight are none.
TEST(Bias, IsLookedForInPlainSumsAlone) {
  for (const char* op : {"softmax", "rms_norm", "attention", "mse_loss", "add", "gelu"}) {
    const CaseResult result = result_of(*find_op(op), Dtype::bf16);
    for (const CheckResult& check : result.checks)
      EXPECT_FALSE(check.name().starts_with("bias ")) << op << " " << check.name();
  }
  const CaseResult norm = result_of(*find_op("layer_norm"), Dtype::bf16);
  EXPECT_NE(bias_of(norm, "dbias"), nullptr);
  EXPECT_EQ(bias_of(norm, "dweight"), nullptr);
}

}  // namespace
}  // namespace ampcheck::checks
