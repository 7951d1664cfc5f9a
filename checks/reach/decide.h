// SPDX-License-Identifier: Apache-2.0
// A case that leaves an output blind judges nothing of it. Where no other case does, or none so large, it is decided at
// one that does: of the same extents with data whose sums are exact or far from zero, or of the same data at extents
// where the bound is sharp.
#pragma once

#include <atomic>
#include <string>
#include <vector>

#include "checks/define/case.h"
#include "src/finding.h"

namespace ampcheck::checks {

/// Where one output is decided.
struct Decision {
  const OpDef* op = nullptr;
  CheckId subject;              ///< forward or backward of a tensor
  OpCall blind;                 ///< the case
  bool everywhere = true;       ///< blind in every case; otherwise in the largest ones
  std::vector<OpCall> at = {};  ///< to be run; none: nothing was found
};

/// `results` of `cases`, one by one; an empty name: not run. In parallel, and the same for any number of threads.
std::vector<Decision> decisions(const std::vector<Case>& cases, const std::vector<CaseResult>& results,
                                const std::atomic<bool>* cancel);

/// What came of them, a line each; without `all` of those alone that are blind everywhere, or found wrong. `results`:
/// of what was run.
std::vector<std::string> decision_notes(const std::vector<Decision>& decided, const std::vector<CaseResult>& results,
                                        bool all);

/// ILL_CONDITIONED: an output that every case of a real selection leaves blind was judged by nobody. A handful of cases
/// may rightly all be blind (one element, a vanishing gradient): returns a note for each such output.
std::vector<std::string> convict_unseen_outputs(std::vector<CaseResult>& cases);

}  // namespace ampcheck::checks
