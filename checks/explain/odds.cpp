// SPDX-License-Identifier: Apache-2.0
#include "checks/explain/odds.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "checks/explain/median.h"

namespace ampcheck::checks {

namespace {

/// log of Laplace's density, without its factor 1/2.
double log_density(double off, double width) { return -std::log(width) - std::fabs(off) / width; }

/// log of p e^a + (1 - p) e^b.
double log_mixture(double p, double a, double b) {
  const double first = std::log(p) + a, second = std::log1p(-p) + b, most = std::max(first, second);
  return most + std::log1p(std::exp(std::min(first, second) - most));
}

bool counts(const Interval& interval, std::size_t i) {
  return interval.how.empty() || interval.how[i] == Judgement::interval;
}

/// Half a unit of storage at a value.
double stored(const Interval& interval, std::size_t i) {
  const FloatFormat& f = format(interval.dtype);
  return std::max(f.unit_roundoff() * std::fabs(interval.value[i]), f.min_subnormal() / 2);
}

double log_declared(const Interval& declared, std::span<const double> got, std::size_t i) {
  return log_density(got[i] - declared.value[i], std::hypot(stored(declared, i), declared.radius[i]));
}

/// What the elements outside have in common.
struct Fitted {
  double share = 0;   ///< mean error as a share of the value
  double size = 0;    ///< mean error
  double factor = 1;  ///< median of got / value
};

Fitted fitted(const Interval& declared, std::span<const double> got, std::span<const std::int64_t> outside) {
  Fitted out;
  std::vector<double> factors;
  std::size_t all = 0;
  for (const std::int64_t at : outside) {
    const auto i = static_cast<std::size_t>(at);
    const double value = declared.value[i], error = std::fabs(got[i] - value);
    if (!counts(declared, i) || !std::isfinite(error)) continue;
    ++all;
    out.size += error;
    if (value == 0) continue;
    out.share += error / std::fabs(value);
    factors.push_back(got[i] / value);
  }
  out.size /= static_cast<double>(std::max<std::size_t>(all, 1));
  out.share /= static_cast<double>(std::max<std::size_t>(factors.size(), 1));
  out.factor = median(std::move(factors));
  return out;
}

}  // namespace

double log10_odds(const Interval& declared, std::span<const double> got,
                  const std::function<Expected(std::size_t)>& other) {
  double sum = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (!counts(declared, i)) continue;
    const Expected expected = other(i);
    const double here = log_declared(declared, got, i);
    const double there = log_density(got[i] - expected.value, std::hypot(stored(declared, i), expected.error));
    if (std::isfinite(here) && std::isfinite(there)) sum += there - here;
  }
  return sum / std::log(10.0);
}

Rival likeliest_rival(const Interval& declared, std::span<const double> got, std::span<const std::int64_t> outside) {
  const auto n = static_cast<double>(std::max<std::size_t>(got.size(), 2));
  const double share = std::clamp(static_cast<double>(outside.size()) / n, 0.5 / n, 1 - 0.5 / n);
  const Fitted fit = fitted(declared, got, outside);
  // Some elements follow a law with one fitted number, the others the declared contract.
  const auto some = [&](const auto& law) {
    double sum = 0;
    for (std::size_t i = 0; i < got.size(); ++i) {
      if (!counts(declared, i)) continue;
      const Expected expected = law(declared.value[i], declared.radius[i]);
      const double here = log_declared(declared, got, i);
      const double width = std::hypot(stored(declared, i), expected.error);
      const double there = log_mixture(share, log_density(got[i] - expected.value, width), here);
      if (std::isfinite(here) && std::isfinite(there)) sum += there - here;
    }
    return sum / std::log(10.0) - std::log10(n);  // the law's number and the share
  };
  Rival out{"the declared contract", 0};
  const auto better = [&](const std::string& words, double log10) {
    if (log10 > out.log10) out = {words, log10};
  };
  better("errors of no known origin", some([&](double v, double) { return Expected{v, fit.share * std::fabs(v)}; }));
  better("errors of no known origin", some([&](double v, double) { return Expected{v, fit.size}; }));
  better(fmt::format("a factor of {:.4g}", fit.factor), some([&](double v, double r) {
           return Expected{fit.factor * v, r};
         }));
  return out;
}

Odds odds_of(const WrongTensor& wrong, const std::function<Expected(std::size_t)>& cause) {
  const Rival rival = likeliest_rival(wrong.interval, wrong.got, wrong.comparison.outside);
  return {log10_odds(wrong.interval, wrong.got, cause) - rival.log10, rival.words};
}

std::string against(const std::string& declared, const Odds& odds) {
  constexpr double kCertain = 1000;  // a larger number says no more
  if (odds.log10 < kTellingOdds)
    return fmt::format("(declared: {}; the numbers do not tell it from {})", declared, odds.rival);
  if (odds.log10 > kCertain)
    return fmt::format("(declared: {}; more than 10^{} : 1 against {})", declared, kCertain, odds.rival);
  return fmt::format("(declared: {}; 10^{:.0f} : 1 against {})", declared, std::floor(odds.log10), odds.rival);
}

}  // namespace ampcheck::checks
