// SPDX-License-Identifier: Apache-2.0
// Every check is proved by a kernel that it must catch, which the value comparison on the everyday cases does not, and
// by correct kernels that it must not flag.
#include "checks/zoo/planted.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "checks/data/regimes.h"
#include "checks/run/runner.h"

namespace ampcheck::checks {
void PrintTo(const PlantedOp& entry, std::ostream* out) { *out << entry.op.signature.name; }

namespace {

constexpr std::uint64_t kSeed = 1;

const PlantedOp& planted(const std::string& variant) {
  for (const PlantedOp& entry : planted_ops())
    if (entry.op.signature.name == variant) return entry;
  throw Error("[planted] no op named '" + variant + "'");
}

std::vector<OpCall> quick_cases(const OpDef& op) {
  std::vector<OpCall> out;
  for (const Dtype dtype : {Dtype::fp32, Dtype::bf16})
    for (OpCall& call : cases_of(op.signature, dtype, CaseSet::quick, kSeed)) out.push_back(std::move(call));
  return out;
}

bool is_value(const CheckResult& check) {
  return check.name().starts_with("forward ") || check.name().starts_with("backward ");
}

/// Codes of the findings of a case.
std::set<std::string> codes(const CaseResult& result) {
  std::set<std::string> out;
  for (const CheckResult& check : result.checks)
    if (convicts(check.verdict)) out.insert(ampcheck::name(check.code));
  return out;
}

/// First failed value comparison, in words; empty if there is none.
std::string failed_value(const CaseResult& result) {
  for (const CheckResult& check : result.checks)
    if (is_value(check) && check.failed > 0)
      return result.name + ": " + check.name() + " " + ampcheck::name(check.code);
  return "";
}

std::string test_name(const ::testing::TestParamInfo<PlantedOp>& info) {
  std::string name = info.param.op.signature.name;
  std::replace(name.begin(), name.end(), '.', '_');
  return name;
}

std::vector<PlantedOp> entries(bool faulty) {
  std::vector<PlantedOp> out;
  for (const PlantedOp& entry : planted_ops())
    if ((entry.code == Code::none) != faulty) out.push_back(entry);
  return out;
}

class PlantedFault : public ::testing::TestWithParam<PlantedOp> {};
INSTANTIATE_TEST_SUITE_P(All, PlantedFault, ::testing::ValuesIn(entries(true)), test_name);

TEST_P(PlantedFault, IsConvictedWithItsCode) {
  const PlantedOp& entry = GetParam();
  ASSERT_NE(entry.code, Code::none);
  int convicted = 0, with_code = 0;
  for (const OpCall& call : quick_cases(entry.op)) {
    const CaseResult result = run_case(entry.op, call, {});
    const std::set<std::string> found = codes(result);
    convicted += convicts(result.verdict);
    if (!found.contains(ampcheck::name(entry.code))) continue;
    ++with_code;
    EXPECT_TRUE(convicts(result.verdict)) << result.name;
    EXPECT_GE(result.verdict, text_of(entry.code).verdict) << result.name;
  }
  EXPECT_GT(with_code, 0) << entry.what;
  EXPECT_GE(2 * with_code, convicted) << entry.what << ": other codes than " << entry.code << " prevail";
}

TEST_P(PlantedFault, IsNamedInItsOwnCases) {  // replay finds a planted op by the name that a report prints
  const PlantedOp& entry = GetParam();
  EXPECT_EQ(find_op(entry.op.signature.name), &planted(entry.op.signature.name).op);
  EXPECT_FALSE(entry.what.empty());
}

class CorrectVariant : public ::testing::TestWithParam<PlantedOp> {};
INSTANTIATE_TEST_SUITE_P(All, CorrectVariant, ::testing::ValuesIn(entries(false)), test_name);

TEST_P(CorrectVariant, IsNeverConvicted) {
  const PlantedOp& entry = GetParam();
  std::int64_t judged = 0;
  for (const CaseSet set : {CaseSet::quick, CaseSet::standard})
    for (const Dtype dtype : {Dtype::fp32, Dtype::bf16})
      for (const OpCall& call : cases_of(entry.op.signature, dtype, set, kSeed)) {
        const CaseResult result = run_case(entry.op, call, {});
        EXPECT_FALSE(convicts(result.verdict)) << result.name << ": " << result.code << " " << failed_value(result);
        for (const CheckResult& check : result.checks)
          EXPECT_FALSE(convicts(check.verdict)) << result.name << ": " << check.name();
        judged += result.elements() - result.blind();
      }
  EXPECT_GT(judged, 100000);
}

// What the exact relations add: on the everyday cases, in dense memory, every number of these kernels lies in its
// interval.

class BeyondValues : public ::testing::TestWithParam<PlantedOp> {};
std::vector<PlantedOp> relation_faults() {
  std::vector<PlantedOp> out;
  for (const char* name : {"nan_rows_unwritten", "overrun", "clobbers_cotangent", "alternating_order", "stale_maximum",
                           "ignores_strides", "nonlinear", "order_by_batch", "order_by_place", "order_by_neighbour"})
    out.push_back(planted(std::string("softmax.") + name));
  return out;
}
INSTANTIATE_TEST_SUITE_P(All, BeyondValues, ::testing::ValuesIn(relation_faults()), test_name);

TEST_P(BeyondValues, ValuesAloneSeeNothing) {
  const PlantedOp& entry = GetParam();
  RunOptions values_only;
  values_only.relations = false;
  std::int64_t compared = 0;
  // A row shifted by another one's maximum shows in values too where the two lie far apart: in one of the standard
  // cases.
  const bool few = entry.op.signature.name == "softmax.stale_maximum";
  for (const Dtype dtype : {Dtype::fp32, Dtype::fp16, Dtype::bf16})
    for (const OpCall& call : cases_of(entry.op.signature, dtype, few ? CaseSet::quick : CaseSet::standard, kSeed)) {
      if (call.layout != "dense") continue;
      const CaseResult result = run_case(entry.op, call, values_only);
      EXPECT_EQ(failed_value(result), "") << entry.what;
      for (const CheckResult& check : result.checks)
        if (is_value(check)) compared += check.compared;
    }
  EXPECT_GT(compared, 10000);
}

/// Strides are the one fault of these that numbers do show, but only where the layout is not dense: that is the
/// relation.
TEST(PlantedFaults, StridesShowOnlyInOtherLayouts) {
  const PlantedOp& entry = planted("softmax.ignores_strides");
  int strided = 0;
  for (const OpCall& call : quick_cases(entry.op)) {
    const CaseResult result = run_case(entry.op, call, {});
    if (call.layout == "dense")
      EXPECT_FALSE(convicts(result.verdict)) << result.name;
    else
      strided += codes(result).contains("AC406");
  }
  EXPECT_GE(strided, 2);
}

// The intentionally broken copies of softmax's backward, at its standard shapes.

struct Broken {
  const char* variant;
  Verdict verdict;
};
void PrintTo(const Broken& one, std::ostream* out) { *out << one.variant; }

class BrokenBackward : public ::testing::TestWithParam<Broken> {};
INSTANTIATE_TEST_SUITE_P(Softmax, BrokenBackward,
                         ::testing::Values(Broken{"sign", Verdict::bug}, Broken{"missing_factor", Verdict::bug},
                                           Broken{"dropped_tail", Verdict::bug},
                                           Broken{"bf16_accumulation", Verdict::precision_contract},
                                           Broken{"unwritten_last", Verdict::structural}),
                         [](const auto& info) { return std::string(info.param.variant); });

TEST_P(BrokenBackward, GetsItsVerdictAndReplays) {
  const OpDef& op = planted(std::string("softmax.") + GetParam().variant).op;
  std::vector<Case> cases;
  for (const Dtype dtype : {Dtype::fp32, Dtype::bf16})
    for (std::size_t shape = 0; shape < 3; ++shape)
      for (const std::uint64_t seed : {1u, 2u}) {
        OpCall call = default_call(op.signature, dtype);
        for (const DimSpec& dim : op.signature.dims) call.dims[dim.symbol] = dim.standard[shape];
        call.seed = seed;
        cases.push_back({&op, call});
      }
  std::vector<CaseResult> failing;
  std::map<Verdict, int> verdicts;
  for (const Case& c : cases) {
    CaseResult result = run_case(op, c.call, {});
    ++verdicts[result.verdict];
    if (convicts(result.verdict)) failing.push_back(std::move(result));
  }
  std::string seen;
  for (const auto& [verdict, count] : verdicts) seen += std::string(name(verdict)) + " " + std::to_string(count) + " ";
  ASSERT_GE(failing.size(), cases.size() / 2) << seen;
  EXPECT_GT(2 * verdicts[GetParam().verdict], static_cast<int>(failing.size())) << seen;
  failing.resize(std::min<std::size_t>(failing.size(), 4));  // an explained case takes long under sanitizers
  for (const CaseResult& result : failing) {
    ASSERT_EQ(find_op(op_of(result.name)), &op);
    const CaseResult again = run_case(op, parse_call(result.name, op.signature), {});
    EXPECT_EQ(again.verdict, result.verdict) << result.name;
    EXPECT_EQ(again.code, result.code) << result.name;
    EXPECT_EQ(again.name, result.name);
  }
}

}  // namespace
}  // namespace ampcheck::checks
