// SPDX-License-Identifier: Apache-2.0
// Whether what a finding says of a kernel is so: held against numbers that it was not said of.
#pragma once

#include "checks/case/options.h"
#include "checks/define/op_def.h"
#include "src/finding.h"
#include "src/op_call.h"

namespace ampcheck::checks {

/// Whether the changes that a finding of this case states give the kernel's numbers in calls of the kernel at data and
/// at extents that nobody has looked at. False where it states another kind of cause, or where no further call is wrong
/// at the same extents.
bool reproduced(const OpDef& op, const OpCall& call, const CheckResult& finding, const RunOptions& options);

}  // namespace ampcheck::checks
