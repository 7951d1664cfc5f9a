// SPDX-License-Identifier: Apache-2.0
// Departures from a contract that explain every number of one tensor in case after case.
#pragma once

#include <map>
#include <string>

#include "checks/explain/departures.h"

namespace ampcheck::checks {

/// log10 of how likely an element outside is: the bounds are certain, our reading of the cases nearly.
inline constexpr double kImpossibleElement = -30;

/// A formula is recorded anew for every shape, so departures are known by their words, their form and how often these
/// came before. One that misses a number is given up. Beside those of checks/explain/departures.h: truncation to a
/// 16-bit storage, and its subnormal numbers as zero.
class TriedDepartures {
 public:
  /// One case of the tensor. `weighed`: whether it counts in how likely they are.
  void see(CaseRun& run, Pass pass, const Written& tensor, const std::vector<double>& got, bool weighed);

  struct Best {
    std::string words, function;  ///< as in Departure; empty if none explains every number
    std::string next;             ///< words of the next best one; empty: there is none
    double surety = 0;            ///< log10 against that, or else against the declared contract
  };
  Best best() const;

 private:
  struct Tried {
    std::string words, function;
    Departure::Kind kind = Departure::Kind::narrowed;
    Explained seen;
    std::size_t cases = 0, place = 0;  ///< in the order of listing: of equally good ones the simplest comes first
  };
  std::map<std::string, Tried> all_;
  std::size_t cases_ = 0;
  double declared_ = 0;
};

}  // namespace ampcheck::checks
