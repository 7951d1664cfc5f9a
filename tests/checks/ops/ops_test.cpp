// SPDX-License-Identifier: Apache-2.0
// Every op of the registry on its everyday cases: no finding, and something was judged.
#include <gtest/gtest.h>

#include "checks/data/regimes.h"
#include "checks/run/runner.h"

namespace ampcheck::checks {
namespace {

std::vector<std::string> op_names() {
  std::vector<std::string> out;
  for (const OpDef& op : all_ops()) out.push_back(op.signature.name);
  return out;
}

class EveryOp : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Registry, EveryOp, ::testing::ValuesIn(op_names()),
                         [](const auto& info) { return info.param; });

TEST_P(EveryOp, QuickCasesHaveNoFinding) {
  const OpDef& op = *find_op(GetParam());
  for (const Dtype dtype : {Dtype::fp32, Dtype::bf16, Dtype::fp16}) {
    const std::vector<OpCall> calls = cases_of(op.signature, dtype, CaseSet::quick, 1);
    ASSERT_FALSE(calls.empty()) << name(dtype);
    std::int64_t compared = 0, judged = 0, relations = 0;
    for (const OpCall& call : calls) {
      const CaseResult result = run_case(op, call, {});
      EXPECT_FALSE(convicts(result.verdict)) << name(result.verdict) << " " << result.code << " " << result.name;
      EXPECT_NE(result.verdict, Verdict::skipped) << result.name;
      for (const CheckResult& check : result.checks) {
        const bool value = check.name().starts_with("forward ") || check.name().starts_with("backward ");
        compared += value ? check.compared : 0;
        judged += value ? check.compared - check.blind - check.range : 0;
        relations += value ? 0 : check.compared;
      }
    }
    EXPECT_GT(compared, 0) << name(dtype);
    EXPECT_GT(2 * judged, compared) << name(dtype) << ": most elements are blind or unjudged";
    EXPECT_GT(relations, 0) << name(dtype);
  }
}

TEST_P(EveryOp, PrintedCasesReadBack) {
  const OpDef& op = *find_op(GetParam());
  for (const Dtype dtype : op.signature.precision.storage)
    for (const CaseSet set : {CaseSet::quick, CaseSet::standard})
      for (const OpCall& call : cases_of(op.signature, dtype, set, 7)) {
        const std::string text = call.str(op.signature);
        EXPECT_EQ(parse_call(text, op.signature).str(op.signature), text);
      }
}

}  // namespace
}  // namespace ampcheck::checks
