// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include "checks/run/speed.h"

#include <algorithm>
#include <cmath>

#include "src/random.h"

namespace ampcheck::checks {

namespace {

constexpr int kResamples = 1000;
constexpr double kOutside = 0.005;  ///< of the resamples, at either end
constexpr std::size_t kFewest = 4;  ///< pairs
/// Where code and data happen to lie moves a kernel by a few per cent, which no repetition in one process averages out:
/// calls of 2 us in two builds of the same code were seen 8 % apart (Mytkowicz et al., "Producing wrong data without
/// doing anything obviously wrong", ASPLOS 2009, has as much).
constexpr double kOfPlace = 1.1;

double median(std::vector<double>& values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

/// Sums over the cases of the median of each side; `pick`: which pair of a case stands at a place.
template <class Pick>
std::array<double, 2> sums_of(const std::vector<SecondPairs>& cases, const Pick& pick) {
  std::array<double, 2> out = {0, 0};
  std::vector<double> side[2];
  for (std::size_t c = 0; c < cases.size(); ++c) {
    if (cases[c].empty()) continue;
    for (auto& values : side) values.clear();
    for (std::size_t i = 0; i < cases[c].size(); ++i) {
      const std::array<double, 2>& pair = cases[c][pick(c, i)];
      side[0].push_back(pair[0]);
      side[1].push_back(pair[1]);
    }
    out[0] += median(side[0]);
    out[1] += median(side[1]);
  }
  return out;
}

}  // namespace

std::string_view name(Pace pace) {
  switch (pace) {
    case Pace::same: return "SAME";
    case Pace::fast: return "FAST";
    case Pace::slow: return "SLOW";
    case Pace::unsure: return "UNSURE";
  }
  return "UNSURE";
}

Speed speed_of(const std::vector<SecondPairs>& cases) {
  Speed out;
  std::size_t pairs = 0;
  for (const SecondPairs& one : cases) {
    pairs += one.size();
    out.cases += !one.empty();
  }
  if (pairs < kFewest) return out;
  const std::array<double, 2> sums = sums_of(cases, [](std::size_t, std::size_t i) { return i; });
  out.seconds[0] = sums[0];
  out.seconds[1] = sums[1];
  if (!(sums[0] > 0) || !(sums[1] > 0)) return out;  // too short for the clock
  out.ratio = sums[1] / sums[0];
  std::vector<double> ratios;
  for (std::uint64_t r = 0; r < kResamples; ++r) {
    const Random random(r, "speed");
    std::uint64_t index = 0;
    const std::array<double, 2> drawn =
        sums_of(cases, [&](std::size_t c, std::size_t) { return random.below(index++, cases[c].size()); });
    ratios.push_back(drawn[0] > 0 ? drawn[1] / drawn[0] : HUGE_VAL);  // too short for the clock
  }
  std::sort(ratios.begin(), ratios.end());
  const auto outside = static_cast<std::size_t>(kOutside * kResamples);
  out.low = ratios[outside];
  out.high = ratios[ratios.size() - 1 - outside];
  if (out.low > kOfPlace)
    out.pace = Pace::slow;
  else if (out.high < 1 / kOfPlace)
    out.pace = Pace::fast;
  else if (out.low >= 1 / kOfPlace && out.high <= kOfPlace)
    out.pace = Pace::same;
  return out;
}

}  // namespace ampcheck::checks
