// SPDX-License-Identifier: Apache-2.0
// The result of one case, and one of its checks.
#pragma once

#include <string>

#include "checks/data/regimes.h"
#include "checks/define/op_def.h"
#include "checks/run/runner.h"

namespace ampcheck::checks {

/// Null where the case has no check of that name.
inline const CheckResult* check_named(const CaseResult& result, const std::string& name) {
  for (const CheckResult& check : result.checks)
    if (check.name() == name) return &check;
  return nullptr;
}

/// Of the op's default case.
inline CaseResult result_of(const OpDef& op, Dtype dtype, std::uint64_t seed = 1) {
  OpCall call = default_call(op.signature, dtype);
  call.seed = seed;
  return run_case(op, call, {});
}

}  // namespace ampcheck::checks
