// SPDX-License-Identifier: Apache-2.0
// What `audit zoo` shows of its trials.
#pragma once

#include <string>
#include <vector>

#include "checks/audit/audit.h"
#include "checks/audit/cheat_audit.h"
#include "tools/report/json.h"

namespace ampcheck::tools {

struct ZooAudit {
  std::vector<checks::zoo::Trial> trials;
  std::vector<checks::zoo::CheatTrial> cheats;
  double seconds = 0;
};

/// Whether the goals of checks/audit/audit.h are met, and every kernel that deceives is found and named.
bool all_well(const ZooAudit& audit);

std::string text_of(const ZooAudit& audit, bool verbose);
Json json_of(const ZooAudit& audit);
/// The same as a page that loads nothing.
std::string html_of(const ZooAudit& audit);

}  // namespace ampcheck::tools
