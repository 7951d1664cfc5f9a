// SPDX-License-Identifier: Apache-2.0
#include "checks/judge/kink_limits.h"

#include <algorithm>
#include <cmath>

#include "src/rounding.h"

namespace ampcheck::checks {

namespace {

constexpr std::size_t kNeighbours = 32;  ///< sets of elements nudged to find those that share with one
constexpr std::uint64_t kStreams = 0x9e3779b97f4a7c15;
constexpr double kWide = 0x1p-8;        ///< a radius, of its value, that holds both sides of a choice,
constexpr double kWider = 1.25;         ///< if it is so much wider than the declared one
constexpr double kSlope = 0x1p9;        ///< nudges by which a smooth gradient may move
constexpr double kRoom = 0x1p12;        ///< nudges by which one of two limits may have moved
constexpr double kGrouped = 0x1p-20;    ///< of a limit: what another grouping of its sums may round otherwise
constexpr std::uint64_t kChoices = 10;  ///< pairs of nudges at random cotangents

double part_of(Cotangents which, double g, const Random& weights, std::uint64_t at) {
  switch (which) {
    case Cotangents::as_given: return g;
    case Cotangents::positive_part: return std::max(g, 0.0);
    case Cotangents::negative_part: return std::min(g, 0.0);
    case Cotangents::size: return std::fabs(g);
    case Cotangents::random_positive: return 1 + weights.uniform(at);
    case Cotangents::other_random_positive: return 1 + weights.uniform(at + (std::uint64_t{1} << 40));
  }
  return g;
}

/// Of the numbers other than zero; 1 where there is none.
double smallest_size(const std::vector<double>& values) {
  double smallest = HUGE_VAL;
  for (const double v : values)
    if (v != 0) smallest = std::min(smallest, std::fabs(v));
  return std::isfinite(smallest) ? smallest : 1.0;
}

std::pair<double, double> sum_of(const Interval& limit, const std::vector<std::size_t>& which) {
  double from = 0, to = 0;
  for (const std::size_t i : which) {
    from += limit.low[i];
    to += limit.high[i];
  }
  return {from, to};
}

}  // namespace

std::vector<std::size_t> spread(const std::vector<std::size_t>& all, std::size_t most) {
  const std::size_t count = std::min(all.size(), most);
  std::vector<std::size_t> out;
  for (std::size_t k = 0; k < count; ++k) out.push_back(all[k * all.size() / count]);
  return out;
}

KinkLimits::KinkLimits(CaseRun& run, const Written& tensor, Pass pass, const Interval& declared, double nudge)
    : run_(run),
      tensor_(tensor),
      pass_(pass == Pass::backward_at_saved ? Pass::backward : pass),
      declared_(declared),
      nudge_(nudge) {
  if (of_backward())
    for (const TensorSpec& spec : run_.op.signature.inputs)
      if (gradient_name(spec.name) == tensor.name) input_ = spec.name;
  if (of_backward() && run.accumulates(tensor.name)) held_ = run.held(tensor);
  low_.assign(declared.low.begin(), declared.low.end());
  high_.assign(declared.high.begin(), declared.high.end());
  most_low_ = low_;
  least_high_ = high_;
}

/// The case at inputs moved along `u(stream, i)`. Zeros move by the smallest other number of their tensor, so as to
/// stay below all others, or, where that is lost beside what they are compared with, by one.
template <class U>
CaseReference KinkLimits::moved(const U& u, bool zeros_by_one, Cotangents cotangents) const {
  NamedValues inputs = run_.reference.inputs();
  double largest = 0x1p62;
  for (const auto& [name, values] : inputs)
    for (const double v : values)
      if (std::isfinite(v)) largest = std::max(largest, std::fabs(v));
  const double for_infinity = std::min(
      4 * largest, kFp32.max_finite());  // equal infinities tie too; it stays the largest, and sums of it finite
  for (auto& [name, values] : inputs) {
    const TensorSpec* const spec = run_.op.signature.input(name);
    if (spec == nullptr || !is_float(run_.call.dtype(*spec))) continue;
    const double of_zero = zeros_by_one ? 1.0 : smallest_size(values);
    const Stream stream{name, hash_name(name), name == input_};
    for (std::size_t i = 0; i < values.size(); ++i) {
      double& v = values[i];
      if (std::isinf(v)) v = std::copysign(for_infinity, v);
      if (std::isfinite(v)) v += nudge_ * u(stream, i) * (v != 0 ? std::fabs(v) : of_zero);
    }
  }
  CaseReference there(run_.op, run_.call, std::move(inputs), run_.options.device);
  if (pass_ == Pass::jvp) there.set_tangents(run_.reference.tangents());
  if (!of_backward()) return there;
  NamedValues given = run_.reference.cotangents();
  for (auto& [name, values] : given) {
    const Random weights(1, "kinks/" + name);
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = part_of(cotangents, values[i], weights, i);
  }
  there.set_cotangents(std::move(given));
  return there;
}

NamedValues KinkLimits::reach(const NamedValues& inputs) const {
  constexpr double kFarthest = 3;  // nudges, of an element that is pushed
  NamedValues radii;
  for (const auto& [name, values] : inputs) {
    const TensorSpec* const spec = run_.op.signature.input(name);
    if (spec == nullptr || !is_float(run_.call.dtype(*spec))) continue;
    const double of_zero = std::max(1.0, smallest_size(values));  // whichever way it is moved
    for (const double v : values)
      radii[name].push_back(std::isfinite(v) ? kFarthest * nudge_ * (v != 0 ? std::fabs(v) : of_zero) : 0.0);
  }
  return radii;
}

bool KinkLimits::decided(const std::vector<reference::Expr>& choices) const {
  CaseReference here = moved([](const Stream&, std::size_t) { return 0.0; }, false, Cotangents::as_given);
  const std::size_t form = here.forms().front();
  std::vector<reference::Expr> nodes;  // of its own recording of the form, which is the same
  for (const reference::Expr& choice : choices) nodes.push_back(here.recording(form).graph->at(choice.id));
  return here.decided_around(form, pass_, nodes, reach(here.inputs()));
}

bool KinkLimits::surely_smooth(const std::vector<std::int64_t>& elements) const {
  constexpr double kExact = 2;  // a radius beside that at inputs of few digits, of which some results are exact
  const auto still = [](const Stream&, std::size_t) { return 0.0; };
  const auto at_random = [random = Random(1, "kinks")](const Stream& stream, std::size_t i) {
    return 2 * random.uniform(stream.base * 0x10001 + i) - 1;
  };
  CaseReference here = moved(still, false, Cotangents::as_given), nudged = moved(at_random, true, Cotangents::as_given);
  const Interval there = limit(here, tensor_, held_), beside = limit(nudged, tensor_, held_);
  const Interval around =
      here.interval_around(here.forms().front(), pass_, tensor_.name, tensor_.dtype, reach(here.inputs()), held_);
  const auto judged = [](const Interval& of, std::size_t i) {
    return (of.how.empty() || of.how[i] == Judgement::interval) && std::isfinite(of.value[i]) &&
           std::isfinite(of.radius[i]);
  };
  return std::any_of(elements.begin(), elements.end(), [&](std::int64_t at) {
    const auto i = static_cast<std::size_t>(at);
    if (!judged(there, i) || !judged(beside, i) || !judged(around, i)) return false;
    const double size = std::fabs(there.value[i]), little = may_move(size) / 4;
    return there.radius[i] <= kWide * size && beside.radius[i] <= kExact * there.radius[i] + little &&
           around.radius[i] <= kWider * beside.radius[i] + little;
  });
}

Interval KinkLimits::limit(CaseReference& there, const Written& tensor, std::span<const double> held) const {
  return there.interval(there.forms().front(), pass_, tensor.name, tensor.dtype, held);
}

double KinkLimits::may_move(double size) const { return kSlope * nudge_ * size; }

bool KinkLimits::jumps(double from, double to) const {
  if (std::isinf(from) || std::isinf(to)) return to > from;
  return to > from + may_move(std::max(std::fabs(from), std::fabs(to)));
}

bool KinkLimits::lies(double got, double low, double high) const {
  const double grouped = run_.op.plugin.empty() ? 0 : kGrouped;  // built-in ops list what kernels compute
  const double size = std::max(std::fabs(low), std::fabs(high)),
               room = std::isfinite(size) ? (kRoom * nudge_ + grouped) * size : 0;
  return got >= low - room && got <= high + room;
}

void KinkLimits::add(Interval limit) {
  for (std::size_t i = 0; i < low_.size(); ++i) {
    undecided_ |= limit.radius[i] > kWide * std::fabs(limit.value[i]) && limit.radius[i] > kWider * declared_.radius[i];
    low_[i] = std::min(low_[i], limit.low[i]);
    high_[i] = std::max(high_[i], limit.high[i]);
    most_low_[i] = std::max(most_low_[i], limit.low[i]);
    least_high_[i] = std::min(least_high_[i], limit.high[i]);
  }
  all_.push_back(std::move(limit));
}

void KinkLimits::add_pair(const Random& random, std::uint64_t which, std::optional<std::size_t> push) {
  // Of very many that tie, the one that a tangent makes the winner is hardly met at random.
  if (pass_ == Pass::jvp && which == 1) {
    for (const double sign : {1.0, -1.0}) {
      const auto along = [&](const Stream& stream, std::size_t i) {
        const auto tangent = run_.reference.tangents().find(tangent_name(stream.name));
        return tangent == run_.reference.tangents().end()
                   ? 0.0
                   : sign * tangent->second[i] / (1 + std::fabs(tangent->second[i]));
      };
      CaseReference there = moved(along, false, Cotangents::as_given);
      add(limit(there, tensor_));
    }
    return;
  }
  for (const double sign : {1.0, -1.0}) {
    const auto u = [&](const Stream& stream, std::size_t i) {
      const double far = push == i && stream.own ? 2.0 : 0.0;
      return sign * (far + 2 * random.uniform((which * kStreams + stream.base) * 0x10001 + i) - 1);
    };
    CaseReference there = moved(u, which / 2 % 2 == 1, Cotangents::as_given);
    add(limit(there, tensor_, held_));
  }
}

KinkLimits::Pushed KinkLimits::pushed(std::size_t i) const {
  Pushed out{.bounded = true};
  for (const Cotangents part : {Cotangents::positive_part, Cotangents::negative_part}) {
    double from = HUGE_VAL, to = -HUGE_VAL, least_high = HUGE_VAL, most_low = -HUGE_VAL;
    for (const bool by_one : {false, true})
      for (const double sign : {1.0, -1.0}) {
        if (by_one && run_.reference.inputs().at(input_)[i] != 0) continue;
        CaseReference there =
            moved([&](const Stream& stream, std::size_t k) { return stream.own && k == i ? sign : 0.0; }, by_one, part);
        const Interval ends = limit(there, tensor_);
        if (!ends.how.empty() && ends.how[i] != Judgement::interval) return {};
        const double below = ends.value[i] - ends.radius[i], above = ends.value[i] + ends.radius[i];
        from = std::min(from, below);
        to = std::max(to, above);
        most_low = std::max(most_low, below);
        least_high = std::min(least_high, above);
      }
    out.smooth &= !jumps(least_high, most_low);
    out.low += from;
    out.high += to;
  }
  const double held = held_.empty() ? 0 : held_[i];
  double ends[2] = {held + out.low - declared_.radius[i], held + out.high + declared_.radius[i]};
  round_ends(tensor_.dtype, ends);
  out.low = ends[0];
  out.high = ends[1];
  return out;
}

std::vector<std::size_t> KinkLimits::neighbours(std::size_t i, std::size_t& spent) const {
  std::vector<std::size_t> found{i}, open{i};
  std::vector<char> moves(size(), 0), known(size(), 0);
  known[i] = 1;
  const auto moved_by = [&](double sign) {
    CaseReference there =
        moved([&](const Stream& stream, std::size_t k) { return stream.own && moves[k] ? sign : 0.0; }, false,
              Cotangents::size);
    return limit(there, tensor_);
  };
  for (std::size_t tries = 0; tries < kNeighbours; ++tries, ++spent) {
    const bool all = open.empty();
    const std::vector<std::size_t> moving = all ? found : std::vector{open.back()};
    if (!all) open.pop_back();
    for (const std::size_t k : moving) moves[k] = 1;
    const Interval up = moved_by(1), down = moved_by(-1);
    for (const std::size_t k : moving) moves[k] = 0;
    for (std::size_t k = 0; k < size(); ++k)
      if ((up.low[k] > down.high[k] || down.low[k] > up.high[k]) && !std::exchange(known[k], 1)) {
        found.push_back(k);
        open.push_back(k);
      }
    if (!all || !open.empty()) continue;
    const auto [up_low, up_high] = sum_of(up, found);
    const auto [down_low, down_high] = sum_of(down, found);
    return up_low > down_high || down_low > up_high ? std::vector{i} : found;
  }
  return {};
}

bool KinkLimits::sum_is_wrong(const std::vector<std::size_t>& which, const std::vector<double>& got, double& due,
                              double& sum) const {
  double low = -HUGE_VAL, high = HUGE_VAL, least = HUGE_VAL, most = -HUGE_VAL, radius = 0;
  for (const Interval& limit : all_) {
    double here = 0;
    for (const std::size_t i : which) here += limit.radius[i];
    radius = std::max(radius, here);
    const auto [from, to] = sum_of(limit, which);
    low = std::max(low, from);
    high = std::min(high, to);
    least = std::min(least, from);
    most = std::max(most, to);
    due = (from + to) / 2;
  }
  // Another choice has other numbers to round: each of those that are there, here or in the limits, is at most an ulp
  // from one that is not.
  const FloatFormat& stored = format(tensor_.dtype);
  sum = 0;
  for (const std::size_t i : which) {
    sum += got[i];
    radius += 2 * stored.unit_roundoff() * std::max({std::fabs(got[i]), std::fabs(low_[i]), std::fabs(high_[i])}) +
              stored.min_subnormal();
  }
  return low <= high && (sum < least - radius || sum > most + radius);
}

std::vector<KinkLimits::Choice> KinkLimits::choices(const Random& random,
                                                    const std::vector<const Written*>& gradients) const {
  std::vector<Choice> out;
  for (std::uint64_t which = 0; which < kChoices; ++which)
    for (const double sign : {1.0, -1.0}) {
      const bool together = which < 2;
      const auto u = [&](const Stream& stream, std::size_t i) {
        return sign *
               (together ? 1.0 : 2 * random.uniform(((which + (1u << 20)) * kStreams + stream.base) * 0x10001 + i) - 1);
      };
      CaseReference there = moved(u, which / 2 % 2 == 1,
                                  which % 2 == 0 ? Cotangents::random_positive : Cotangents::other_random_positive);
      Choice& choice = out.emplace_back();
      choice.cotangents = which % 2;
      for (const Written* gradient : gradients) {
        Interval& kept = choice.gradients.emplace_back(limit(there, *gradient));
        kept.low = kept.high = {};  // nobody asks for them, and these are many
      }
    }
  return out;
}

std::vector<Interval> KinkLimits::moved_among(const Random& random, std::uint64_t which,
                                              const std::vector<const Written*>& gradients,
                                              const std::vector<std::vector<char>>& members) const {
  const std::string* of = nullptr;
  const std::vector<char>* moves = nullptr;
  const auto u = [&](const Stream& stream, std::size_t i) {
    if (of != &stream.name) {
      of = &stream.name;
      moves = nullptr;
      for (std::size_t t = 0; t < members.size(); ++t)
        if (gradient_name(stream.name) == gradients[t]->name) moves = &members[t];
    }
    if (moves == nullptr || !(*moves)[i]) return 0.0;
    return which < 2 ? (which == 0 ? 1.0 : -1.0)
                     : 2 * random.uniform(((which + (1u << 21)) * kStreams + stream.base) * 0x10001 + i) - 1;
  };
  CaseReference there = moved(u, false, Cotangents::random_positive);
  std::vector<Interval> out;
  for (std::size_t t = 0; t < members.size(); ++t) out.push_back(limit(there, *gradients[t]));
  return out;
}

std::vector<Interval> KinkLimits::one_choice(const Random& random, const std::vector<const Written*>& gradients) const {
  CaseReference there =
      moved([&](const Stream& stream, std::size_t i) { return 2 * random.uniform(stream.base * 0x10001 + i) - 1; },
            false, Cotangents::as_given);
  std::vector<Interval> out;
  for (const Written* gradient : gradients)
    out.push_back(
        limit(there, *gradient, run_.accumulates(gradient->name) ? run_.held(*gradient) : std::vector<double>()));
  return out;
}

}  // namespace ampcheck::checks
