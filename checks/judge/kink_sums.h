// SPDX-License-Identifier: Apache-2.0
// Sums of gradients that no choice at a kink changes: those that tie share what one of them has, however they share it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "checks/judge/kink_limits.h"

namespace ampcheck::checks {

/// A gradient of a launch, as the kernel wrote it.
struct Gradient {
  const Written* tensor;
  std::vector<double> got;
};

/// Words if the numbers of the first of `gradients` do not have the sum that is due: along an axis, over its last axes,
/// over all of it, or, with the others, element by element (of those of its shape) and over all of them. A sum counts
/// if all limits at random cotangents agree on it, closely enough that the smallest jump in it would show, and if one
/// of its numbers is in `outside`. Empty: none is known to be wrong. `due`: the gradients of one choice, at the
/// cotangents of the launch. What the formula's own convention gives need not be one: max(x, 0) + min(x, 0) has a
/// derivative at zero, and each of its terms another convention.
std::string wrong_sum(const std::vector<Gradient>& gradients, const std::vector<KinkLimits::Choice>& choices,
                      const std::vector<Interval>& due, const std::vector<std::int64_t>& outside,
                      const KinkLimits& limits);

}  // namespace ampcheck::checks
