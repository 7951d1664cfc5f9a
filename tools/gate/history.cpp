// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include "tools/gate/history.h"

#include <algorithm>

namespace ampcheck::tools {

constexpr std::size_t kMostRemembered = 20;

std::map<std::string, double> largest_errors(const Baseline& baseline) {
  std::map<std::string, double> out;
  for (const auto& [name, stored] : baseline.cases)
    for (const auto& [tensor, profile] : stored.tensors) {
      double& largest = out[tensor];
      largest = std::max(largest, profile.max);
    }
  return out;
}

void remember(const Baseline& before, Baseline& next) {
  next.history = before.history;
  if (before.accepted.on.empty()) return;
  next.history.push_back(before.accepted);
  next.history.back().largest = largest_errors(before);
  if (next.history.size() > kMostRemembered) next.history.erase(next.history.begin());
}

std::vector<ErrorHistory> histories_of(const std::vector<OpGate>& gates, const std::vector<const Baseline*>& before) {
  std::vector<ErrorHistory> out;
  for (std::size_t i = 0; i < gates.size(); ++i) {
    const Baseline* const state = before[i];
    if (state == nullptr || state->accepted.on.empty()) continue;
    Baseline accepted, now;
    remember(*state, accepted);
    for (const auto& [name, profile] : gates[i].op->cases) now.cases[name].tensors = profile.tensors;
    for (const auto& [tensor, largest] : largest_errors(now)) {
      ErrorHistory history{state->op, tensor};
      for (const Acceptance& then : accepted.history)
        if (const auto known = then.largest.find(tensor); known != then.largest.end())
          history.states.push_back({then.on, then.reason, known->second});
      history.states.push_back({"", "", largest});
      out.push_back(std::move(history));
    }
  }
  return out;
}

}  // namespace ampcheck::tools
