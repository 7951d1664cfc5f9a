// SPDX-License-Identifier: Apache-2.0
// How much likelier a kernel's numbers are under a named cause than under what explains nothing: the declared contract,
// one factor for all, errors of a size that is fitted to them. A cause that does not beat these says no more than they.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "checks/case/wrong_tensor.h"

namespace ampcheck::checks {

/// Where a cause expects an element before it is stored, and how far from there its errors take it.
struct Expected {
  double value, error;
};

/// log10 of the likelihood ratio of all elements against the declared contract. Of each the error is distributed by
/// Laplace's law about the expected value, as wide as half a unit of storage and the contract's own error together. The
/// declared contract's own error is taken as large as its bound, the interval's radius, so that the ratio errs in its
/// favour. Elements that either leaves open do not count.
double log10_odds(const Interval& declared, std::span<const double> got,
                  const std::function<Expected(std::size_t)>& other);

/// What explains nothing and is likeliest all the same, with its ratio against the declared contract.
struct Rival {
  std::string words;
  double log10 = 0;
};

/// The likeliest of: the declared contract; some elements off by one factor; some elements off by errors of a common
/// size, as a share of the value or of one size for all. A fitted number costs half of log10 of the number of elements
/// (Schwarz 1978), as it can be chosen to the data.
Rival likeliest_rival(const Interval& declared, std::span<const double> got, std::span<const std::int64_t> outside);

/// Odds of less are no evidence: 10 : 1.
inline constexpr double kTellingOdds = 1;

/// The odds of a cause against the likeliest of these.
struct Odds {
  double log10 = 0;
  std::string rival;
};
Odds odds_of(const WrongTensor& wrong, const std::function<Expected(std::size_t)>& cause);

/// "(declared: fp32; 10^22 : 1 against errors of no known origin)"; of odds below ten that the numbers do not tell.
std::string against(const std::string& declared, const Odds& odds);

}  // namespace ampcheck::checks
