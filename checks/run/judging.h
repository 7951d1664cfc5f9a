// SPDX-License-Identifier: Apache-2.0
// The cases of a run while they are judged, several at a time.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "checks/case/options.h"
#include "checks/reach/aim.h"
#include "checks/reach/coverage.h"
#include "checks/reach/decide.h"
#include "checks/run/budget.h"

namespace ampcheck::checks {

/// The cases of a run, their results, and what they saw; cases come to it as others show what for.
class Judging {
 public:
  Judging(const std::vector<Case>& chosen, const RunOptions& options, Budget& budget, bool explained);

  std::vector<Case> cases;
  std::vector<CaseResult> results;  ///< of each case
  std::vector<char> ran;
  std::map<std::string, Coverage> coverage;
  std::int64_t refused = 0;
  std::vector<Aimed> aimed;
  std::vector<Decision> decided;

  bool cancelled() const { return options_.cancel != nullptr && options_.cancel->load(); }

  /// What the cases left unseen of the formulas, and the outputs that they left blind.
  void go_on();

 private:
  void add(std::vector<Aimed> more);
  void judge_from(std::size_t first);
  /// False if the run was interrupted.
  bool judge(std::size_t i);

  const RunOptions& options_;
  Budget& budget_;
  const bool explained_;
  std::mutex mutex_;
  std::size_t done_ = 0;
};

}  // namespace ampcheck::checks
