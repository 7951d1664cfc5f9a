// SPDX-License-Identifier: Apache-2.0
// The error of a result in words: where a constant factor comes from, and where in the tensor the wrong elements stand.
// Each is said of a kernel that is wrong so, and not of one that is wrong nearby.
#include "checks/explain/places.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "checks/case/case_run.h"
#include "checks/run/runner.h"
#include "reference/text/formula_text.h"
#include "src/rounding.h"
#include "tests/support/run_program.h"

namespace ampcheck::checks {
namespace {

using testing::contains;

/// y = exp(x) of [N, D], then `spoiled`: of the index of each element, and the value due there, what is written.
using Spoiled = std::function<double(std::int64_t row, std::int64_t column, double due)>;

std::string cause_of(const std::string& x, const Spoiled& spoiled) {
  OpDef op;
  op.signature = {.name = "small",
                  .inputs = {{.name = "x", .dims = "N D", .differentiable = false}},
                  .outputs = {{.name = "y"}},
                  .dims = {{"N", {2, 3, 4}}, {"D", {3, 5, 7}}}};
  op.forms = {reference::form_from_text(op.signature, "formula", "y = exp(x)")};
  op.kernel.forward = [spoiled](const kernels::KernelCall& call) {
    std::vector<double> y = to_doubles(call.at("x"));
    const std::int64_t columns = call.at("x").shape.last();
    for (std::int64_t i = 0; i < std::ssize(y); ++i) {
      double& v = y[static_cast<std::size_t>(i)];
      v = spoiled(i / columns, i % columns, std::exp(v));
    }
    round_values(format(call.at("y").dtype), RoundingMode{}, y, y);
    from_doubles(y, call.at("y"));
  };
  op.kernel.backward = [](const kernels::KernelCall&) {};
  const CaseResult result = run_case(op, parse_call("small(x=" + x + ",seed=1)", op.signature), {});
  const CheckResult* const check = deciding_check(result);
  return check == nullptr || check->code == Code::none ? "nothing found" : check->cause;
}

/// The factor alone; "" where nothing is said of where it comes from.
std::string origin_of(const std::string& x, double factor) {
  const std::string cause = cause_of(x, [factor](std::int64_t, std::int64_t, double due) { return factor * due; });
  const std::size_t at = cause.find(", which is ");
  return at == std::string::npos ? "" : cause.substr(at + 11, cause.find(';') - at - 11);
}

TEST(FactorCause, IsNamedByTheExtentThatItComesFrom) {
  EXPECT_EQ(cause_of("fp32[5,7]", [](std::int64_t, std::int64_t, double due) { return due; }), "nothing found");
  for (const char* x : {"fp32[5,7]", "bf16[5,7]", "fp16[5,7]"}) {
    EXPECT_EQ(origin_of(x, std::sqrt(7.0)), "sqrt(7), 7 being D") << x;
    EXPECT_EQ(origin_of(x, 1 / std::sqrt(7.0)), "1/sqrt(7), 7 being D") << x;
    EXPECT_EQ(origin_of(x, 7), "the extent of D") << x;
    EXPECT_EQ(origin_of(x, -0.2), "-1/5, 5 being N") << x;
    EXPECT_EQ(origin_of(x, 7.0 / 6), "7/6, 7 being D") << x;
    EXPECT_EQ(origin_of(x, 4.0 / 5), "4/5, 5 being N") << x;
    EXPECT_EQ(origin_of(x, 1.0 / 35), "1/35, 35 being D * N") << x;
    EXPECT_EQ(origin_of(x, std::log(2.0)), "ln 2") << x;
    EXPECT_EQ(origin_of(x, 1 / std::log(10.0)), "1/ln 10") << x;
    EXPECT_EQ(origin_of(x, 128), "2^7") << x;
  }
}

/// The sums of a long row spread the ratios, by less than tells them from another number.
TEST(FactorCause, IsNamedBehindLongSums) {
  const auto cause = [](double even, double odd) {
    OpDef op = *find_op("layer_norm");
    op.kernel.backward = [=, backward = op.kernel.backward](const kernels::KernelCall& call) {
      backward(call);
      std::vector<double> dx = to_doubles(call.at("dx"));
      for (std::size_t i = 0; i < dx.size(); ++i) dx[i] *= i % 2 == 0 ? even : odd;
      round_values(kFp32, RoundingMode{}, dx, dx);
      from_doubles(dx, call.at("dx"));
    };
    const CaseResult result = run_case(op, parse_call("layer_norm(x=fp32[3,1000],seed=1)", op.signature), {});
    const CheckResult* const check = deciding_check(result);
    return check == nullptr || check->code == Code::none ? "nothing found" : check->cause;
  };
  const double root = std::sqrt(1000.0);
  EXPECT_TRUE(cause(root, root).starts_with("off by a constant factor of 31.6228, which is sqrt(1000), 1000 being D"))
      << cause(root, root);
  EXPECT_FALSE(contains(cause(root, 2 * root), "constant factor")) << cause(root, 2 * root);
}

/// Near one of them, or one that several are, or none of the whole tensor.
TEST(FactorCause, IsNotNamedWhereNothingTellsWhichItIs) {
  EXPECT_EQ(origin_of("fp32[5,7]", std::sqrt(7.0) * (1 + 0x1p-16)), "");
  EXPECT_EQ(origin_of("fp32[5,7]", 2), "");
  EXPECT_EQ(origin_of("fp32[5,7]", 1.3), "");
  EXPECT_EQ(origin_of("fp32[6,6]", 1.0 / 6), "1/6, 6 being D or N");
  EXPECT_EQ(origin_of("fp32[3,1024]", 32), "sqrt(1024), 1024 being D or 2^5");
  EXPECT_EQ(origin_of("fp32[2,4]", 2), "");  // N, sqrt(D) or 2^1
  EXPECT_EQ(
      cause_of("fp32[5,7]", [](std::int64_t row, std::int64_t, double due) { return row == 1 ? due * 1.25 : due; }),
      "off by a constant factor of 1.25; only in row 1");
}

struct Pattern {
  const char *name, *x;
  bool (*wrong)(std::int64_t row, std::int64_t column);
  const char* words;
};
void PrintTo(const Pattern& pattern, std::ostream* out) { *out << pattern.name; }

const Pattern kPatterns[] = {
    {"every_fourth_column", "fp32[5,16]", [](std::int64_t, std::int64_t c) { return c % 4 == 1; },
     "only in every 4th column from 1 on"},
    {"two_columns", "fp32[5,7]", [](std::int64_t, std::int64_t c) { return c % 4 == 1; },
     "only in columns 1 and 5, as of every 4th column"},
    {"every_other_row", "bf16[6,7]", [](std::int64_t r, std::int64_t) { return r % 2 == 1; },
     "only in every 2nd row from 1 on"},
    {"every_third_row", "fp32[9,4]", [](std::int64_t r, std::int64_t) { return r % 3 == 0; },
     "only in every 3rd row from 0 on"},
    {"every_eighth_element", "fp32[5,7]", [](std::int64_t r, std::int64_t c) { return (7 * r + c) % 9 == 5; },
     "only in every 9th element from 5 on"},
    {"checkerboard", "fp32[5,8]", [](std::int64_t r, std::int64_t c) { return (r + c) % 2 == 1; },
     "only where row + column is odd: every other element, as of a checkerboard"},
    {"full_vectors", "fp32[3,67]", [](std::int64_t, std::int64_t c) { return c < 64; },
     "only in full vectors of 4: the tail behind them is right"},
    {"diagonal", "fp32[5,7]", [](std::int64_t r, std::int64_t c) { return r == c; }, "only on the diagonal"},
    {"above_the_diagonal", "fp16[6,6]", [](std::int64_t r, std::int64_t c) { return c > r; },
     "only above the diagonal: the upper triangle"},
    {"up_to_the_diagonal", "fp32[6,6]", [](std::int64_t r, std::int64_t c) { return c <= r; },
     "only on and below the diagonal: the lower triangle"},
    {"tile", "fp32[6,7]", [](std::int64_t r, std::int64_t c) { return r >= 2 && r < 4 && c >= 1 && c < 5; },
     "only in rows 2 to 3 of columns 1 to 4: a tile"},
    {"columns", "fp32[6,9]", [](std::int64_t, std::int64_t c) { return c >= 2 && c < 5; }, "only in columns 2 to 4"},
};

class Places : public ::testing::TestWithParam<Pattern> {};
INSTANTIATE_TEST_SUITE_P(Cause, Places, ::testing::ValuesIn(kPatterns),
                         [](const auto& info) { return std::string(info.param.name); });

/// Scaled there, and zero there; with one more wrong element, or with two of three right ones inside, it is not that
/// pattern.
TEST_P(Places, AreNamedWhereTheyTellWrongFromRight) {
  const Pattern& p = GetParam();
  const auto only = [&](double factor) {
    return cause_of(p.x,
                    [&](std::int64_t r, std::int64_t c, double due) { return p.wrong(r, c) ? factor * due : due; });
  };
  EXPECT_TRUE(only(1.25).starts_with("off by a constant factor of 1.2") &&
              only(1.25).ends_with(fmt::format("; {}", p.words)))
      << only(1.25);
  EXPECT_TRUE(contains(only(0), p.words)) << only(0);
  bool one_more = true;
  const std::string besides = cause_of(p.x, [&](std::int64_t r, std::int64_t c, double due) {
    const bool more = one_more && !p.wrong(r, c) && r > 0 && c > 0;
    one_more &= !more;
    return p.wrong(r, c) || more ? 1.25 * due : due;
  });
  EXPECT_FALSE(contains(besides, p.words)) << besides;
  int of_them = 0;
  const std::string some = cause_of(p.x, [&](std::int64_t r, std::int64_t c, double due) {
    return p.wrong(r, c) && of_them++ % 3 == 0 ? 1.3 * due : due;
  });
  EXPECT_FALSE(contains(some, p.words)) << some;
}

/// Of few columns the last may be wrong for another reason than being a tail, and a result that is all zero says
/// nothing of how it came about.
TEST(PlaceCause, SaysNoMoreThanTheNumbersDo) {
  const auto last = [](const std::string& x, std::int64_t column) {
    return cause_of(x, [column](std::int64_t, std::int64_t c, double due) { return c == column ? 1.3 * due : due; });
  };
  EXPECT_EQ(last("fp32[5,3]", 2), "off by a constant factor of 1.3; only in the last column");
  EXPECT_EQ(last("fp32[5,9]", 8), "off by a constant factor of 1.3; only in the last column: the tail of each row");
  EXPECT_EQ(cause_of("fp32[5,7]", [](std::int64_t, std::int64_t, double) { return 0.0; }),
            "all of it is zero: nothing is added up or written, or all of it is a tail, behind the last full vector or "
            "block");
  EXPECT_EQ(cause_of("fp32[3,3]",
                     [](std::int64_t r, std::int64_t c, double due) { return r == c && r < 2 ? 1.3 * due : due; })
                .find("diagonal"),
            std::string::npos);
}

/// Sums of few digits do not spare three columns of four.
TEST(PlaceCause, EveryFourthColumnIsNoShortAccumulator) {
  OpDef op = *find_op("layer_norm");
  op.kernel.backward = [backward = op.kernel.backward](const kernels::KernelCall& call) {
    backward(call);
    std::vector<double> dx = to_doubles(call.at("dx"));
    for (std::size_t i = 1; i < dx.size(); i += 4) dx[i] *= 1 + 0x1p-7;
    round_values(kFp32, RoundingMode{}, dx, dx);
    from_doubles(dx, call.at("dx"));
  };
  const CaseResult result = run_case(op, parse_call("layer_norm(x=fp32[3,1024],seed=1)", op.signature), {});
  const CheckResult* const check = deciding_check(result);
  ASSERT_NE(check, nullptr);
  EXPECT_EQ(check->code, Code::ac101);
  EXPECT_TRUE(contains(check->cause, "only in every 4th column from 1 on")) << check->cause;
}

}  // namespace
}  // namespace ampcheck::checks
