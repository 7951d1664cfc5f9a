// SPDX-License-Identifier: Apache-2.0
// Sequences of actions, each aimed at one check, and the audit that runs them.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "checks/autocast/actions.h"
#include "checks/autocast/policy_check.h"

namespace ampcheck::checks::autocast {

/// Actions that are held against torch's rules.
struct Scenario {
  const char* code = "";
  std::vector<Action> actions = {};
};
/// Those that the subject can be asked.
std::vector<Scenario> scenarios(const AutocastList& list, const Subject& subject);

/// What one wants beyond torch's rules.
struct Ideal {
  const char* code = "";
  std::vector<Action> actions = {};
  std::function<std::string(const std::vector<Reply>&)> judge = {};
};
std::vector<Ideal> ideals(const Subject& subject);

struct RulesAudit {
  Results results;
  std::int64_t sequences = 0, actions = 0;
};
/// Scenarios, and if they pass random sequences of actions. `sequences`: how many of these.
RulesAudit audit_rules(Subject& subject, const AutocastList& list, AutocastDevice device, int sequences = 400);

}  // namespace ampcheck::checks::autocast
