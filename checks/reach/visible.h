// SPDX-License-Identifier: Apache-2.0
// An output that every case of a selection leaves blind was judged by nobody: where would it show?
#pragma once

#include <string>
#include <vector>

#include "checks/define/case.h"
#include "src/finding.h"

namespace ampcheck::checks {

/// What a search over all regimes and small shapes found.
struct VisibleCase {
  std::string name;        ///< of the case with the largest share of elements that are not blind; empty: none
  double share = 0;        ///< that share
  std::int64_t tried = 0;  ///< cases whose reference was looked at; no kernel runs
};

/// Share of the elements of an output or gradient that are judged at a case and are not
/// zero; of several probes the largest. On the reference alone.
double visible_share(const OpDef& op, const OpCall& call, const CheckId& subject);

/// Searches a case of one storage type at which `subject` (forward or backward of a tensor) can be judged. Ends with
/// the first that shows most of it.
VisibleCase find_visible_case(const OpDef& op, Dtype storage, const CheckId& subject, std::uint64_t seed);

/// Writes what such searches found into the findings (AC202) of `results`, one search a subject. `cases`: what was run.
void say_where_visible(const std::vector<Case>& cases, std::vector<CaseResult>& results);

/// The same for the notes (AC202) of one case, for somebody who asks for that case alone.
void say_where_visible(const OpDef& op, const OpCall& call, CaseResult& result);

}  // namespace ampcheck::checks
