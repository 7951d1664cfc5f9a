// SPDX-License-Identifier: Apache-2.0
// Is one build of an op faster than another? From pairs of calls at the same tensors, taken in turns, with a bootstrap
// over the pairs: Efron, "Bootstrap methods: another look at the jackknife", Annals of Statistics 7 (1979).
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "checks/run/runner.h"

namespace ampcheck::checks {

/// same: the two differ by less than what the place of code and data in memory makes. unsure: it may be either.
enum class Pace : std::uint8_t { same, fast, slow, unsure };
std::string_view name(Pace pace);

/// Of one pass of an op in one case: pairs of seconds, the base's and the build's.
using SecondPairs = std::vector<std::array<double, 2>>;

struct Speed {
  Pace pace = Pace::unsure;
  double ratio = 1;          ///< time of the build over that of the base, of the sums over the cases
  double low = 1, high = 1;  ///< 99 % of the resamples lie between
  double seconds[2] = {0, 0};
  int cases = 0;
};

/// Medians of the pairs, summed over the cases. Fewer than 4 pairs in all: unsure.
Speed speed_of(const std::vector<SecondPairs>& cases);

struct PassSpeeds {
  Speed forward, backward;
};

/// Runs at most 64 of the cases, evenly chosen, with both builds in this process, one at a time. The ops have the same
/// signature.
PassSpeeds measure_speed(const OpDef& base, const OpDef& build, const std::vector<OpCall>& cases,
                         const RunOptions& options);

}  // namespace ampcheck::checks
