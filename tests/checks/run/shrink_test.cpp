// SPDX-License-Identifier: Apache-2.0
// A failing case is brought down to the smallest that fails alike, and what explains the first failing cases explains
// those like them.
#include "checks/run/shrink.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "checks/data/regimes.h"
#include "checks/run/runner.h"
#include "checks/run/shrink_values.h"
#include "checks/zoo/planted.h"
#include "tests/support/run_program.h"

namespace ampcheck::checks {
namespace {

using testing::contains;

/// A result that fails with this code on the gradient of x, or not at all.
CaseResult outcome(const OpDef& op, const OpCall& call, bool fails, Code code = Code::ac101,
                   const CheckId& check = {.kind = CheckId::Kind::backward, .tensor = "dx", .probe = 0}) {
  CaseResult out;
  out.name = call.str(op.signature);
  out.op = op.signature.name;
  out.dtype = name(call.storage);
  CheckResult result;
  result.id = check;
  if (fails) {
    result.find(code);
    out.code = code;
    out.verdict = result.verdict;
  }
  out.checks.push_back(result);
  return out;
}

const OpDef& softmax() { return *find_op("softmax"); }

OpCall large() {
  return parse_call("softmax(x=bf16[64,129],range=spike,cotangent=zero_sum,layout=padded,seed=7)", softmax().signature);
}

std::string smallest(const RunOne& run, const CaseResult& result) {
  const auto found = shrink(softmax(), large(), result, run);
  return found ? found->str(softmax().signature) : "";
}

TEST(Shrink, FindsTheSmallestShape) {
  const CaseResult first = outcome(softmax(), large(), true);
  int runs = 0;
  const auto wide = [&](const OpDef& op, const OpCall& call) {
    ++runs;
    return outcome(op, call, call.dims.at("D") >= 13);
  };
  EXPECT_EQ(smallest(wide, first), "softmax(x=bf16[1,13],range=zeros,cotangent=ones,seed=7)");
  EXPECT_LE(runs, 30);
  const auto spiked = [&](const OpDef& op, const OpCall& call) {
    return outcome(op, call, call.range == "spike" && call.dims.at("N") >= 2);
  };
  EXPECT_EQ(smallest(spiked, first), "softmax(x=bf16[2,1],range=spike,cotangent=ones,seed=7)");
  const auto padded = [&](const OpDef& op, const OpCall& call) {
    return outcome(op, call, call.layout == "padded" && call.dims.at("D") * call.dims.at("N") > 5);
  };
  EXPECT_EQ(smallest(padded, first), "softmax(x=bf16[6,1],range=zeros,cotangent=ones,layout=padded,seed=7)");
}

TEST(Shrink, KeepsToTheSameFailure) {
  const CaseResult first = outcome(softmax(), large(), true);
  EXPECT_EQ(smallest([&](const OpDef& op, const OpCall& call) { return outcome(op, call, false); }, first), "");
  EXPECT_EQ(smallest([&](const OpDef& op, const OpCall& call) { return outcome(op, call, true, Code::ac102); }, first),
            "")
      << "NaN is another failure";
  EXPECT_EQ(smallest(
                [&](const OpDef& op, const OpCall& call) {
                  return outcome(op, call, true, Code::ac101, {CheckId::Kind::forward, "y"});
                },
                first),
            "")
      << "so is the forward";
  EXPECT_NE(smallest([&](const OpDef& op, const OpCall& call) { return outcome(op, call, true, Code::ac301); }, first),
            "")
      << "wrong numbers, explained";
  EXPECT_EQ(smallest(
                [&](const OpDef& op, const OpCall& call) -> CaseResult {
                  throw Error("[" + op.signature.name + "] no such shape " + call.str(op.signature));
                },
                first),
            "");
}

TEST(Shrink, StopsAfterSomeRuns) {
  int runs = 0;
  const auto never = [&](const OpDef& op, const OpCall& call) {
    ++runs;
    return outcome(op, call, call.dims.at("D") >= 100 && call.dims.at("N") >= 50);
  };
  shrink(softmax(), large(), outcome(softmax(), large(), true), never, 5);
  EXPECT_EQ(runs, 5);
}

/// The kernels themselves: what is found fails, and whatever is smaller in either extent does not.
TEST(Shrink, OfAKernelThatDropsItsTail) {
  const OpDef& op = *find_op("softmax.dropped_tail");
  const OpCall call = parse_call("softmax.dropped_tail(x=fp32[64,129],seed=1)", op.signature);
  const CaseResult result = run_case(op, call, {});
  ASSERT_TRUE(convicts(result.verdict));
  const RunOne run = [](const OpDef& of, const OpCall& at) { return run_case(of, at, {}); };
  const auto small = shrink(op, call, result, run);
  ASSERT_TRUE(small);
  EXPECT_LE(small->dims.at("N") * small->dims.at("D"), 9);
  EXPECT_TRUE(fails_alike(result, run_case(op, *small, {})));
}

/// y = x x and dx = 2 x dy, but for what `wrong` makes of the forward (x, y) or backward (x, dx).
OpDef square_but(const char* where,
                 const std::function<void(const std::vector<double>& x, std::vector<double>& out)>& wrong,
                 int* launches = nullptr) {
  OpDef op;
  op.signature = {.name = "squared",
                  .inputs = {{.name = "x", .dims = "N D"}},
                  .outputs = {{.name = "y"}},
                  .dims = {{"N", {2, 3, 4}}, {"D", {3, 5, 7}}}};
  op.forms = {{"square", [](reference::FormulaCall& c) { c.output("y", reference::square(c["x"])); }}};
  const auto kernel = [=](const std::string& to) {
    return [=](const kernels::KernelCall& call) {
      const std::vector<double> x = to_doubles(call.at("x"));
      std::vector<double> out = to == "y" ? x : to_doubles(call.at("dy"));
      for (std::size_t i = 0; i < x.size(); ++i)
        out[i] = static_cast<double>(static_cast<float>(x[i] * out[i]) * (to == "y" ? 1.0f : 2.0f));
      if (launches != nullptr) ++*launches;
      if (to == where) wrong(x, out);
      from_doubles(out, call.at(to));
    };
  };
  op.kernel.forward = kernel("y");
  op.kernel.backward = kernel("dx");
  return op;
}

std::string values_of(const OpDef& op, const std::string& name, int most_tries = 40) {
  const OpCall call = parse_call(name, op.signature);
  RunOptions options;
  options.relations = false;
  return values_that_matter(op, call, run_case(op, call, options), options, most_tries);
}

/// Wrong at one element alone: that one is named, after a number of launches that grows with the logarithm of the size.
TEST(ShrinkValues, NamesTheElementThatShowsTheFault) {
  const auto third_of_row_two = [](const std::vector<double>&, std::vector<double>& out) {
    if (out.size() > 9) out[9] *= 1.5;
  };
  EXPECT_EQ(values_of(square_but("y", third_of_row_two), "squared(x=fp32[2,7],seed=1)"), "x[1,2] = 1, the rest 0");
  EXPECT_EQ(values_of(square_but("dx", third_of_row_two), "squared(x=bf16[2,7],seed=3)"),
            "dy[1,2] = 1, x[1,2] = 1, the rest 0");
  int launches = 0;
  const OpDef large = square_but("y", third_of_row_two, &launches);
  const OpCall call = parse_call("squared(x=fp32[64,129],seed=1)", large.signature);
  RunOptions options;
  options.relations = false;
  const CaseResult result = run_case(large, call, options);
  launches = 0;
  EXPECT_EQ(values_that_matter(large, call, result, options), "x[0,9] = 1, the rest 0");
  EXPECT_LE(launches, 30);
}

/// A number that must be large is brought down to a power of two; two that must meet are both named; all values at 0
/// are said to be so.
TEST(ShrinkValues, KeepsWhatTheFaultNeeds) {
  const auto large_alone = [](const std::vector<double>& x, std::vector<double>& out) {
    if (std::fabs(x[5]) >= 2) out[5] = 0;
  };
  int large = 0;
  for (const int seed : {1, 2, 3, 4}) {
    const OpDef op = square_but("y", large_alone);
    const OpCall call =
        parse_call("squared(x=fp32[2,7],range=integers9,seed=" + std::to_string(seed) + ")", op.signature);
    const double drawn = input_values(op.signature, call, op.signature.inputs[0])[5];
    if (std::fabs(drawn) < 2) continue;
    const double power = std::copysign(std::exp2(std::ilogb(drawn)), drawn);
    EXPECT_EQ(values_of(op, call.str(op.signature)), "x[0,5] = " + number_text(power) + ", the rest 0");
    ++large;
  }
  EXPECT_GT(large, 1);
  const auto two_meet = [](const std::vector<double>& x, std::vector<double>& out) {
    if (x[1] != 0 && x[4] != 0) out[4] += 1;
  };
  EXPECT_EQ(values_of(square_but("y", two_meet), "squared(x=fp32[2,7],seed=1)"), "x[0,1] = 1, x[0,4] = 1, the rest 0");
  EXPECT_EQ(values_of(square_but("y", [](const auto&, auto& out) { out[0] = 7; }), "squared(x=fp32[2,7],seed=1)"),
            "every value is 0");
}

/// Where many numbers matter together, where tries run out, and of a right kernel nothing is said.
TEST(ShrinkValues, SaysNothingElse) {
  const auto none_zero = [](const std::vector<double>& x, std::vector<double>& out) {
    if (std::none_of(x.begin(), x.end(), [](double v) { return v == 0; })) out[0] += 1;
  };
  EXPECT_EQ(values_of(square_but("y", none_zero), "squared(x=fp32[2,7],seed=1)"), "");
  const auto last = [](const std::vector<double>&, std::vector<double>& out) { out.back() *= 1.5; };
  EXPECT_EQ(values_of(square_but("y", last), "squared(x=fp32[64,129],seed=1)", 5), "");
  EXPECT_EQ(values_of(square_but("y", [](const auto&, auto&) {}), "squared(x=fp32[2,7],seed=1)"), "");
}

/// A saved statistic that nothing explains is outvoted by the tensors that a short accumulator explains, in the
/// explained cases and in those like them. Planted: as many tensors unexplained as explained.
TEST(Shrink, AContractThatExplainsMostOfACaseExplainsThoseLikeIt) {
  const OpDef& op = softmax();
  std::vector<Case> cases;
  for (std::uint64_t seed = 1; seed <= 10; ++seed)
    cases.push_back({&op, parse_call("softmax(x=bf16[5,7],seed=" + std::to_string(seed) + ")", op.signature)});
  const auto report = [&](std::size_t unexplained) {
    RunOptions options;
    options.brief = true;
    options.run = [&](const OpDef& of, const OpCall& call, const How& how) {
      CaseResult out = outcome(of, call, true, how.explain ? Code::ac301 : Code::ac101);
      for (std::size_t k = 0; k < 7; ++k) {
        CheckResult check = out.checks.front();
        check.id.tensor = "d" + std::to_string(k);
        check.failed = 1;
        if (k < unexplained) {
          check.code = Code::ac101;
          check.verdict = Verdict::bug;
        } else if (how.explain)
          check.cause = "accumulates in bf16";
        out.checks.push_back(check);
      }
      out.checks.front().failed = 1;
      out.checks.front().cause = how.explain ? "accumulates in bf16" : "";
      return out;
    };
    return run_cases(cases, options);
  };
  for (const CaseResult& result : report(1).cases)
    EXPECT_EQ(result.verdict, Verdict::precision_contract) << result.name;
  EXPECT_EQ(std::ranges::count(report(5).cases, Verdict::bug, &CaseResult::verdict), 10)
      << "then what it explains is chance";
}

/// A case whose numbers tell no reason quotes one of its kind that tells it; what says why by itself quotes nothing.
TEST(Shrink, ACaseThatDoesNotSayWhyQuotesOneThatDoes) {
  const OpDef& op = *find_op("max_pool2d.stride_is_kernel");
  std::vector<Case> cases;
  for (const char* call : {"(x=fp32[2,3,5,7],kernel=3,seed=1)", "(x=fp32[2,3,5,7],kernel=1,seed=1)",
                           "(x=fp32[2,3,5,7],kernel=3,seed=2)", "(x=fp32[2,3,5,7],kernel=3,seed=3)"})
    cases.push_back({&op, parse_call(op.signature.name + call, op.signature)});
  RunOptions options;
  options.brief = true;
  const Report report = run_cases(cases, options);
  ASSERT_GE(report.cases.size(), 4u);
  const auto cause = [&](std::size_t k) { return deciding_check(report.cases[k])->cause; };
  const std::string said = "these are the values of the formula with a stride of 1, not 2, of the windows of x";
  EXPECT_FALSE(contains(cause(1), "as '")) << cause(1);
  EXPECT_TRUE(contains(cause(1), said)) << cause(1);
  for (const std::size_t k : {std::size_t{0}, std::size_t{2}, std::size_t{3}})
    EXPECT_TRUE(contains(cause(k), "as '" + report.cases[1].name + "': " + said)) << cause(k);
}

/// A departure that its numbers do not tell from another fault is the fault that another case tells; one that they do
/// tell stays.
TEST(Shrink, AnUndecidedDepartureTakesTheClassOfACaseThatDecides) {
  const OpDef& op = softmax();
  const auto finding = [&](const char* call, Code code, const std::string& cause) {
    CaseResult out = outcome(op, parse_call(call, op.signature), true, code);
    out.checks.front().failed = 1;
    out.checks.front().cause = cause;
    out.explained = true;
    return out;
  };
  const CaseResult like =
      finding("softmax(x=fp32[2,3],seed=1)", Code::ac101, "these are the values of the formula without eps");
  for (const bool decided : {false, true}) {
    const std::string cause = std::string("flushes subnormals (declared: kept; ") +
                              (decided ? "10^9 : 1 against" : "the numbers do not tell it from") + " a factor of 0)";
    CaseResult result = finding("softmax(x=fp32[1,2],seed=2)", Code::ac303, cause);
    explain_as(like, result);
    EXPECT_EQ(result.code, decided ? Code::ac303 : Code::ac101);
    EXPECT_EQ(result.verdict, decided ? Verdict::precision_contract : Verdict::bug);
    EXPECT_EQ(result.checks.front().code, result.code);
    EXPECT_EQ(contains(result.checks.front().cause, "without eps"), !decided) << result.checks.front().cause;
    EXPECT_EQ(contains(result.checks.front().cause, "flushes"), decided) << result.checks.front().cause;
  }
}

/// Judged in brief, the cases of a kernel have the verdicts that each has by itself, but for those that chance
/// explains.
TEST(Brief, SaysWhatTheCasesSayByThemselves) {
  for (const char* name : {"softmax.bf16_accumulation", "softmax.dropped_tail", "softmax"}) {
    const OpDef& op = *find_op(name);
    std::vector<Case> cases;
    for (OpCall& call : cases_of(op.signature, Dtype::fp32, CaseSet::quick, 1)) cases.push_back({&op, std::move(call)});
    RunOptions brief;
    brief.brief = true;
    const Report each = run_cases(cases, {}), short_one = run_cases(cases, brief);
    ASSERT_EQ(each.cases.size(), short_one.cases.size());
    std::size_t differ = 0, smaller = 0;
    for (std::size_t i = 0; i < each.cases.size(); ++i) {
      EXPECT_EQ(convicts(each.cases[i].verdict), convicts(short_one.cases[i].verdict)) << each.cases[i].name;
      differ += each.cases[i].verdict != short_one.cases[i].verdict;
      smaller += !short_one.cases[i].smallest.empty();
      EXPECT_TRUE(each.cases[i].smallest.empty());
    }
    EXPECT_LE(10 * differ, each.cases.size()) << name;
    EXPECT_EQ(smaller > 0, op.signature.name != "softmax");
  }
}

TEST(Brief, TheReportNamesTheSmallerCase) {
  const auto run = testing::ampcheck("check 'softmax.dropped_tail(x=fp32[64,129],seed=1)'");
  EXPECT_EQ(run.exit_code, 1);
  const std::size_t at = run.out.find("  smallest failing case: '");
  ASSERT_NE(at, std::string::npos) << run.out;
  const std::size_t start = at + 26, end = run.out.find('\'', start);
  const auto again = testing::ampcheck("replay '" + run.out.substr(start, end - start) + "'");
  EXPECT_EQ(again.exit_code, 1) << again.out;
  EXPECT_TRUE(contains(again.out, "backward dx")) << again.out;
  EXPECT_TRUE(contains(run.out, "\n  minimal data: dy[0,")) << run.out;
  EXPECT_FALSE(contains(testing::ampcheck("check 'softmax(x=fp32[64,129],seed=1)'").out, "smallest"));
}

}  // namespace
}  // namespace ampcheck::checks
