// SPDX-License-Identifier: Apache-2.0
// Tensors of one launch held against the forms block by block of rows: of most elements a bound says enough.
#pragma once

#include <vector>

#include "checks/case/case_run.h"

namespace ampcheck::checks {

/// Judges tensors of one launch block by block of rows. True if that shows every element inside some form's interval.
/// `held`, of each: what an accumulating buffer held before; empty where nothing is added to.
bool judge_by_rows(CaseRun& run, const std::vector<Subject>& subjects, Pass pass,
                   const std::vector<std::vector<double>>& held, std::vector<Comparison>& comparisons);

}  // namespace ampcheck::checks
