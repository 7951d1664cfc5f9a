// SPDX-License-Identifier: Apache-2.0
// The checks S1 to S23 of a loss scaler, and the search through all sequences of calls.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "checks/scaler/calls.h"
#include "src/audit_outcome.h"

namespace ampcheck::checks::scaler {

using Outcome = AuditOutcome;

struct CallCheck {
  const char* code;  ///< "S1"
  const char* name;
  const char* asks;
};
/// S1 to S23.
std::span<const CallCheck> call_checks();

struct CheckResult {
  const CallCheck* check = nullptr;
  Outcome outcome = Outcome::not_asked;
  std::string says;                ///< what the rule says and what happened
  std::vector<std::string> calls;  ///< the shortest sequence that shows it
  std::string setup;
};

struct CallAudit {
  std::vector<CheckResult> results;  ///< in the order of call_checks()
  std::int64_t sequences = 0, calls = 0;
  double seconds = 0;  ///< of the search
  int longest = 0;     ///< all sequences up to this length were tried

  /// The failure that explains the others; null without one.
  const CheckResult* headline() const;
};

/// `built_in`: what its rule itself loses is WEAK, not FAILED. `longest`: of the sequences that are all tried; 8
/// without, and 5 of a subject that answers slowly.
CallAudit audit_calls(Subject& subject, const ScaleRule& rule, std::optional<int> longest = {});

}  // namespace ampcheck::checks::scaler
