// SPDX-License-Identifier: Apache-2.0
// How one check of an audit ended: of a scaler, a training step, an autocast.
#pragma once

#include <cstdint>

namespace ampcheck {

enum class AuditOutcome : std::uint8_t {
  passed,
  not_asked,  ///< what is audited has nothing to ask
  weak,       ///< as its rule says, and the rule loses something
  failed
};

/// "passed", "not asked", "WEAK", "FAILED".
constexpr const char* name(AuditOutcome outcome) {
  constexpr const char* kNames[] = {"passed", "not asked", "WEAK", "FAILED"};
  return kNames[static_cast<int>(outcome)];
}

}  // namespace ampcheck
