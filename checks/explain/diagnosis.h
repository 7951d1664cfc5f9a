// SPDX-License-Identifier: Apache-2.0
// Likely causes that need no other formula than the op's own.
#pragma once

#include <string>
#include <vector>

#include "checks/case/case_run.h"

namespace ampcheck::checks {

/// Likely cause of a failed comparison, in words; empty if nothing fits.
std::string likely_cause(const OpCall& call, const Comparison& comparison, const Interval& interval,
                         const std::vector<double>& got);

/// Whether there are several numbers and all are zero: any change of a formula that leaves nothing gives them.
bool all_zero(const std::vector<double>& got);

/// What an accumulating buffer seems to have got instead of what it held plus the gradient, in words; empty if nothing
/// fits.
std::string added_otherwise(const Comparison& comparison, const Interval& interval, const std::vector<double>& held,
                            const std::vector<double>& got);

/// Whether the wrong elements are all wrong by one factor: the errors of sums have either sign and no common size.
bool off_by_one_factor(const Comparison& comparison, const Interval& interval, const std::vector<double>& got);

/// Words if the wrong elements are those of a sum that leaves out its last term or its tail; empty otherwise.
std::string dropped_terms(CaseRun& run, const Written& tensor, Pass pass, const std::vector<double>& got,
                          const Comparison& comparison, const Interval& interval);

/// Words if the numbers are those of the formula, rounded toward zero on the way to a 16-bit storage; empty otherwise.
std::string truncated(CaseRun& run, const Written& tensor, Pass pass, const std::vector<double>& got);

/// Whether a replay of the formula that adds in order, in 16 bits, gives the tensor as the kernel wrote it; then with
/// its words. Cheap, and as sure as a changed formula that gives it.
bool surely_low_accumulation(CaseRun& run, const Written& tensor, Pass pass, const std::vector<double>& got,
                             const Comparison& comparison, const Interval& interval, std::string& words);

/// Whether accumulation in the storage type explains the failed elements of a tensor.
bool explained_by_low_accumulation(CaseRun& run, const Written& tensor, Pass pass, const std::vector<double>& got,
                                   const Comparison& comparison, const Interval& interval, std::string& words);

}  // namespace ampcheck::checks
