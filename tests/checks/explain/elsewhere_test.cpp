// SPDX-License-Identifier: Apache-2.0
// A departure of the whole kernel shows in every row of its size: one wrong row is none, and a kernel that departs
// everywhere stays one.
#include "checks/explain/elsewhere.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "checks/data/file_tensors.h"
#include "checks/run/dump.h"
#include "src/random.h"
#include "src/rounding.h"
#include "tests/support/run_program.h"

namespace ampcheck::checks {
namespace {

using testing::contains;
using Values = std::vector<double>;

Values normal(const char* name, std::size_t count, Dtype dtype) {
  const Random random(7, name);
  Values out(count);
  for (std::size_t i = 0; i < count; ++i) out[i] = random.normal(i);
  if (dtype != Dtype::fp64) round_values(format(dtype), RoundingMode{}, out, out);
  return out;
}

Tensor tensor(Dtype dtype, const Shape& shape, Values values) {
  Tensor out(dtype, shape);
  if (dtype != Dtype::fp64) round_values(format(dtype), RoundingMode{}, values, values);
  from_doubles(values, out.view());
  return out;
}

CheckResult decided(const TensorFile& dump, const std::string& formula) {
  const OpDef op = op_of_formula(dump, formula, {.storage = {}, .math = cuda_math()});
  OpCall call = file_call(op, data_of_file(dump), op.signature.precision.storage.front());
  require_file_call(op, call, true);
  const DumpResult found = judge_dump(op, call, dump);
  const CheckResult* const check = deciding_check(found.result);
  return check == nullptr ? CheckResult() : *check;
}

/// y = x w in fp16; `of`: of row and column the number due, and the error of a number of that size, what is written.
CheckResult product(std::int64_t n, std::int64_t k,
                    const std::function<double(std::int64_t row, double due, double noise)>& of, bool low = false) {
  const auto rows = static_cast<std::size_t>(n), inner = static_cast<std::size_t>(k);
  const Values x = normal("x", rows * inner, Dtype::fp16), w = normal("w", inner * rows, Dtype::fp16);
  Values y(rows * rows), noise = normal("noise", rows * rows, Dtype::fp64);
  for (std::size_t at = 0; at < inner; ++at) {
    for (std::size_t i = 0; i < rows; ++i)
      for (std::size_t j = 0; j < rows; ++j) y[i * rows + j] += x[i * inner + at] * w[at * rows + j];
    if (low) round_values(kFp16, RoundingMode{}, y, y);
  }
  for (std::size_t i = 0; i < y.size(); ++i) y[i] = of(static_cast<std::int64_t>(i / rows), y[i], noise[i]);
  return decided({"memory",
                  {{"x", tensor(Dtype::fp16, {n, k}, x)},
                   {"w", tensor(Dtype::fp16, {k, n}, w)},
                   {"y", tensor(Dtype::fp16, {n, n}, y)}}},
                 "y = x @ w");
}

double as_due(std::int64_t, double due, double) { return due; }

TEST(Elsewhere, AShortAccumulatorIsNotClaimedOfOneRow) {
  const auto one_row_off = [](std::int64_t row, double due, double) { return row == 37 ? 1.01 * due : due; };
  const auto noisy_row = [](std::int64_t row, double due, double noise) { return row == 37 ? due + noise : due; };
  for (const auto& [n, k] :
       {std::pair(std::int64_t{64}, std::int64_t{1024}), std::pair(std::int64_t{64}, std::int64_t{4096})}) {
    for (const std::function<double(std::int64_t, double, double)>& of :
         {std::function<double(std::int64_t, double, double)>(one_row_off), {noisy_row}}) {
      const CheckResult found = product(n, k, of);
      EXPECT_EQ(found.code, Code::ac101) << found.cause;
      EXPECT_FALSE(contains(found.cause, "accumulates")) << found.cause;
    }
    const CheckResult low = product(n, k, as_due, true);
    EXPECT_EQ(low.code, Code::ac301) << low.cause;
    EXPECT_TRUE(contains(low.cause, "accumulates in fp16")) << low.cause;
    EXPECT_EQ(product(n, k, as_due).code, Code::none);
  }
}

/// y = exp(x); `of`: of the row, the number due and a normal one what is written.
CheckResult exponential(Dtype dtype, const std::function<double(std::int64_t row, double due, double noise)>& of) {
  constexpr std::int64_t kRows = 64, kColumns = 128;
  const Values x = normal("x", kRows * kColumns, dtype), noise = normal("noise", kRows * kColumns, Dtype::fp64);
  Values y(x.size());
  for (std::size_t i = 0; i < y.size(); ++i)
    y[i] = of(static_cast<std::int64_t>(i) / kColumns, std::exp(x[i]), noise[i]);
  return decided({"memory", {{"x", tensor(dtype, {kRows, kColumns}, x)}, {"y", tensor(dtype, {kRows, kColumns}, y)}}},
                 "y = exp(x)");
}

TEST(Elsewhere, AFastFunctionIsNotClaimedOfOneRow) {
  const CheckResult one = exponential(Dtype::fp32, [](std::int64_t row, double due, double noise) {
    return row == 5 ? due * (1 + 1e-3 * noise) : due;
  });
  EXPECT_EQ(one.code, Code::ac101);
  EXPECT_EQ(one.cause, "only in row 5");
  const CheckResult all = exponential(
      Dtype::fp32, [](std::int64_t, double due, double noise) { return due * (1 + 1e-3 * std::sin(noise)); });
  EXPECT_EQ(all.code, Code::ac304);
  EXPECT_TRUE(contains(all.cause, "as of a fast or approximate exp")) << all.cause;
}

TEST(Elsewhere, AWayThroughFloatIsNotClaimedOfOneRow) {
  const auto through_float = [](double due) { return static_cast<double>(static_cast<float>(due)); };
  const CheckResult one = exponential(
      Dtype::fp64, [&](std::int64_t row, double due, double) { return row == 5 ? through_float(due) : due; });
  EXPECT_EQ(one.code, Code::ac101);
  EXPECT_EQ(one.cause, "only in row 5");
  const CheckResult noisy = exponential(Dtype::fp64, [&](std::int64_t row, double due, double noise) {
    return row == 5 ? due * (1 + 6e-8 * noise) : due;
  });
  EXPECT_EQ(noisy.code, Code::ac101);
  const CheckResult all =
      exponential(Dtype::fp64, [&](std::int64_t, double due, double) { return through_float(due); });
  EXPECT_EQ(all.code, Code::ac301);
  EXPECT_TRUE(contains(all.cause, "goes through float")) << all.cause;
}

/// A row whose numbers are larger than those of all others may be the only one in which a departure shows.
TEST(Elsewhere, ARowOfAnotherSizeIsNoWitness) {
  constexpr std::int64_t kRows = 64, kColumns = 128;
  Values x = normal("x", kRows * kColumns, Dtype::fp32);
  for (std::int64_t j = 0; j < kColumns; ++j) x[static_cast<std::size_t>(5 * kColumns + j)] *= 8;
  round_values(kFp32, RoundingMode{}, x, x);
  Values y(x.size());
  for (std::size_t i = 0; i < y.size(); ++i)
    y[i] = std::exp(x[i]) * (std::fabs(x[i]) > 6 ? 1 + 1e-3 * std::sin(37 * x[i]) : 1);
  const CheckResult found = decided(
      {"memory", {{"x", tensor(Dtype::fp32, {kRows, kColumns}, x)}, {"y", tensor(Dtype::fp32, {kRows, kColumns}, y)}}},
      "y = exp(x)");
  EXPECT_NE(found.cause, "only in row 5") << "it says where the function goes wrong";
}

}  // namespace
}  // namespace ampcheck::checks
