// SPDX-License-Identifier: Apache-2.0
// Aimed cases: a kernel that is wrong in a corner of its formula that ordinary data does not reach is convicted there,
// and one that is right stays clean; what nobody can reach is said.
#include "checks/reach/aim.h"

#include <gtest/gtest.h>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "checks/data/regimes.h"
#include "checks/doors/plugin.h"
#include "checks/reach/preimage.h"
#include "checks/run/runner.h"
#include "src/error.h"
#include "src/rounding.h"
#include "tests/support/custom_op_list.h"
#include "tests/support/run_program.h"

namespace ampcheck::checks {
namespace {

using testing::ampcheck;
using testing::contains;
using testing::ProgramResult;

const std::string kLibrary = custom_op_folder() + "aimed.so ";

OpSignature two_inputs(Domain domain = Domain::any) {
  OpSignature s;
  s.name = "pair";
  s.inputs = {{.name = "x", .dims = "N D", .domain = domain},
              {.name = "w", .dims = "D", .role = Role::weight},
              {.name = "i", .dims = "N", .role = Role::index, .type = TypeRule::i64, .index_dim = "D"}};
  s.outputs = {{"y"}};
  s.dims = {{"N", {5, 16, 2}}, {"D", {7, 33, 129}}};
  return s;
}

std::vector<double> drawn(const OpSignature& signature, const std::string& range, const char* input,
                          Dtype storage = Dtype::fp32) {
  OpCall call = default_call(signature, storage);
  call.dims = {{"N", 20}, {"D", 30}};
  call.range = range;
  return input_values(signature, call, *signature.input(input));
}

TEST(AimedRange, ItsNameIsAllThatItTakes) {
  const OpSignature s = two_inputs();
  const std::vector<AimedInput> aims = {{"x", -2.5, 1e9}, {"w", 0.125, 0.125}};
  const std::string name = aimed_range(aims);
  EXPECT_EQ(name, "aimed:x@-2.5..1000000000:w@0.125..0.125");
  const std::vector<AimedInput> again = parse_aimed_range(s, name);
  ASSERT_EQ(again.size(), 2u);
  for (std::size_t i = 0; i < 2; ++i)
    EXPECT_TRUE(again[i].input == aims[i].input && again[i].low == aims[i].low && again[i].high == aims[i].high);
  OpCall call = default_call(s, Dtype::bf16);
  call.range = name;
  EXPECT_EQ(parse_call(call.str(s), s).range, name);
  for (const char* wrong : {"aimed:", "aimed:x", "aimed:x@1", "aimed:x@2..1", "aimed:x@1..inf", "aimed:x@1..2x",
                            "aimed:z@1..2", "aimed:i@1..2", "aimed:x@1..2:x@1..2", "aimed:x@1..2:"}) {
    call.range = wrong;
    EXPECT_THROW(require_regimes(s, call), Error) << wrong;
  }
}

TEST(AimedRange, DataLiesBetweenAndAtBothEnds) {
  const OpSignature s = two_inputs();
  for (const Dtype storage : {Dtype::fp32, Dtype::fp16, Dtype::bf16}) {
    const double step = 4 * format(storage).unit_roundoff();
    for (const auto& [low, high] : {std::pair(1.0, 2.0), std::pair(-3.0, 5.0), std::pair(0x1p-10, 0x1p10),
                                    std::pair(-512.0, -0.25), std::pair(7.0, 7.0)}) {
      const std::vector<double> x = drawn(s, aimed_range({{"x", low, high}}), "x", storage);
      int at_low = 0, at_high = 0, below = 0, small = 0;
      for (const double v : x) {
        EXPECT_GE(v, low - std::fabs(low) * step);
        EXPECT_LE(v, high + std::fabs(high) * step);
        at_low += v == low;
        at_high += v == high;
        below += v < low;
        small += std::fabs(v) < 1;
      }
      EXPECT_GT(at_low, 0) << low;
      EXPECT_GT(at_high, 0) << high;
      EXPECT_GT(below, 0) << "a step beyond the end, where a condition turns";
      if (low == 0x1p-10) {
        EXPECT_GT(small, static_cast<int>(x.size()) / 4)
            << "over many binades small numbers are as likely as large ones";
      }
    }
  }
}

TEST(AimedRange, OtherInputsAreAsUsualAndDomainsHold) {
  const OpSignature s = two_inputs();
  const std::string range = "aimed:x@3..4";
  EXPECT_EQ(drawn(s, range, "w"), drawn(s, "normal", "w"));
  EXPECT_EQ(drawn(s, range, "i"), drawn(s, "normal", "i")) << "indices decide what is recorded";
  EXPECT_EQ(drawn(s, "aimed:x@3..4:w@0..1", "x"), drawn(s, range, "x")) << "each input by itself";
  for (const double v : drawn(two_inputs(Domain::positive), "aimed:x@-4..-3", "x")) EXPECT_GT(v, 0);
}

/// The pieces of x for a side of the last node of a formula of x and of constants.
std::optional<Pieces> pieces_of(const std::function<reference::Expr(reference::Expr)>& formula, bool yes) {
  reference::Graph graph;
  const reference::Expr x = graph.input("x", {2, 3}), condition = formula(x);
  return preimage_of_condition(graph, condition.id, yes, x.id, [&](int id) { return graph.node(id).value; });
}

void expect_pieces(const std::optional<Pieces>& got, const Pieces& want) {
  ASSERT_TRUE(got.has_value());
  ASSERT_EQ(got->size(), want.size());
  for (std::size_t i = 0; i < want.size(); ++i) {
    const auto near = [](double a, double b) { return a == b || std::fabs(a - b) <= 1e-9 * (1 + std::fabs(b)); };
    EXPECT_TRUE(near((*got)[i].first, want[i].first)) << (*got)[i].first << ", want " << want[i].first;
    EXPECT_TRUE(near((*got)[i].second, want[i].second)) << (*got)[i].second << ", want " << want[i].second;
  }
}

TEST(Preimage, ChainsOfPrimitivesGoBack) {
  using reference::Expr;
  const auto number = [](Expr x, double v) { return reference::constant(*x.graph, v); };
  const double inf = HUGE_VAL;
  expect_pieces(pieces_of([&](Expr x) { return less(abs(x - 1237.5), number(x, 2)); }, true), {{1235.5, 1239.5}});
  expect_pieces(pieces_of([&](Expr x) { return less(abs(x - 1237.5), number(x, 2)); }, false),
                {{-inf, 1235.5}, {1239.5, inf}});
  expect_pieces(pieces_of([&](Expr x) { return less(number(x, 300), x); }, true), {{300, inf}});
  expect_pieces(pieces_of([&](Expr x) { return less_equal(exp(2.0 * x + 1.0), number(x, std::exp(7.0))); }, false),
                {{3, inf}});
  expect_pieces(pieces_of([&](Expr x) { return less(1.0 / x, number(x, 0.5)); }, true), {{-inf, 0}, {2, inf}});
  expect_pieces(pieces_of([&](Expr x) { return less(square(x), number(x, 16)); }, false), {{-inf, -4}, {4, inf}});
  expect_pieces(pieces_of([&](Expr x) { return less(number(x, 5), sqrt(-x)); }, true), {{-inf, -25}});
  expect_pieces(pieces_of([&](Expr x) { return less(number(x, 2), maximum(x, number(x, 1))); }, true), {{2, inf}});
  expect_pieces(pieces_of([&](Expr x) { return less(number(x, 12), sum(x, 1)); }, true),
                {{4, inf}});  // three equal elements
  expect_pieces(pieces_of([&](Expr x) { return less(number(x, 4), mean(tanh(log(x)) + 4.0, 1)); }, true), {{1, inf}});
  expect_pieces(pieces_of([&](Expr x) { return less(number(x, 1), x) * less(x, number(x, 2)); }, true), {{1, 2}});
  expect_pieces(pieces_of([&](Expr x) { return 1.0 - less(number(x, 1), x) * less(x, number(x, 2)); }, true),
                {{-inf, 1}, {2, inf}});
  EXPECT_FALSE(pieces_of([&](Expr x) { return less(x * x, number(x, 2)); }, true).has_value()) << "x is read twice";
}

struct Corner {
  const char *right, *wrong, *words;
};
class AimedOps : public ::testing::TestWithParam<Corner> {};
INSTANTIATE_TEST_SUITE_P(
    All, AimedOps,
    ::testing::Values(
        Corner{"window", "window_wrong_inside",
               "abs(x - 1237.5) < 2 is never the case in the usual cases; further cases have x from 1235.5 to 1239.5"},
        Corner{
            "loud_rows", "loud_rows_wrong",
            "abs(mean(x) - 3000) < 500 is never the case in the usual cases; further cases have x from 2500 to 3500"},
        Corner{"pocket", "pocket_wrong_inside",
               "< 700.25 is never the case in the usual cases; further cases have x from "},
        Corner{
            "drowned", "drowned_half",
            "the term 1e-14 * (b * b) of y is below the rounding of the rest in the usual cases; further cases have b "
            "from "}),
    [](const auto& info) { return std::string(info.param.right); });

TEST_P(AimedOps, AreConvictedWhereOrdinaryDataDoesNotReach) {
  const OpDef& wrong = custom_op({"aimed.so", GetParam().wrong, ""});
  for (const Dtype storage : wrong.signature.precision.storage)
    for (const OpCall& call : cases_of(wrong.signature, storage, CaseSet::standard, 1))
      EXPECT_FALSE(convicts(run_case(wrong, call, {}).verdict)) << call.str(wrong.signature);
  const ProgramResult run = ampcheck("check " + kLibrary + GetParam().wrong);
  EXPECT_EQ(run.exit_code, 1) << run.out;
  EXPECT_TRUE(contains(run.out, "BUG  AC101")) << run.out;
  EXPECT_TRUE(contains(run.out, GetParam().words)) << run.out;
  const std::size_t at = run.out.find("  again   ampcheck ");
  ASSERT_NE(at, std::string::npos) << run.out;
  const std::string line = run.out.substr(at + 19, run.out.find('\n', at) - at - 19);
  EXPECT_TRUE(contains(line, "range=aimed:")) << line;
  const ProgramResult again = ampcheck(line);
  EXPECT_EQ(again.exit_code, 1) << again.out << again.err;
  const auto worst = [](const std::string& out) {
    return out.substr(out.find("  worst"), out.find("  cause") - out.find("  worst"));
  };
  EXPECT_EQ(worst(again.out), worst(run.out)) << "the name alone makes the data";
}

TEST_P(AimedOps, StayCleanWhereTheyAreRight) {
  for (const std::string seed : {"", " --seed 7"}) {
    const ProgramResult run = ampcheck("check " + kLibrary + GetParam().right + seed);
    EXPECT_EQ(run.exit_code, 0) << run.out << run.err;
    EXPECT_TRUE(contains(run.out, GetParam().words)) << run.out;
  }
}

TEST(Aim, WhatDataReachesIsConvictedWithoutAim) {
  const ProgramResult wrong = ampcheck("check " + kLibrary + "bend_wrong_beyond");
  EXPECT_EQ(wrong.exit_code, 1) << wrong.out;
  EXPECT_FALSE(contains(wrong.out, "range=aimed")) << wrong.out;
  EXPECT_EQ(ampcheck("check " + kLibrary + "bend").exit_code, 0);
}

TEST(Aim, WhatNothingReachesIsSaid) {  // neither side of a condition nor a rounding that is none
  const ProgramResult run = ampcheck("check " + kLibrary + "window --dtype bf16");
  EXPECT_EQ(run.exit_code, 0) << run.out;
  EXPECT_TRUE(contains(run.out,
                       "note: window: abs(x - 1237.5) < 2 is never the case with all data that was tried, so it was "
                       "not judged there (bf16); "))
      << run.out << "bf16 has no number in the window";
  EXPECT_TRUE(contains(run.out,
                       "note: window: the rounding of add, sub, mul makes less than 1 % of any interval with all data "
                       "that was tried (bf16); "))
      << run.out << "x / 2 is exact";
}

TEST(Aim, ChosenCasesAreAllThatRun) {
  for (const char* chosen : {"'window(x=fp32[5,7],seed=1)'", "window --shapes first"}) {
    const ProgramResult run = ampcheck("check " + kLibrary + chosen);
    EXPECT_FALSE(contains(run.out, "further cases have")) << run.out;
  }
}

std::vector<Case> standard_cases(const OpDef& op) {
  std::vector<Case> out;
  for (const Dtype storage : op.signature.precision.storage)
    for (OpCall& call : cases_of(op.signature, storage, CaseSet::standard, 1)) out.push_back({&op, std::move(call)});
  return out;
}

/// y = 1 + a + 1e-14 b^2, of which the kernel rounds b^2 to bf16 if it is `rough`. b has no gradient, which would show
/// it.
OpDef quiet_square(const char* name, bool rough) {
  OpDef op;
  op.signature = {.name = name,
                  .inputs = {{.name = "a", .dims = "N D"}, {.name = "b", .dims = "N D", .differentiable = false}},
                  .outputs = {{.name = "y"}},
                  .dims = {{"N", {5, 16, 2}}, {"D", {7, 33, 129}}},
                  .precision = {.storage = {Dtype::fp32}}};
  op.forms = {
      {"1 + a + 1e-14 b^2", [](reference::FormulaCall& c) { c.output("y", 1.0 + c["a"] + 1e-14 * square(c["b"])); }}};
  op.kernel.forward = [rough](const kernels::KernelCall& call) {
    const std::vector<double> a = to_doubles(call.at("a")), b = to_doubles(call.at("b"));
    std::vector<double> y(a.size());
    for (std::size_t i = 0; i < y.size(); ++i) {
      const float squared = static_cast<float>(b[i]) * static_cast<float>(b[i]);
      const float kept =
          rough ? static_cast<float>(decode_scalar(format(Dtype::bf16), encode_scalar(format(Dtype::bf16), squared)))
                : squared;
      y[i] = 1 + static_cast<float>(a[i]) + 1e-14f * kept;
    }
    from_doubles(y, call.at("y"));
  };
  op.kernel.backward = [](const kernels::KernelCall& call) { from_doubles(to_doubles(call.at("dy")), call.at("da")); };
  return op;
}

Report check_and_aim(const OpDef& op) {
  RunOptions options;
  options.aim = options.brief = true;
  return run_cases(standard_cases(op), options);
}

TEST(Aim, ARoundingThatNeverCountsIsSoughtWhereItDoes) {
  const OpDef right = quiet_square("quiet_square", false), rough = quiet_square("rough_square", true);
  for (const Case& item : standard_cases(rough))
    EXPECT_FALSE(convicts(run_case(rough, item.call, {}).verdict)) << item.call.str(rough.signature);
  const Report clean = check_and_aim(right), found = check_and_aim(rough);
  const auto failed = [](const Report& report) {
    return std::ranges::count_if(report.cases, [](const CaseResult& r) { return convicts(r.verdict); });
  };
  EXPECT_EQ(failed(clean), 0);
  EXPECT_GT(failed(found), 0);
  const auto told = [](const Report& report) {
    return std::ranges::count_if(report.notes, [](const std::string& note) {
      return contains(
          note,
          "the rounding of square makes less than 1 % of any interval in the usual cases; further cases have b from ");
    });
  };
  EXPECT_EQ(told(clean), 1) << fmt::format("{}", fmt::join(clean.notes, "\n"));
  EXPECT_EQ(told(found), 1);
}

std::vector<std::string> names_of(const std::vector<Aimed>& aimed) {
  std::vector<std::string> out;
  for (const Aimed& one : aimed)
    for (const OpCall& call : one.calls) out.push_back(call.str(one.op->signature));
  return out;
}

TEST(Aim, OpsThatAreSeenWholeRunNothingMore) {
  for (const OpDef& op : all_ops()) {
    const std::vector<std::string> more = names_of(aimed_cases(standard_cases(op), nullptr));
    if (op.signature.name == "layer_norm" || op.signature.name == "rms_norm") {
      for (const std::string& name : more)
        EXPECT_TRUE(contains(name, "eps=1e-12,range=aimed:x@"))
            << name << ": beside ordinary fp16 data that eps is nothing";
      EXPECT_FALSE(more.empty()) << op.signature.name;
    } else {
      EXPECT_TRUE(more.empty()) << more.front();
    }
  }
}

TEST(Aim, ShiftsThatCancelAreNoTerms) {
  OpDef op;
  op.signature = {.name = "plain_softmax",
                  .inputs = {{.name = "x", .dims = "N D"}},
                  .outputs = {{.name = "y"}},
                  .dims = {{"N", {5, 16, 2}}, {"D", {7, 33, 129}}}};
  op.forms = {{"with the maximum", [](reference::FormulaCall& c) {
                 const reference::Expr e = exp(c["x"] - max(c["x"], -1));
                 c.output("y", e / sum(e, -1));
               }}};
  const std::vector<Aimed> aimed = aimed_cases(standard_cases(op), nullptr);
  EXPECT_TRUE(names_of(aimed).empty());
  EXPECT_TRUE(aimed_notes(aimed, true).empty()) << aimed_notes(aimed, true).front();
}

TEST(Aim, ThreadsChangeNothing) {
  const OpDef& op = custom_op({"aimed.so", "drowned", ""});
  const testing::TemporaryFolder folder;
  const auto with = [&](int jobs) {
    ampcheck("check " + kLibrary + "'*' --jobs " + std::to_string(jobs) + " -o lines:" + folder.path() + "/lines");
    return testing::read_text(folder.path() + "/lines");
  };
  const std::string one = with(1);
  EXPECT_TRUE(contains(one, "range=aimed:")) << one.substr(0, 2000);
  EXPECT_EQ(one, with(4));
  EXPECT_EQ(names_of(aimed_cases(standard_cases(op), nullptr)), names_of(aimed_cases(standard_cases(op), nullptr)));
}

TEST(Brief, EveryOpOfASelectionNamesItsSmallerCase) {
  const ProgramResult run = ampcheck("check 'softmax.*' --dtype fp32 --regimes quick");
  for (const char* last : {"overrun", "clobbers_cotangent", "nonlinear", "order_by_place"}) {
    const std::size_t at = run.out.find(std::string("  softmax.") + last + " "),
                      finding = run.out.find(std::string("softmax.") + last, at + 20);
    ASSERT_NE(finding, std::string::npos) << last << run.out;
    const std::size_t end = run.out.find("  again ", finding);
    EXPECT_NE(run.out.substr(finding, end - finding).find("  smallest failing case: 'softmax."), std::string::npos)
        << run.out.substr(finding, end - finding);
  }
}

}  // namespace
}  // namespace ampcheck::checks
