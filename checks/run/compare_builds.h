// SPDX-License-Identifier: Apache-2.0
// Two builds of one op at the same inputs: which is nearer to the reference, where their bits differ, which is faster.
#pragma once

#include <string>
#include <vector>

#include "checks/run/runner.h"

namespace ampcheck::checks {

/// One output or gradient over all cases. Index 0 is build A, 1 is B.
struct ComparedTensor {
  std::string name;
  std::int64_t elements = 0;                     ///< finite in both builds and in the reference
  double mean[2] = {0, 0}, largest[2] = {0, 0};  ///< |got - reference| in units of what rounding may do to the element:
                                                 ///< how far its interval goes on that side, at least half an ulp
  std::int64_t compared = 0, differ = 0;         ///< elements, and those whose bits differ
  std::string first;                             ///< where they differ first: case and index
};

/// Least time of a pass in each case, and how the builds compare in pairs of calls at the same tensors, taken in turns.
struct ComparedTime {
  double seconds[2] = {0, 0};  ///< sum over the cases
  int faster[2] = {0, 0};      ///< cases in which one is faster, in each half of the pairs
  /// 0 or 1: that build is faster in more cases than chance explains (sign test, 1 in 1000), and by more than 5 % over
  /// all of them; -1: neither.
  int winner() const;
};

struct ComparedBuilds {
  std::vector<ComparedTensor> tensors;
  ComparedTime forward, backward;
  int cases = 0;
  /// 0 or 1: nearer on average in every tensor, or nearer in some and equal in the others; -1: neither.
  int nearer() const;
};

/// Runs every case with both builds in this process, one at a time. The ops have the same signature. Cases of ops
/// without a formula have no reference, and add times alone.
ComparedBuilds compare_builds(const OpDef& a, const OpDef& b, const std::vector<OpCall>& cases,
                              const RunOptions& options);

/// What two signatures differ in, in words; empty if calls of one are calls of the other.
std::string signature_difference(const OpSignature& a, const OpSignature& b);

}  // namespace ampcheck::checks
