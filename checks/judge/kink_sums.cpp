// SPDX-License-Identifier: Apache-2.0
#include "checks/judge/kink_sums.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>

#include "src/index.h"

namespace ampcheck::checks {

namespace {

constexpr double kSeen = 0.25;         ///< of the smallest jump: what sums that agree may be uncertain by, at most
constexpr int kAsked = 8;              ///< groups whose own elements are nudged
constexpr double kOtherSum = 0x1p-20;  ///< of a share: what its own sum may round otherwise, besides the storage

/// A way to divide elements into groups, and how to name a group by one of its elements.
struct Grouping {
  std::size_t groups;
  std::size_t tensors;            ///< the first ones of the launch
  std::vector<std::uint32_t> of;  ///< empty: all in one
  std::function<std::string(std::size_t i)> name;
  std::size_t group(std::size_t i) const { return of.empty() ? 0 : of[i]; }
};

/// What limits at random cotangents say of each element of a tensor.
struct Seen {
  std::vector<double> jump, size;  ///< jump: 0 where it is smooth, NaN where nothing is known
};

/// What is known of one group.
struct Group {
  bool open = false;
  double smallest_jump = HUGE_VAL, size = 0, width = 0;  ///< at random cotangents; `width` of the widest limit
  double most_low[2] = {-HUGE_VAL, -HUGE_VAL}, least_high[2] = {HUGE_VAL, HUGE_VAL};  ///< by cotangents
  double due = 0, sum = 0, room = 0;
};

/// Radii relative to the values, typically: what another share of them may be off by.
double relative_radius(const Interval& interval) {
  double value = 0, radius = 0;
  for (std::size_t i = 0; i < interval.value.size(); ++i)
    if (std::isfinite(interval.value[i]) && std::isfinite(interval.radius[i])) {
      value += std::fabs(interval.value[i]);
      radius += interval.radius[i];
    }
  return value > 0 ? std::min(radius / value, 1.0) : 0;
}

Seen seen_of(const std::vector<KinkLimits::Choice>& choices, std::size_t tensor) {
  const std::size_t n = choices.front().gradients[tensor].value.size();
  Seen out{std::vector<double>(n), std::vector<double>(n)};
  for (std::size_t i = 0; i < n; ++i) {
    double low[2] = {HUGE_VAL, HUGE_VAL}, high[2] = {-HUGE_VAL, -HUGE_VAL}, radius = 0;
    bool finite = true;
    for (const KinkLimits::Choice& choice : choices) {
      const Interval& limit = choice.gradients[tensor];
      finite &= (limit.how.empty() || limit.how[i] == Judgement::interval) && std::isfinite(limit.value[i]) &&
                std::isfinite(limit.radius[i]);
      double &least = low[choice.cotangents], &most = high[choice.cotangents];
      least = std::min(least, limit.value[i]);
      most = std::max(most, limit.value[i]);
      radius = std::max(radius, limit.radius[i]);
    }
    const double jump = std::max(high[0] - low[0], high[1] - low[1]) - 2 * radius;
    out.size[i] = std::max({std::fabs(low[0]), std::fabs(high[0]), std::fabs(low[1]), std::fabs(high[1])});
    out.jump[i] = !finite ? NAN : jump > 0x1p-8 * out.size[i] ? jump : 0;
  }
  return out;
}

void see_limits(const Grouping& by, const Seen& seen, std::vector<Group>& groups) {
  for (std::size_t i = 0; i < seen.size.size(); ++i) {
    Group& group = groups[by.group(i)];
    group.open |= std::isnan(seen.jump[i]);
    group.size += seen.size[i];
    if (seen.jump[i] > 0) group.smallest_jump = std::min(group.smallest_jump, seen.jump[i]);
  }
}

void see_sums(const Grouping& by, const std::vector<KinkLimits::Choice>& choices, std::vector<Group>& groups) {
  for (const KinkLimits::Choice& choice : choices) {
    std::vector<double> value(groups.size()), radius(groups.size());
    const std::size_t c = choice.cotangents;
    for (std::size_t t = 0; t < by.tensors; ++t)
      for (std::size_t i = 0; i < choice.gradients[t].value.size(); ++i) {
        value[by.group(i)] += choice.gradients[t].value[i];
        radius[by.group(i)] += choice.gradients[t].radius[i];
      }
    for (std::size_t g = 0; g < groups.size(); ++g) {
      double &low = groups[g].most_low[c], &high = groups[g].least_high[c];
      low = std::max(low, value[g] - radius[g]);
      high = std::min(high, value[g] + radius[g]);
      groups[g].width = std::max(groups[g].width, radius[g]);
    }
  }
}

void see_numbers(const Grouping& by, const Gradient& gradient, const Interval& due, std::vector<Group>& groups) {
  const FloatFormat& stored = format(gradient.tensor->dtype);
  const double share = kOtherSum + relative_radius(due);
  for (std::size_t i = 0; i < gradient.got.size(); ++i) {
    const double got = gradient.got[i], value = due.value[i], radius = due.radius[i];
    Group& group = groups[by.group(i)];
    group.open |= !std::isfinite(got) || !std::isfinite(value) || !std::isfinite(radius);
    group.sum += got;
    group.due += value;
    group.room += radius + 2 * stored.unit_roundoff() * std::max(std::fabs(got), std::fabs(value)) +
                  share * std::fabs(got - value) + (got != 0 || value != 0 ? stored.min_subnormal() : 0.0);
  }
}

/// Whether the sum of that group depends on how its elements stand to each other or to all others: kinks of their own,
/// or shares with others. Two such kinks keep a sum in every other direction by chance.
bool changes(const Grouping& by, std::size_t group, const KinkLimits& limits,
             const std::vector<const Written*>& tensors, double uncertain) {
  constexpr std::uint64_t kDirections = 26;
  std::vector<std::vector<char>> members;
  for (std::size_t t = 0; t < by.tensors; ++t) {
    std::vector<char>& these = members.emplace_back(static_cast<std::size_t>(tensors[t]->shape.count()), 0);
    for (std::size_t i = 0; i < these.size(); ++i) these[i] = by.group(i) == group;
  }
  const Random random(1, "kinks");
  double low = HUGE_VAL, high = -HUGE_VAL;
  for (std::uint64_t which = 0; which < kDirections; ++which) {
    const std::vector<Interval> gradients = limits.moved_among(random, which, tensors, members);
    double sum = 0;
    for (std::size_t t = 0; t < by.tensors; ++t)
      for (std::size_t i = 0; i < members[t].size(); ++i) sum += members[t][i] ? gradients[t].value[i] : 0;
    low = std::min(low, sum);
    high = std::max(high, sum);
    if (!(high - low <= uncertain)) return true;
  }
  return false;
}

std::string wrong_in(const Grouping& by, const std::vector<Gradient>& gradients,
                     const std::vector<KinkLimits::Choice>& choices, const std::vector<Seen>& seen,
                     const std::vector<Interval>& due, const std::vector<std::int64_t>& outside,
                     const KinkLimits& limits) {
  std::vector<Group> groups(by.groups);
  std::vector<const Written*> tensors;
  for (const Gradient& gradient : gradients) tensors.push_back(gradient.tensor);
  for (std::size_t t = 0; t < by.tensors; ++t) see_limits(by, seen[t], groups);
  see_sums(by, choices, groups);
  for (std::size_t t = 0; t < by.tensors; ++t) see_numbers(by, gradients[t], due[t], groups);
  int asked = 0;
  std::vector<char> known(by.groups, 0);
  for (const std::int64_t i : outside) {
    const std::size_t which = by.group(static_cast<std::size_t>(i));
    const Group& group = groups[which];
    const double moved = limits.may_move(group.size);
    if (group.open || !std::isfinite(group.smallest_jump) || 2 * group.width + moved > kSeen * group.smallest_jump)
      continue;
    const bool agree =
        group.most_low[0] <= group.least_high[0] + moved && group.most_low[1] <= group.least_high[1] + moved;
    if (!agree || !(std::fabs(group.sum - group.due) > group.room + moved)) continue;
    if (std::exchange(known[which], 1)) continue;
    if (++asked > kAsked) break;
    if (changes(by, which, limits, tensors, 2 * group.width + moved)) continue;
    return fmt::format("no subgradient: {} have {:.9g} together, where every choice among those that tie gives {:.9g}",
                       by.name(static_cast<std::size_t>(i)), group.sum, group.due);
  }
  return "";
}

/// f(i) for each of n elements.
template <class F>
std::vector<std::uint32_t> ids(std::size_t n, const F& f) {
  std::vector<std::uint32_t> out(n);
  for (std::size_t i = 0; i < n; ++i) out[i] = static_cast<std::uint32_t>(f(i));
  return out;
}

std::vector<Grouping> groupings_of(const std::vector<Gradient>& gradients) {
  const Written& tensor = *gradients.front().tensor;
  const Shape shape = tensor.shape;
  const auto count = static_cast<std::size_t>(shape.count());
  const auto at = [&tensor](std::size_t i) { return index_text(tensor.shape, static_cast<std::int64_t>(i)); };
  std::vector<Grouping> out;
  for (int axis = shape.rank - 1; axis >= 0; --axis) {
    std::size_t inner = 1;
    for (int k = axis + 1; k < shape.rank; ++k) inner *= static_cast<std::size_t>(shape[k]);
    const auto extent = static_cast<std::size_t>(shape[axis]);
    if (extent < 2) continue;
    out.push_back({count / extent, 1,
                   ids(count, [=](std::size_t i) { return i / (inner * extent) * inner + i % inner; }),
                   [=, &tensor](std::size_t i) {
                     return fmt::format("the elements of {} along axis {} through {}", tensor.name, axis, at(i));
                   }});
    const std::size_t block = inner * extent;
    if (inner > 1 && block < count)
      out.push_back(
          {count / block, 1, ids(count, [=](std::size_t i) { return i / block; }), [=, &tensor](std::size_t i) {
             return fmt::format("the elements of {} of the last {} axes around {}", tensor.name,
                                tensor.shape.rank - axis, at(i));
           }});
  }
  out.push_back({1, 1, {}, [&tensor](std::size_t) { return "all elements of " + tensor.name; }});
  std::size_t alike = 1;
  std::string names = tensor.name;
  for (; alike < gradients.size() && gradients[alike].tensor->shape == shape; ++alike)
    names += " and " + gradients[alike].tensor->name;
  if (alike > 1)
    out.push_back({count, alike, ids(count, [](std::size_t i) { return i; }),
                   [=](std::size_t i) { return fmt::format("{} at {}", names, at(i)); }});
  if (gradients.size() > 1)
    out.push_back({1, gradients.size(), {}, [](std::size_t) { return std::string("all gradients"); }});
  return out;
}

}  // namespace

std::string wrong_sum(const std::vector<Gradient>& gradients, const std::vector<KinkLimits::Choice>& choices,
                      const std::vector<Interval>& due, const std::vector<std::int64_t>& outside,
                      const KinkLimits& limits) {
  std::vector<Seen> seen;
  for (std::size_t t = 0; t < gradients.size(); ++t) seen.push_back(seen_of(choices, t));
  for (const Grouping& by : groupings_of(gradients))
    if (std::string words = wrong_in(by, gradients, choices, seen, due, outside, limits); !words.empty()) return words;
  return "";
}

}  // namespace ampcheck::checks
