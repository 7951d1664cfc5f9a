// SPDX-License-Identifier: Apache-2.0
// Are the errors of one build worse than those of another, beyond chance? Both lie inside what rounding may do; a
// kernel that sums in another order makes other errors of the same kind, and one that lost a few bits larger ones.
//
// Every test asks how likely what is seen would be if the builds had changed places: no size is typed anywhere. A case
// is one toss of the coin. Elements of a tensor are not: one rounded mean, sum or factor may move all of them together.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "checks/run/profile.h"

namespace ampcheck::checks {

/// How often a run may call a build worse that is not.
inline constexpr double kFalseAlarms = 1e-3;

/// One tensor over the cases in which it differs.
struct TensorChange {
  int changed = 0;                      ///< cases
  int same = 0;                         ///< of these: compute what another one computes, and have no vote
  int larger = 0, smaller = 0;          ///< of the others: the usual error (rms) is larger, smaller
  int larger_max = 0, smaller_max = 0;  ///< the largest error is larger, smaller
  int further = 0, nearer = 0;          ///< the mean error is further from 0, nearer
  std::int64_t not_finite = 0;          ///< more elements that are wrongly finite or wrongly not, in all
  double rms_was = 0, rms_now = 0;      ///< over all these cases
  double max_was = 0, max_now = 0;
  double p_usual = 1, p_max = 1, p_bias = 1;  ///< how likely that is by chance

  int votes() const { return changed - same; }
  /// What is worse, in words, where the tests of a run share this level; empty: nothing is.
  std::string worse(double level) const;
  /// Votes that the tests need at this level to find anything.
  static int needed(double level);
};

/// A tensor before and after, in one case.
using ProfilePair = std::pair<const TensorProfile*, const TensorProfile*>;

/// Of pairs that differ, one for each case.
TensorChange change_of(const std::vector<ProfilePair>& pairs);

/// The level of each test of a run that makes that many comparisons of tensors.
double level_of(std::size_t tensors);

}  // namespace ampcheck::checks
