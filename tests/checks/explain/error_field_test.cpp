// SPDX-License-Identifier: Apache-2.0
// What the error of a whole matrix shows, said of a kernel that is wrong so and of none that is wrong nearby.
#include "checks/explain/error_field.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "checks/run/runner.h"
#include "reference/text/formula_text.h"
#include "src/rounding.h"
#include "tests/support/run_program.h"

namespace ampcheck::checks {
namespace {

using testing::contains;
using Values = std::vector<double>;

/// What a kernel of y [N, M] of x [N, K] and w [M, K] makes of x, w and the right y.
using Kernel = std::function<Values(const Values& x, const Values& w, Values y, std::size_t k, std::size_t m)>;

std::string cause_of(const std::string& call, const char* formula, const Kernel& kernel) {
  OpDef op;
  op.signature = {.name = "small",
                  .inputs = {{.name = "x", .dims = "N K", .differentiable = false},
                             {.name = "w", .dims = "M K", .differentiable = false}},
                  .outputs = {{.name = "y", .dims = "N M"}},
                  .dims = {{"N", {2, 3, 4}}, {"K", {3, 5, 7}}, {"M", {3, 5, 7}}}};
  op.forms = {reference::form_from_text(op.signature, "formula", formula)};
  op.kernel.forward = [kernel](const kernels::KernelCall& tensors) {
    const Values x = to_doubles(tensors.at("x")), w = to_doubles(tensors.at("w"));
    const auto k = static_cast<std::size_t>(tensors.at("x").shape.last()), m = w.size() / k, n = x.size() / k;
    Values y(n * m, 0.0);
    for (std::size_t i = 0; i < y.size(); ++i)
      for (std::size_t j = 0; j < k; ++j) y[i] += x[i / m * k + j] * w[i % m * k + j];
    y = kernel(x, w, std::move(y), k, m);
    round_values(format(tensors.at("y").dtype), RoundingMode{}, y, y);
    from_doubles(y, tensors.at("y"));
  };
  op.kernel.backward = [](const kernels::KernelCall&) {};
  const CaseResult result = run_case(op, parse_call("small(" + call + ",seed=1)", op.signature), {});
  const CheckResult* const check = deciding_check(result);
  return check == nullptr || check->code == Code::none ? "nothing found" : check->cause;
}

std::string of_matmul(const std::string& call, const Kernel& kernel) {
  return cause_of(call, "y = matmul(x, w, transpose_b=1)", kernel);
}

constexpr const char* kSquare = "x=fp32[6,9],w=fp32[6,9]";
constexpr const char* kWide = "x=fp32[5,9],w=fp32[8,9]";

TEST(ErrorFieldCause, ATransposedResultIsNamed) {
  for (const char* call : {kSquare, kWide, "x=bf16[6,9],w=bf16[6,9]"}) {
    EXPECT_EQ(
        of_matmul(call, [](const Values&, const Values&, const Values& y, std::size_t, std::size_t) { return y; }),
        "nothing found")
        << call;
    const std::string named =
        of_matmul(call, [](const Values&, const Values&, const Values& y, std::size_t, std::size_t m) {
          Values out;
          for (std::size_t i = 0; i < y.size(); ++i) out.push_back(y[i % (y.size() / m) * m + i / (y.size() / m)]);
          return out;
        });
    EXPECT_EQ(named, contains(call, "[8") ? "transposed: written column by column, not row by row"
                                          : "transposed: each element is the one due at its row and column exchanged")
        << call;
  }
  const std::string reversed = of_matmul(kSquare, [](const Values&, const Values&, const Values& y, std::size_t,
                                                     std::size_t) { return Values(y.rbegin(), y.rend()); });
  EXPECT_NE(reversed, "nothing found");
  EXPECT_FALSE(contains(reversed, "transposed")) << reversed;
}

TEST(ErrorFieldCause, AnErrorOfOneOuterProductIsNamed) {
  for (const char* call : {kWide, kSquare, "x=bf16[5,9],w=bf16[8,9]"}) {
    const auto with_terms = [&](double middle, double first) {
      return of_matmul(call, [=](const Values& x, const Values& w, Values y, std::size_t k, std::size_t m) {
        for (std::size_t i = 0; i < y.size(); ++i)
          y[i] += middle * x[i / m * k + k / 2] * w[i % m * k + k / 2] + first * x[i / m * k] * w[i % m * k];
        return y;
      });
    };
    for (const double term : {-1.0, 1.0, 0.25})
      EXPECT_TRUE(with_terms(term, 0).starts_with("the error is one outer product ("))
          << call << " " << with_terms(term, 0);
    EXPECT_FALSE(contains(with_terms(-1, 1), "one outer product")) << call << " " << with_terms(-1, 1);
  }
  const std::string rows = of_matmul(kWide, [](const Values& x, const Values&, Values y, std::size_t k, std::size_t m) {
    for (std::size_t i = 0; i < y.size(); ++i) y[i] += x[i / m * k];
    return y;
  });
  EXPECT_TRUE(rows.starts_with("the error is one number per row")) << rows;
  const std::string columns =
      of_matmul(kWide, [](const Values&, const Values& w, Values y, std::size_t k, std::size_t m) {
        for (std::size_t i = 0; i < y.size(); ++i) y[i] += w[i % m * k];
        return y;
      });
  EXPECT_TRUE(columns.starts_with("the error is one number per column")) << columns;
  const std::string sums =
      of_matmul(kWide, [](const Values& x, const Values& w, Values y, std::size_t k, std::size_t m) {
        for (std::size_t i = 0; i < y.size(); ++i) {
          double a = 0, b = 0;
          for (std::size_t j = 0; j < k; ++j) {
            a += x[i / m * k + j];
            b += w[i % m * k + j];
          }
          y[i] = a * b;
        }
        return y;
      });
  EXPECT_TRUE(contains(sums, "with the sum along axis 1 in the place of each number of w")) << sums;
  const std::string products =  // that no change of the formula gives
      of_matmul(kWide, [](const Values& x, const Values& w, Values y, std::size_t k, std::size_t m) {
        for (std::size_t i = 0; i < y.size(); ++i) {
          double a = 0, b = 0;
          for (std::size_t j = 0; j < k; ++j) {
            a += std::sin(3 * x[i / m * k + j]) * static_cast<double>(j + 2);
            b += std::cos(5 * w[i % m * k + j]) + 0.3;
          }
          y[i] = a * b;
        }
        return y;
      });
  EXPECT_TRUE(contains(products, "the result is one outer product")) << products;
}

/// Where the result is such a product itself, any error of it is one; and one wrong row is none.
TEST(ErrorFieldCause, WhatAnyMatrixWouldShowIsNotNamed) {
  const std::string thin =
      of_matmul("x=fp32[5,1],w=fp32[8,1]", [](const Values&, const Values&, Values y, std::size_t, std::size_t) {
        for (double& v : y) v *= 1.5;
        return y;
      });
  EXPECT_FALSE(contains(thin, "outer product")) << thin;
  const std::string row = of_matmul(kWide, [](const Values& x, const Values&, Values y, std::size_t, std::size_t m) {
    for (std::size_t i = 0; i < m; ++i) y[i] += x[i];
    return y;
  });
  EXPECT_FALSE(contains(row, "outer product")) << row;
  EXPECT_TRUE(contains(row, "only in row 0")) << row;
}

TEST(ErrorFieldCause, ZerosAreNamedByTheSignThatTheyFollow) {
  const char* formula = "z = matmul(x, w, transpose_b=1); y = z * z + 1";
  const auto zero_if = [&](auto lost) {
    return cause_of("x=fp32[5,9],w=fp32[8,9]", formula,
                    [lost](const Values&, const Values&, Values y, std::size_t, std::size_t) {
                      for (std::size_t i = 0; i < y.size(); ++i) y[i] = lost(i, y[i]) ? 0 : y[i] * y[i] + 1;
                      return y;
                    });
  };
  const std::string negative = zero_if([](std::size_t, double z) { return z < 0; }),
                    positive = zero_if([](std::size_t, double z) { return z > 0; });
  EXPECT_TRUE(contains(negative, "zero where matmul(x, w) <= 0")) << negative;
  EXPECT_TRUE(contains(positive, "zero where matmul(x, w) >= 0")) << positive;
  const std::string some = zero_if([](std::size_t i, double) { return i * i % 5 == 1; });
  EXPECT_FALSE(contains(some, "zero where")) << some;
  EXPECT_NE(some, "nothing found");
}

}  // namespace
}  // namespace ampcheck::checks
