// SPDX-License-Identifier: Apache-2.0
// The interval that a replay saves is the one that judged: a number that only a regrouping admits lies in it.
#include <gtest/gtest.h>

#include "checks/doors/plugin.h"
#include "checks/run/runner.h"
#include "tests/support/paths.h"

namespace ampcheck::checks {
namespace {

const OpDef& lerp() {
  for (const OpDef& op : load_plugin(tests::in_build("/custom_ops/regrouped.so")).ops)
    if (op.signature.name == "lerp") return op;
  throw std::runtime_error("no lerp");
}

/// How many numbers of y lie outside of the saved interval.
int outside(const OpDef& op, bool as_written, CaseResult& result) {
  Dump dump;
  result = run_case(op, parse_call("lerp(a=fp32[64,129],seed=1)", op.signature),
                    {.relations = false, .as_written = as_written}, &dump);
  const auto values = [&](const std::string& name) {
    for (const Dump::Entry& entry : dump.entries)
      if (entry.name == name) return entry.values;
    throw std::runtime_error("no " + name);
  };
  const std::vector<double> got = values("y.got"), low = values("y.low"), high = values("y.high");
  int out = 0;
  for (std::size_t i = 0; i < got.size(); ++i) out += !(got[i] >= low[i] && got[i] <= high[i]);
  return out;
}

TEST(SavedInterval, HoldsWhatARegroupingAdmits) {
  CaseResult result;
  EXPECT_EQ(outside(lerp(), false, result), 0);
  EXPECT_FALSE(convicts(result.verdict));
  std::int64_t admitted = 0;
  for (const CheckResult& check : result.checks) admitted += check.by_regrouping;
  EXPECT_GT(admitted, 0);
  EXPECT_GT(outside(lerp(), true, result), 0) << "the formula as it is written does not admit them";
  EXPECT_TRUE(convicts(result.verdict));
}

}  // namespace
}  // namespace ampcheck::checks
