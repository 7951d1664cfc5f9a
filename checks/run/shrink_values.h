// SPDX-License-Identifier: Apache-2.0
// Which of its numbers a failing case takes to fail. The name of a case draws all of them together, so what is found
// here is words.
#pragma once

#include <string>

#include "checks/run/runner.h"

namespace ampcheck::checks {

/// Brings inputs and cotangents of a case, whose deciding finding is a wrong value of one tensor, down to zero as long
/// as that tensor stays wrong in the same way: all, by tensors, by halves, so that few numbers among n take about 2 log
/// n launches each; the few that are left then become 1 or a power of two. Domains without zero take 1 (positive) or
/// 0.5 (unit interval); integers, masks and probabilities stay. "x[1,2] = 3, the rest 0";
/// empty where more than four numbers are left, or after `most_tries` launches, and for findings of other kinds, ops
/// without a formula, strided layouts and data of files.
std::string values_that_matter(const OpDef& op, const OpCall& call, const CaseResult& result, const RunOptions& options,
                               int most_tries = 40);

}  // namespace ampcheck::checks
