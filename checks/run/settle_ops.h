// SPDX-License-Identifier: Apache-2.0
// What the cases of an op say together.
#pragma once

#include <string>
#include <vector>

#include "checks/define/case.h"
#include "src/finding.h"

namespace ampcheck::checks {

/// A low accumulator is a property of the kernel: if most failing cases of an op whose causes were looked for are wrong
/// in ways that it does not explain, the few that it fits are chance.
void settle_contract_by_op(std::vector<CaseResult>& cases);

/// Of an op whose calls differ with the same data, comparisons of two calls say that again, in whatever case: rows,
/// strides, scaled cotangents, batches. Such findings become that one.
void settle_intermittent(std::vector<CaseResult>& cases);

/// Of an op whose calls depend on earlier ones, or that writes after it has returned, wrong numbers and broken
/// relations say that again. Such findings become that one.
void settle_history(std::vector<CaseResult>& cases);

/// Where each extent of a dimension was tried and few of them alone are wrong, the causes say which.
void settle_extents(const std::vector<Case>& cases, std::vector<CaseResult>& results);

/// Nearly every backward follows another algebra than the derivative of its formula, and a forward that is off by
/// little may. Where nothing else is known, the author of a kernel is told.
void suggest_forms(std::vector<CaseResult>& cases);

/// What kernels printed, an op a line; a crash says it in its cause.
std::vector<std::string> printed_by(const std::vector<CaseResult>& cases);
/// Ops whose kernels left their thread with another rounding mode, locale or signal mask.
std::vector<std::string> states_left_by(const std::vector<CaseResult>& cases);

}  // namespace ampcheck::checks
