// SPDX-License-Identifier: Apache-2.0
// How much likelier a kernel's numbers are under another precision contract than under the declared one.
#pragma once

#include <functional>
#include <span>
#include <string>

#include "checks/case/interval.h"

namespace ampcheck::checks {

/// Where a contract expects an element before it is stored, and how far from there its errors take it.
struct Expected {
  double value, error;
};

/// log10 of the likelihood ratio of all elements against the declared contract. Of each the error is distributed by
/// Laplace's law about the expected value, as wide as half a unit of storage and the contract's own error together. The
/// declared contract's own error is taken as large as its bound, the interval's radius, so that the ratio errs in its
/// favour. Elements that either leaves open do not count.
double log10_odds(const Interval& declared, std::span<const double> got,
                  const std::function<Expected(std::size_t)>& other);

/// "(declared: fp32, 10^22 : 1 against it)"; without the ratio where it is below ten.
std::string against(const std::string& declared, double log10_odds);

}  // namespace ampcheck::checks
