// SPDX-License-Identifier: Apache-2.0
#include "checks/explain/odds.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace ampcheck::checks {

namespace {

/// log of Laplace's density, without its factor 1/2.
double log_density(double off, double width) { return -std::log(width) - std::fabs(off) / width; }

}  // namespace

double log10_odds(const Interval& declared, std::span<const double> got,
                  const std::function<Expected(std::size_t)>& other) {
  const FloatFormat& f = format(declared.dtype);
  double sum = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (!declared.how.empty() && declared.how[i] != Judgement::interval) continue;
    const double value = declared.value[i];
    const Expected expected = other(i);
    const double stored = std::max(f.unit_roundoff() * std::fabs(value), f.min_subnormal() / 2);
    const double here = log_density(got[i] - value, std::hypot(stored, declared.radius[i]));
    const double there = log_density(got[i] - expected.value, std::hypot(stored, expected.error));
    if (std::isfinite(here) && std::isfinite(there)) sum += there - here;
  }
  return sum / std::log(10.0);
}

std::string against(const std::string& declared, double log10_odds) {
  constexpr double kCertain = 1000;  // a larger number says no more
  if (log10_odds > kCertain) return fmt::format("(declared: {}, more than 10^{} : 1 against it)", declared, kCertain);
  return log10_odds < 1 ? fmt::format("(declared: {})", declared)
                        : fmt::format("(declared: {}, 10^{:.0f} : 1 against it)", declared, std::floor(log10_odds));
}

}  // namespace ampcheck::checks
