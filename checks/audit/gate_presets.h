// SPDX-License-Identifier: Apache-2.0
// The tolerance rules of known projects and benchmarks, by name, for `ampcheck audit gate --preset`.
#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "checks/audit/gate_rules.h"

namespace ampcheck::checks {

struct GatePreset {
  const char* name;
  const char* where;                       ///< who compares so, and at what
  std::optional<GateRule> (*rule)(Dtype);  ///< nothing for a storage type of which the project states no rule
};

/// In the order of the table that `--preset all` prints.
std::span<const GatePreset> gate_presets();

/// Null if there is none of that name.
const GatePreset* find_preset(std::string_view name);

}  // namespace ampcheck::checks
