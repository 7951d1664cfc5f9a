// SPDX-License-Identifier: Apache-2.0
// The exact relations run at whatever finite data they are valid for, real tensors included: proved by faults that
// normal data does not show, and by correct kernels.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "checks/case/case_run.h"
#include "checks/data/real_tensors.h"
#include "checks/judge/batch_invariance.h"
#include "checks/run/runner.h"
#include "checks/zoo/planted.h"
#include "tests/support/check_named.h"

namespace ampcheck::checks {
namespace {

using kernels::KernelCall;

OpCall call_of(const OpDef& op, const std::string& range, Dtype dtype = Dtype::bf16) {
  OpCall call = default_call(op.signature, dtype);
  call.range = range;
  return call;
}

/// Elements that a relation compared, 0 if it did not run; and whether it holds.
struct Seen {
  std::int64_t compared = 0;
  bool holds = true;
};
Seen seen(const CaseResult& result, const std::string& relation) {
  const CheckResult* const check = check_named(result, relation);
  return check == nullptr ? Seen{} : Seen{check->compared, check->failed == 0};
}

std::vector<Case> real_softmax(const OpDef& op) {
  const OpDef* const ops[] = {&op};
  const Dtype dtypes[] = {Dtype::bf16, Dtype::fp32};
  return real_cases(ops, dtypes);
}

const OpDef& op_named(const std::string& name) {
  const OpDef* const op = find_op(name);
  EXPECT_NE(op, nullptr) << name;
  return *op;
}

TEST(Relations, RunAtEveryFiniteDataRegime) {
  for (const char* name : {"softmax", "layer_norm", "mul", "linear", "conv2d"}) {
    const OpDef& op = op_named(name);
    const std::string output = op.signature.outputs[0].name;
    for (const char* range : {"normal", "integers9", "spike", "mean30", "scale-9", "negative", "scale+4"}) {
      const CaseResult result = run_case(op, call_of(op, range), {});
      EXPECT_FALSE(convicts(result.verdict)) << result.name << " " << result.code;
      const Seen rows = seen(result, "row_independence " + output);
      EXPECT_GT(rows.compared, 0) << result.name;
      EXPECT_TRUE(rows.holds) << result.name;
    }
    for (const char* range : {"normal", "integers9", "mean2.5", "negative"}) {
      const CaseResult result = run_case(op, call_of(op, range), {});
      EXPECT_GT(seen(result, "homogeneity dx").compared, 0) << result.name;
      EXPECT_TRUE(seen(result, "homogeneity dx").holds) << result.name;
    }
  }
}

TEST(Relations, BitwiseHomogeneityStaysAwayFromTheEndsOfTheRange) {
  // exp(x - max) underflows, products overflow, inputs are not finite: nothing is to be compared bit for bit.
  for (const auto& [name, range] : {std::pair{"softmax", "sweep120"}, std::pair{"mul", "near_max"},
                                    std::pair{"mul", "subnormal"}, std::pair{"softmax", "specials"}}) {
    const OpDef& op = op_named(name);
    const CaseResult result = run_case(op, call_of(op, range, Dtype::fp32), {});
    EXPECT_EQ(seen(result, "homogeneity dx").compared, 0) << result.name;
    EXPECT_FALSE(convicts(result.verdict)) << result.name << " " << result.code;
  }
}

TEST(Relations, RowsAreNotChangedWhereInputsAreNotFinite) {
  const CaseResult result = run_case(op_named("softmax"), call_of(op_named("softmax"), "specials"), {});
  EXPECT_EQ(check_named(result, "row_independence y"), nullptr);
  const CaseResult equal = run_case(op_named("softmax"), call_of(op_named("softmax"), "zeros"), {});
  EXPECT_NE(check_named(equal, "row_independence y"), nullptr);  // the cotangents' rows differ
}

TEST(Relations, RunAtRealTensors) {
  const OpDef& op = op_named("softmax");
  std::int64_t homogeneity = 0, rows = 0;
  for (const Case& item : real_softmax(op)) {
    const CaseResult result = run_case(op, item.call, {});
    EXPECT_FALSE(convicts(result.verdict)) << result.name << " " << result.code;
    homogeneity += seen(result, "homogeneity dx").compared;
    rows += seen(result, "row_independence dx").compared;
  }
  EXPECT_GT(homogeneity, 100);
  EXPECT_GT(rows, 32);
}

/// Planted faults of the two relations are caught where the numbers alone show nothing: beyond normal data too.
TEST(Relations, CatchTheirFaultsBeyondNormalData) {
  for (const auto& [name, code, range] :
       {std::tuple{"softmax.nonlinear", "AC407", "mean2.5"}, std::tuple{"softmax.nonlinear", "AC407", "negative"},
        std::tuple{"softmax.stale_maximum", "AC405", "mean2.5"},
        std::tuple{"softmax.stale_maximum", "AC405", "integers9"}}) {
    const OpDef& op = op_named(name);
    std::set<std::string> found;
    for (const Dtype dtype : {Dtype::fp32, Dtype::bf16})
      for (const std::uint64_t seed : {1u, 2u, 3u, 4u}) {
        OpCall call = call_of(op, range, dtype);
        call.seed = seed;
        const CaseResult result = run_case(op, call, {});
        for (const CheckResult& check : result.checks)
          if (convicts(check.verdict)) found.insert(ampcheck::name(check.code));
      }
    EXPECT_EQ(found, std::set<std::string>{code}) << name << " " << range;
  }
}

TEST(Relations, CatchTheirFaultsAtRealTensors) {
  for (const auto& [name, code] :
       {std::pair{"softmax.nonlinear", "AC407"}, std::pair{"softmax.stale_maximum", "AC405"}}) {
    const OpDef& op = op_named(name);
    std::set<std::string> found;
    for (const Case& item : real_softmax(op))
      for (const CheckResult& check : run_case(op, item.call, {}).checks)
        if (convicts(check.verdict)) found.insert(ampcheck::name(check.code));
    EXPECT_EQ(found, std::set<std::string>{code}) << name;
  }
}

/// y = x/3. With the fault the factor is the next number where another row holds a larger one above 20, as a scale
/// shared by all rows would make it: inside the interval of an inexact factor, unseen on normal data, and unchanged if
/// rows change places.
OpDef third(bool faulty) {
  OpDef op;
  op.signature = {.name = "third",
                  .inputs = {{.name = "x", .dims = "N D"}},
                  .outputs = {{.name = "y"}},
                  .dims = {{"N", {5, 16, 2}}, {"D", {7, 33, 129}}},
                  .launch = {.row_dim = "N", .row_independent = {"y", "dx"}}};
  op.forms = {
      {"x/3", [](reference::FormulaCall& c) { c.output("y", c["x"] * reference::named_constant(c.graph(), "1/3")); }}};
  const auto apply = [](const KernelCall& call, const char* from, const char* to, bool leaks) {
    const TensorView& x = call.at(from);
    const std::vector<double> values = to_doubles(x);
    const auto width = static_cast<std::size_t>(x.shape[1]);
    std::vector<double> out(values.size()), largest(static_cast<std::size_t>(x.shape[0]));
    for (std::size_t i = 0; i < values.size(); ++i)
      largest[i / width] = std::max(largest[i / width], std::fabs(values[i]));
    const double of_all = largest.empty() ? 0 : *std::max_element(largest.begin(), largest.end());
    for (std::size_t i = 0; i < values.size(); ++i) {
      const bool off = leaks && of_all > 20 && of_all > largest[i / width];
      out[i] = static_cast<double>(static_cast<float>(values[i]) * (off ? std::nextafter(1.0f / 3, 0.0f) : 1.0f / 3));
    }
    from_doubles(out, call.at(to));
  };
  op.kernel.forward = [=](const KernelCall& call) { apply(call, "x", "y", faulty); };
  op.kernel.backward = [=](const KernelCall& call) { apply(call, "dy", "dx", false); };
  return op;
}

TEST(Relations, RowIndependenceSeesWhatOnlyOtherDataShows) {
  std::set<std::string> with_normal, with_spike;
  for (const std::uint64_t seed : {1u, 2u, 3u, 4u, 5u, 6u, 7u, 8u}) {
    OpDef op = third(true);
    OpCall call = call_of(op, "normal", Dtype::fp32);
    call.seed = seed;
    for (const char* range : {"normal", "spike"}) {
      call.range = range;
      for (const CheckResult& check : run_case(op, call, {}).checks)
        if (convicts(check.verdict))
          (call.range == "normal" ? with_normal : with_spike).insert(ampcheck::name(check.code));
      OpDef right = third(false);
      EXPECT_FALSE(convicts(run_case(right, call, {}).verdict)) << range;
    }
  }
  EXPECT_TRUE(with_normal.empty());
  EXPECT_EQ(with_spike, std::set<std::string>{"AC405"});
}

/// Sums along the last axis have rows; along another one they have none that the relation could change.
TEST(Relations, RowsLieAlongTheAxisThatAnAttributeNames) {
  const OpDef& wrong = *find_op("sum.not_cleared");
  for (const OpDef* const op : {find_op("sum"), &wrong})
    for (const double axis : {-1.0, 0.0}) {
      OpCall call = call_of(*op, "normal", Dtype::fp32);
      call.dims = {{"N", 5}, {"D", 7}};
      call.attributes.set("axis", axis);
      const CaseResult result = run_case(*op, call, {});
      EXPECT_EQ(check_named(result, "row_independence y") != nullptr, axis == -1) << axis;
      EXPECT_EQ(convicts(result.verdict), op == &wrong) << axis;
      EXPECT_EQ(result.code == Code::ac405, op == &wrong && axis == -1) << axis;
    }
}

/// A leak into one row: the row that chance keeps does not show it, the one whose numbers are wrong does. What is wrong
/// without a leak breaks nothing.
TEST(Relations, ALeakIsLookedForWhereNumbersAreWrong) {
  for (const auto& [name, leaks] : {std::pair{"min.offset_forgotten", true}, std::pair{"softmax.sign", false}})
    for (const std::uint64_t seed : {1u, 2u, 3u, 4u}) {
      const OpDef& op = op_named(name);
      OpCall call = call_of(op, "normal", Dtype::fp32);
      call.dims = {{"N", 5}, {"D", 7}};
      call.seed = seed;
      const CaseResult result = run_case(op, call, {});
      EXPECT_EQ(result.code, leaks ? Code::ac405 : Code::ac101) << name << " " << seed;
      const CheckResult* const check = check_named(result, "row_independence dx");
      ASSERT_NE(check, nullptr) << name;
      EXPECT_EQ(check->failed > 0, leaks) << name << " " << seed;
    }
}

/// Two kernels whose every number is right: in an order of sums that follows from the number of rows, and from a row's
/// place.
TEST(Relations, RowsAloneKeepTheirBitsWhereThatIsPromised) {
  for (const auto& [name, why] :
       {std::pair{"softmax.order_by_batch", "the number of rows decides"},
        std::pair{"softmax.order_by_place", "a row's place decides"}, std::pair{"softmax.one_order", ""}})
    for (const std::uint64_t seed : {1u, 2u, 3u}) {
      OpDef op = op_named(name);
      OpCall call = call_of(op, "normal", Dtype::fp32);
      call.dims = {{"N", 12}, {"D", 67}};
      call.seed = seed;
      const bool right = std::string(why).empty();
      RunOptions values;
      values.relations = false;
      EXPECT_FALSE(convicts(run_case(op, call, values).verdict)) << name;
      const CaseResult promised = run_case(op, call, {});
      const CheckResult* const check = check_named(promised, "batch_invariance dx");
      ASSERT_NE(check, nullptr) << name;
      EXPECT_EQ(check->compared, (1 + 3) * 67) << name;
      EXPECT_EQ(promised.code, right ? Code::none : Code::ac409) << name;
      EXPECT_NE(check->cause.find(why), std::string::npos) << check->cause;
      EXPECT_TRUE(seen(promised, "batch_invariance y").holds) << name;
      op.signature.launch.batch_invariant = false;  // then it is a note
      const CaseResult free = run_case(op, call, {});
      EXPECT_FALSE(convicts(free.verdict)) << name;
      EXPECT_EQ(batch_variances({free}).empty(), right) << name;
      const CheckResult* const noted = check_named(free, "batch_invariance dx");
      ASSERT_NE(noted, nullptr) << name;
      EXPECT_TRUE(noted->compared == 67 || noted->compared == 3 * 67) << name;
      EXPECT_EQ(noted->note.empty(), right) << noted->note;
    }
}

/// The gradient of a mean over rows follows from how many there are.
TEST(Relations, RowsAloneAreNotComparedWhereTheFormulaCountsThem) {
  OpDef op = op_named("mse_loss");
  op.signature.launch.batch_invariant = true;
  const CaseResult result = run_case(op, call_of(op, "normal", Dtype::fp32), {});
  EXPECT_FALSE(convicts(result.verdict)) << result.code;
  EXPECT_EQ(check_named(result, "batch_invariance dx"), nullptr);
}

/// What is not added is said: the gradient alone, twice, or nothing.
TEST(Relations, SayHowABufferIsAddedTo) {
  const OpDef& op = op_named("add.overwrites");
  const CaseResult result = run_case(op, call_of(op, "normal", Dtype::fp32), {});
  const CheckResult* const check = check_named(result, "backward dx probe 0");
  ASSERT_NE(check, nullptr);
  EXPECT_EQ(check->code, Code::ac408);
  EXPECT_NE(check->cause.find("the gradient alone"), std::string::npos) << check->cause;
}

TEST(Relations, SayWhoseLayoutIsWrong) {
  const OpDef& op = op_named("softmax.ignores_strides");
  for (const char* layout : {"last2", "padded", "padded:dy"}) {
    OpCall call = call_of(op, "normal", Dtype::fp32);
    call.layout = layout;
    const CaseResult result = run_case(op, call, {});
    const CheckResult* const check = check_named(result, "backward dx probe 0");
    ASSERT_NE(check, nullptr);
    EXPECT_EQ(check->code, Code::ac406) << layout;
    EXPECT_NE(check->cause.find("'dy' is taken for dense"), std::string::npos) << check->cause;
  }
}

/// Like an interval's findings: which elements, with the bits that were due and those that came.
TEST(Relations, ShowTheElementsThatBreakThem) {
  struct Broken {
    const char *op, *check;
  };
  for (const Broken& broken :
       {Broken{"softmax.alternating_order", "repeats dx"}, Broken{"softmax.unwritten_last", "poison dx"},
        Broken{"softmax.stale_maximum", "row_independence y"}, Broken{"softmax.nonlinear", "homogeneity dx"},
        Broken{"softmax.order_by_batch", "batch_invariance dx"}}) {
    const OpDef& op = op_named(broken.op);
    std::int64_t shown = 0;
    for (const std::uint64_t seed : {1u, 2u, 3u}) {
      OpCall call = call_of(op, "normal", Dtype::fp32);
      call.dims = {{"N", 5}, {"D", 257}};
      call.seed = seed;
      const CaseResult result = run_case(op, call, {});
      const CheckResult* const check = check_named(result, broken.check);
      if (check == nullptr || check->failed == 0) continue;
      ASSERT_FALSE(check->worst.empty()) << result.name << " " << broken.check;
      for (const Element& element : check->worst) {
        EXPECT_EQ(element.index.size(), 2u) << result.name;
        EXPECT_NE(element.got_bits, element.want_bits) << result.name;
        EXPECT_EQ(element.interval_from, "bit for bit") << result.name;
        EXPECT_TRUE(std::isnan(element.want) || (element.low == element.want && element.high == element.want))
            << result.name;
        ++shown;
      }
    }
    EXPECT_GT(shown, 0) << broken.op << " " << broken.check;
  }
}

TEST(Relations, SayWhereMemoryIsOverrun) {
  const OpDef& op = op_named("softmax.overrun");
  const CaseResult result = run_case(op, call_of(op, "normal", Dtype::fp32), {});
  ASSERT_NE(check_named(result, "guards dx"), nullptr);
  EXPECT_NE(check_named(result, "guards dx")->cause.find("4 bytes behind its last element, the first right behind it"),
            std::string::npos)
      << check_named(result, "guards dx")->cause;
}

/// Dense tensors of 16 bits are compared as codes, others as numbers: both find the same elements, of a fault and of a
/// correct kernel.
TEST(Relations, HomogeneityIsTheSameOnCodesAndOnNumbers) {
  for (const char* name : {"softmax", "softmax.nonlinear"}) {
    std::int64_t failed = 0;
    for (const Dtype dtype : {Dtype::bf16, Dtype::fp16})
      for (const std::uint64_t seed : {1u, 2u}) {
        const OpDef& op = op_named(name);
        OpCall call = call_of(op, "normal", dtype);
        call.dims = {{"N", 64}, {"D", 1024}};
        call.seed = seed;
        if (dtype == Dtype::fp16)
          call.cotangent = "powers";  // a quarter of full mantissas comes near its smallest normal number
        const CaseResult codes = run_case(op, call, {});
        call.layout = "padded";
        const CaseResult numbers = run_case(op, call, {});
        const CheckResult *const a = check_named(codes, "homogeneity dx"), *const b =
                                                                               check_named(numbers, "homogeneity dx");
        ASSERT_TRUE(a != nullptr && b != nullptr) << codes.name;
        EXPECT_GT(a->compared, 0) << codes.name;
        EXPECT_EQ(a->compared, b->compared) << codes.name;
        EXPECT_EQ(a->failed, b->failed) << codes.name;
        EXPECT_EQ(a->cause, b->cause) << codes.name;
        failed += a->failed;
      }
    EXPECT_EQ(failed > 0, std::string(name) != "softmax") << name;
  }
}

std::vector<Case> cases_of_op(const char* name, std::initializer_list<const char*> calls) {
  const OpDef& op = *find_op(name);
  std::vector<Case> out;
  for (const char* call : calls) out.push_back({&op, parse_call(call, op.signature)});
  return out;
}

/// A sum that loses a term in every third call: one kind of finding with its rate, whatever comparison of two calls
/// shows it. A kernel that is wrong for strided tensors alone keeps its own.
TEST(Repeats, AnIntermittentFaultIsOneKindWithItsRate) {
  const Report racing = run_cases(
      cases_of_op("softmax.race", {"softmax.race(x=fp32[5,7],seed=1)", "softmax.race(x=fp32[5,7],layout=last2,seed=1)",
                                   "softmax.race(x=fp32[65537,2],cotangent=normal,seed=1)"}),
      {});
  int repeats = 0;
  for (const CaseResult& result : racing.cases)
    for (const CheckResult& check : result.checks) {
      for (const Code of_two_calls : {Code::ac405, Code::ac406, Code::ac407, Code::ac409})
        EXPECT_NE(check.code, of_two_calls) << result.name << " " << check.name();
      if (check.id.kind != CheckId::Kind::repeats || check.failed == 0) continue;
      ++repeats;
      const char* const of = result.name.find("65537") == std::string::npos ? " of 5 repeated calls differ"
                                                                            : " of 2 repeated calls differ";
      EXPECT_NE(check.cause.find(of), std::string::npos) << check.cause;
    }
  EXPECT_GT(repeats, 0);
  const Report dense = run_cases(
      cases_of_op("max_pool2d.dense_x", {"max_pool2d.dense_x(x=fp32[2,3,5,7],kernel=3,layout=last2,seed=1)"}), {});
  ASSERT_EQ(dense.cases.size(), 1u);
  EXPECT_EQ(dense.cases.front().code, Code::ac406);
}

}  // namespace
}  // namespace ampcheck::checks
