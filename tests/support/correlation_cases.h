// SPDX-License-Identifier: Apache-2.0
// Right kernels are put to the test for shared errors of rows: the built-in ops and the zoo's correct variants.
#pragma once

#include <gtest/gtest.h>

#include "checks/judge/bias.h"
#include "checks/judge/correlation.h"
#include "checks/zoo/zoo.h"

namespace ampcheck::checks {

inline std::vector<CheckResult> correlations_of(const OpDef& op, Dtype dtype, std::uint64_t seed) {
  OpCall call = default_call(op.signature, dtype);
  call.seed = seed;
  const RunOptions options;
  CaseRun run(op, call, options);
  check_correlation(run);
  return run.checks;
}

inline std::vector<const OpDef*> right_ops() {
  std::vector<const OpDef*> out;
  for (const OpDef& op : all_ops()) out.push_back(&op);
  for (const zoo::Specimen& specimen : zoo::specimens())
    if (specimen.correct()) out.push_back(&specimen.op);
  return out;
}

/// How many tensors of a right kernel are tested at a seed. None may be convicted, and none of bf16 is tested.
inline int expect_no_correlation(const OpDef& op, std::uint64_t seed) {
  EXPECT_TRUE(correlations_of(op, Dtype::bf16, seed).empty()) << op.signature.name;
  const std::vector<CheckResult> checks = correlations_of(op, Dtype::fp32, seed);
  for (const CheckResult& check : checks)
    EXPECT_EQ(check.code, Code::none) << op.signature.name << " " << check.name() << " seed " << seed << ": "
                                      << check.cause;
  return static_cast<int>(checks.size());
}

}  // namespace ampcheck::checks
