// SPDX-License-Identifier: Apache-2.0
// What the cases of an op could see: the share of the radius that each primitive of its formula contributed.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "checks/case/case_run.h"

namespace ampcheck::checks {

class Coverage {
 public:
  void see(const std::string& primitive, double share) {
    double& best = best_[primitive];
    best = share > best ? share : best;
  }
  bool knows(const std::string& primitive) const { return best_.contains(primitive); }
  double share(const std::string& primitive) const {
    const auto found = best_.find(primitive);
    return found == best_.end() ? 0.0 : found->second;
  }
  void merge(const Coverage& other) {
    for (const auto& [primitive, share] : other.best_) see(primitive, share);
  }
  /// Largest share of each primitive over elements and cases; 0 for one that no regime made visible.
  std::vector<Contribution> contributions() const;

 private:
  std::map<std::string, double> best_;
};

/// Whether the radius of an element decides: not where it left the compute type's range on the way.
bool judged_by_interval(const reference::Ball& ball, std::int64_t i);

/// Shares at one case; empty for cases too large to evaluate once more per primitive.
Coverage coverage_of(const OpDef& op, const OpCall& call);

/// Counts elements outside the calibrated interval as unusual: `sum` scaled by what replays in fp32 really lose.
void calibrate(CaseRun& run, const LaunchResult& forward);

/// Certifies every variant of an op: attributes and optional inputs.
Certificate certificate_of(const OpDef& op);

}  // namespace ampcheck::checks
