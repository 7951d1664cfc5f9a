// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include "checks/judge/one_sided.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "checks/case/wrong_tensor.h"
#include "checks/judge/kink_limits.h"

namespace ampcheck::checks {

namespace {

constexpr std::size_t kMost = 16;                  ///< elements that are looked at: each takes a few evaluations
constexpr std::uint64_t kPairs = 3;                ///< random directions and their opposites
constexpr double kFar = 0x1p-19, kNear = 0x1p-25;  ///< nudges, relative to the inputs

/// Elements without a value for which the kernel has something else than 0; evenly spread.
std::vector<std::size_t> without_value(const Interval& interval, const std::vector<double>& got) {
  std::vector<std::size_t> all;
  for (std::size_t i = 0; i < interval.how.size(); ++i)
    if (interval.how[i] == Judgement::open && std::isnan(interval.value[i]) && got[i] != 0) all.push_back(i);
  return spread(all, kMost);
}

double size_of(const KinkLimits& limits, std::size_t i) {
  return std::max(std::fabs(limits.low(i)), std::fabs(limits.high(i)));
}

/// Largest sizes of the gradient beside these inputs at random cotangents: where those at hand are 0, anything is.
std::vector<double> sizes_of(const KinkLimits& limits, const Written& tensor) {
  std::vector<double> out(limits.size(), 0.0);
  for (const KinkLimits::Choice& choice : limits.choices(Random(1, "one-sided"), {&tensor}))
    for (std::size_t i = 0; i < out.size(); ++i)
      if (const double v = std::fabs(choice.gradients.front().value[i]); v > out[i]) out[i] = v;  // NaN: still at it
  return out;
}

/// Its own copies of the numbers: those of an interval may be a ball's.
void separate(Interval& interval) {
  for (Numbers* const numbers : {&interval.value, &interval.radius, &interval.low, &interval.high})
    *numbers = numbers->separate();
}

}  // namespace

std::string judge_one_sided(CaseRun& run, const Written& tensor, Pass pass, const std::vector<double>& got,
                            Interval& interval, Comparison& comparison) {
  if (pass != Pass::backward || comparison.range == 0 || !interval.leaves_finite ||
      tensor.shape.count() > kLargestExplained)
    return "";
  const std::vector<std::size_t> open = without_value(interval, got);
  if (open.empty()) return "";
  Interval none = interval;  // limits add to what is declared: nothing here
  separate(none);
  for (const std::size_t i : open) {
    none.low[i] = HUGE_VAL;
    none.high[i] = -HUGE_VAL;
    none.radius[i] = 0;
  }
  KinkLimits far(run, tensor, pass, none, kFar), near(run, tensor, pass, none, kNear);
  if (!far.usable()) return "";
  const Random random(1, "one-sided");
  for (std::uint64_t pair = 0; pair < kPairs; ++pair) {
    far.add_pair(random, pair, std::nullopt);
    near.add_pair(random, pair, std::nullopt);
  }
  const std::vector<double> sizes = sizes_of(far, tensor), nearer = sizes_of(near, tensor);
  separate(interval);
  std::string words;
  for (const std::size_t i : open) {
    // What grows as the nudge shrinks has no one-sided derivative.
    if (!std::isfinite(size_of(far, i)) || !(size_of(near, i) <= 2 * size_of(far, i))) continue;
    if (!(nearer[i] <= 2 * sizes[i]) || sizes[i] == 0 || std::isinf(sizes[i])) continue;
    const KinkLimits::Pushed alone = far.pushed(i);
    if (!alone.bounded) continue;
    const double low = std::min(far.low(i), alone.low), high = std::max(far.high(i), alone.high),
                 room = far.may_move(std::max(std::fabs(low), std::fabs(high)));
    double ends[2] = {low - room, high + room};
    round_ends(tensor.dtype, ends);
    interval.how[i] = Judgement::interval;
    interval.value[i] = low + (high - low) / 2;
    interval.radius[i] = (high - low) / 2 + room;
    interval.low[i] = ends[0];
    interval.high[i] = ends[1];
    --comparison.range;
    if (admits(interval, static_cast<std::int64_t>(i), got[i])) continue;
    auto& outside = comparison.outside;
    outside.insert(std::lower_bound(outside.begin(), outside.end(), static_cast<std::int64_t>(i)),
                   static_cast<std::int64_t>(i));
    if (words.empty())
      words = fmt::format("the formula has no derivative here, and its one-sided ones lie between {:.6g} and {:.6g}",
                          low, high);
  }
  return words;
}

}  // namespace ampcheck::checks
