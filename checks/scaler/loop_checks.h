// SPDX-License-Identifier: Apache-2.0
// The checks L1 to L20 of a training step under a loss scale.
#pragma once

#include <span>

#include "checks/scaler/call_checks.h"
#include "checks/scaler/loop.h"
#include "src/amp/scale_rule.h"
#include "src/error.h"

namespace ampcheck::checks::scaler {

/// A reply that cannot be judged: no weights, no scale, another scale than was asked for, a right call that fails.
struct LoopError : Error {
  using Error::Error;
};

/// L1 to L20.
std::span<const CallCheck> loop_checks();

/// `rule`: that a loop's own scale is to follow. Results are in the order of loop_checks(); `sequences` are runs,
/// `calls` steps. Throws LoopError.
CallAudit audit_loop(Loop& loop, const ScaleRule& rule);

}  // namespace ampcheck::checks::scaler
