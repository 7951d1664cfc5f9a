// SPDX-License-Identifier: Apache-2.0
#include "src/launch_facts.h"

#include <algorithm>
#include <utility>

namespace ampcheck {

namespace {
constexpr std::size_t kMost = 64;  ///< launches of a case repeat themselves
thread_local std::vector<LaunchFact> facts;
}  // namespace

void keep_launch_fact(LaunchFact fact) {
  if (facts.size() < kMost && std::find(facts.begin(), facts.end(), fact) == facts.end())
    facts.push_back(std::move(fact));
}
const std::vector<LaunchFact>& launch_facts() { return facts; }
void forget_launch_facts() { facts.clear(); }

}  // namespace ampcheck
