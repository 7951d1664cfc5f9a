// SPDX-License-Identifier: Apache-2.0
#include "checks/data/extent_cases.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "checks/define/op_list.h"
#include "checks/run/runner.h"
#include "tests/support/run_program.h"

namespace ampcheck::checks {
namespace {

using testing::ampcheck;
using testing::contains;

const OpDef& op_named(const std::string& name) {
  for (const OpDef& op : all_ops())
    if (op.signature.name == name) return op;
  throw Error(name);
}

TEST(ExtentCases, EachExtentOfEachDimensionOnceAndTheOthersLeast) {
  const OpDef& softmax = op_named("softmax");
  std::map<std::string, std::set<std::int64_t>> seen;
  for (const OpCall& call : cases_of_extents(softmax.signature, Dtype::bf16, {}, {}, 3)) {
    EXPECT_EQ(call.seed, 3u);
    for (const DimSpec& dim : softmax.signature.dims)
      if (call.dims.at(dim.symbol) != 2) seen[dim.symbol].insert(call.dims.at(dim.symbol));
  }
  for (const DimSpec& dim : softmax.signature.dims) EXPECT_EQ(seen[dim.symbol].size(), 1023u) << dim.symbol;
}

// Whatever an op demands of its extents, of every op there are cases, and all are valid.
TEST(ExtentCases, OfEveryOpAllAreValid) {
  for (const OpDef& op : all_ops()) {
    const OpSignature& signature = op.signature;
    const Dtype storage = signature.precision.storage.front();
    for (const DimSpec& dim : signature.dims) {
      const std::vector<OpCall> calls = cases_of_extents(signature, storage, {{dim.symbol, {1, 32}}}, {}, 1);
      EXPECT_FALSE(calls.empty()) << signature.name << " " << dim.symbol;
      for (const OpCall& call : calls)
        EXPECT_TRUE(!signature.valid || signature.valid(call.dims, call.attributes)) << call.str(signature);
    }
  }
}

/// rms_norm whose kernel adds a bit to everything where D has that extent; 0: nowhere.
OpDef wrong_at(std::int64_t extent) {
  OpDef op = op_named("rms_norm");
  op.signature.name = "rms_norm_of_one";
  op.kernel.forward = [right = op.kernel.forward, extent](const kernels::KernelCall& call) {
    right(call);
    const TensorView& y = call.at("y");
    if (y.shape[y.shape.rank - 1] != extent) return;
    auto* const values = static_cast<float*>(y.data);
    for (std::int64_t i = 0; i < y.count(); ++i) values[i] *= 1.25F;
  };
  return op;
}

Report every_extent(const OpDef& op) {
  std::vector<Case> cases;
  for (OpCall& call : cases_of_extents(op.signature, Dtype::fp32, {{"D", {1, 160}}}, {}, 1))
    cases.push_back({&op, std::move(call)});
  EXPECT_EQ(cases.size(), 160u);
  RunOptions options;
  options.relations = false;
  return run_cases(cases, options);
}

TEST(ExtentCases, AKernelThatIsWrongAtOneExtentAloneIsFoundAndTheExtentNamed) {
  const OpDef wrong = wrong_at(131), right = wrong_at(0);
  const Report found = every_extent(wrong);
  int convicted = 0;
  for (const CaseResult& result : found.cases) {
    if (!convicts(result.verdict)) continue;
    ++convicted;
    EXPECT_TRUE(contains(result.name, ",131]")) << result.name;
    const CheckResult* const check = deciding_check(result);
    ASSERT_NE(check, nullptr);
    EXPECT_TRUE(check->cause.starts_with("wrong at D = 131 alone; the other 159 extents of it pass")) << check->cause;
  }
  EXPECT_EQ(convicted, 1);
  for (const CaseResult& result : every_extent(right).cases) EXPECT_FALSE(convicts(result.verdict)) << result.name;
}

TEST(ExtentCases, TheProgramTakesRanges) {
  const auto run = ampcheck("check softmax --dtype bf16 --shapes N=3,D=5..24");
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_TRUE(contains(run.out, "1 op · 20 cases")) << run.out;
  EXPECT_TRUE(
      contains(ampcheck("list softmax --cases --shapes D=7..7 --dtype bf16").out, "softmax(x=bf16[2,7],seed=1)"));
  EXPECT_TRUE(contains(ampcheck("list softmax --cases --shapes every --dtype bf16").out, "softmax(x=bf16[2,1024],"));
  for (const char* const wrong : {"D=9..3", "D=1..", "D=..4", "D=1..99999", "DD=1..4", "D=1...4", "=1..2"}) {
    const auto refused = ampcheck(std::string("check softmax --shapes ") + wrong);
    EXPECT_EQ(refused.exit_code, 2) << wrong;
    EXPECT_TRUE(contains(refused.err, "[--shapes] got '")) << wrong << refused.err;
  }
}

}  // namespace
}  // namespace ampcheck::checks
