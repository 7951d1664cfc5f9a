// SPDX-License-Identifier: Apache-2.0
#include "checks/judge/noise.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace ampcheck::checks {

double deviations() { return std::sqrt(2 * std::log(2 / kChance)); }

double noise_level(std::vector<double> values) {
  const std::size_t n = values.size();
  std::vector<double> level;
  std::vector<char> alternates;
  double gamma = 1;
  for (std::size_t order = 1; order < n; ++order) {
    double sum = 0, least = 0, most = 0;
    std::size_t zeros = 0;
    for (std::size_t i = 0; i + order < n; ++i) {
      const double d = values[i] = values[i + 1] - values[i];
      sum += d * d;
      zeros += d == 0;
      least = std::min(least, d);
      most = std::max(most, d);
    }
    if (order == 1 && 2 * zeros >= n) return 0;
    const auto k = static_cast<double>(order);
    gamma *= 0.5 * k / (2 * k - 1);  // (k!)^2 / (2k)!: differences of order k of unit noise have variance 1 / gamma
    level.push_back(std::sqrt(gamma * sum / static_cast<double>(n - order)));
    alternates.push_back(least < 0 && most > 0);
    if (level.back() == 0) return 0;  // a polynomial, exactly
  }
  for (std::size_t k = 0; k + 2 < level.size(); ++k) {
    const auto [least, most] = std::minmax({level[k], level[k + 1], level[k + 2]});
    if (most <= 4 * least && alternates[k]) return most;
  }
  return *std::max_element(level.begin() + 2, level.end());
}

double scatter(int values) {
  constexpr double kNormalQuantile = 3.0902;  // at 1 - 1e-3
  const double dof = values - 2, part = 2 / (9 * dof);
  return std::pow(1 - part + kNormalQuantile * std::sqrt(part), 1.5);
}

namespace {

double centred(const Step& s) { return (s.above - s.below) / (2 * s.h); }
double bend(const Step& s) { return (s.above + s.below) / s.h; }
double noise_of(const Step& s) { return s.noise / (2 * s.h); }

}  // namespace

Slope slope_of(const std::vector<Step>& steps) {
  Slope best;
  std::vector<Slope> seen;
  for (std::size_t k = 1; k + 1 < steps.size(); ++k) {
    const Step &half = steps[k - 1], &at = steps[k], &twice = steps[k + 1];
    const double d = centred(at), first = d - centred(half), second = centred(twice) - d;
    const double truncation =
        4.0 / 3 * std::fabs(first) + std::fabs(second - 4 * first) + std::fabs(2 * bend(half) - bend(at));
    const double noise = noise_of(at) + 4.0 / 3 * (noise_of(at) + noise_of(half));
    seen.push_back({std::isfinite(d + truncation + noise), d, truncation + noise, at.h});
    if (seen.back().settled && (!best.settled || seen.back().bound < best.bound)) best = seen.back();
  }
  for (const Slope& other : seen)
    if (other.settled && other.step < best.step && std::fabs(other.value - best.value) > other.bound + best.bound)
      best.settled = false;
  return best;
}

}  // namespace ampcheck::checks
