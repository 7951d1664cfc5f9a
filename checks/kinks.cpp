// SPDX-License-Identifier: Apache-2.0
#include "checks/kinks.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "src/random.h"
#include "src/rounding.h"

namespace ampcheck::checks {

namespace {

using reference::Primitive;

constexpr int kNudges = 48;       ///< at most; two decide every element of an elementwise op
constexpr int kFewNudges = 8;     ///< of any gradient: each keeps its limits, and takes as long as judging it
constexpr std::size_t kNudgedElements = 1 << 24;  ///< of a gradient, times its nudges beyond those
constexpr std::size_t kNeighbours = 32;   ///< single elements nudged to find those that share with one
constexpr std::size_t kSharing = 8;       ///< elements that are asked so, and at most half a kNudgedElements of a gradient's in all
constexpr std::size_t kTries = 16;  ///< of any gradient
constexpr std::size_t kPushedElements = 1 << 18;  ///< of a gradient, times the elements of it that are pushed one at a time

/// Whether a gradient depends on a choice: of an adjoint, these are its masks. Shifts that are held do not count.
bool chooses(const reference::Recording& recording, reference::Expr target) {
  std::vector<char> needed(recording.graph->nodes().size(), 0);
  needed[static_cast<std::size_t>(target.id)] = 1;
  for (std::size_t id = needed.size(); id-- > 0;) {
    if (!needed[id]) continue;
    const reference::Node& node = recording.graph->node(static_cast<int>(id));
    switch (node.primitive) {
      case Primitive::less: case Primitive::less_equal: case Primitive::equal: case Primitive::first_max: case Primitive::sign: return true;
      case Primitive::stop_gradient: case Primitive::no_gradient: continue;
      default: break;
    }
    for (const int arg : node.args) needed[static_cast<std::size_t>(arg)] = 1;
  }
  return false;
}

/// The gradients in the limit of nudged inputs, with what rounding may do to them.
class Limits {
 public:
  Limits(CaseRun& run, const Written& tensor, const Interval& declared, double nudge) : run_(run), tensor_(tensor), declared_(declared), nudge_(nudge) {
    for (const TensorSpec& spec : run.op.signature.inputs)
      if (gradient_name(spec.name) == tensor.name) input_ = spec.name;
    low_.assign(declared.low.begin(), declared.low.end()), high_.assign(declared.high.begin(), declared.high.end());
    most_low_ = low_, least_high_ = high_;
  }
  bool usable() const { return !input_.empty() && run_.reference.inputs().at(input_).size() == low_.size(); }
  std::size_t size() const { return low_.size(); }

  /// Gradients with every float input moved along `u(input, i)`; of the probe's cotangents, or of what `part` makes of each number of them.
  template <class U>
  Interval nudged(const U& u, double (*part)(double) = nullptr) const {
    NamedValues inputs = run_.reference.inputs();
    for (auto& [name, values] : inputs) {
      const TensorSpec* spec = nullptr;
      for (const TensorSpec& s : run_.op.signature.inputs)
        if (s.name == name) spec = &s;
      if (spec == nullptr || !is_float(run_.call.dtype(*spec))) continue;
      double smallest = HUGE_VAL;  // other than zero
      for (const double v : values)
        if (v != 0) smallest = std::min(smallest, std::fabs(v));
      for (double& v : values)
        if (std::isinf(v)) v = std::copysign(0x1p1000, v);  // equal infinities tie too, and stay the largest
      for (std::size_t i = 0; i < values.size(); ++i)
        if (std::isfinite(values[i])) values[i] += nudge_ * u(name, i) * (values[i] != 0 ? std::fabs(values[i]) : std::isfinite(smallest) ? smallest : 1.0);
    }
    CaseReference there(run_.op, run_.call, std::move(inputs));
    NamedValues cotangents = run_.reference.cotangents();
    for (auto& [name, values] : cotangents)
      for (double& g : values) g = part == nullptr ? g : part(g);
    there.set_cotangents(std::move(cotangents));
    return there.interval(there.forms().front(), Pass::backward, tensor_.name, tensor_.dtype);
  }

  void add(Interval limit) {
    for (std::size_t i = 0; i < low_.size(); ++i) {
      undecided_ |= limit.radius[i] > kWide * std::fabs(limit.value[i]) && !(declared_.radius[i] > kWide * std::fabs(limit.value[i]));
      low_[i] = std::min(low_[i], limit.low[i]), high_[i] = std::max(high_[i], limit.high[i]);
      most_low_[i] = std::max(most_low_[i], limit.low[i]), least_high_[i] = std::min(least_high_[i], limit.high[i]);
    }
    all_.push_back(std::move(limit));
  }
  /// In a random direction and its opposite. `push`: the element of the input that moves farther than the others.
  void add_pair(const Random& random, std::uint64_t which, std::optional<std::size_t> push) {
    for (const double sign : {1.0, -1.0}) {
      const auto u = [&](const std::string& name, std::size_t i) {
        const double far = push == i && name == input_ ? 2.0 : 0.0;
        return sign * (far + 2 * random.uniform((which * inputs_ + hash_name(name)) * 0x10001 + i) - 1);
      };
      add(nudged(u));
    }
  }

  /// Element i alone pushed up and down: whether anything depends on that, and the widest that its choices give. Among cotangents of one
  /// sign it has most where it wins them all and least where it loses them all, so the two signs apart bound every choice. False: unbounded.
  bool pushed(std::size_t i, bool& smooth, double& low, double& high) const {
    smooth = true, low = high = 0;
    for (const auto part : {+[](double g) { return std::max(g, 0.0); }, +[](double g) { return std::min(g, 0.0); }}) {
      double from = HUGE_VAL, to = -HUGE_VAL, least_high = HUGE_VAL, most_low = -HUGE_VAL;
      for (const double sign : {1.0, -1.0}) {
        const Interval limit = nudged([&](const std::string& name, std::size_t k) { return name == input_ && k == i ? sign : 0.0; }, part);
        if (!limit.how.empty() && limit.how[i] != Judgement::interval) return false;
        const double below = limit.value[i] - limit.radius[i], above = limit.value[i] + limit.radius[i];
        from = std::min(from, below), to = std::max(to, above), most_low = std::max(most_low, below), least_high = std::min(least_high, above);
      }
      smooth &= !jumps(least_high, most_low);
      low += from, high += to;
    }
    double ends[2] = {low - declared_.radius[i], high + declared_.radius[i]};
    round_values(format(tensor_.dtype), RoundingMode{}, ends, ends);
    low = ends[0], high = ends[1];
    return true;
  }

  /// Whether roundings on the way to a choice are larger than the nudge: then its limits hold both sides.
  bool undecided() const { return undecided_; }
  bool kink(std::size_t i) const { return jumps(least_high_[i], most_low_[i]); }
  bool between(std::size_t i, double got) const { return got >= low_[i] && got <= high_[i]; }
  double low(std::size_t i) const { return low_[i]; }
  double high(std::size_t i) const { return high_[i]; }
  const std::string& input() const { return input_; }

  /// Elements whose gradients change with the sign of a nudge of element i alone, and so on from those, until none but they do where all of
  /// them move: of three that tie, a nudge of one shows another. Of cotangents without a sign: changes of either do not cancel. Element i
  /// alone: their sum changes too, so that it tells nothing. Empty: they are too many. `spent`: the nudges of this are counted there.
  std::vector<std::size_t> neighbours(std::size_t i, std::size_t& spent) const {
    std::vector<std::size_t> found{i}, open{i};
    std::vector<char> moves(size(), 0), known(size(), 0);
    known[i] = 1;
    const auto moved = [&](double sign) {
      return nudged([&](const std::string& name, std::size_t k) { return name == input_ && moves[k] ? sign : 0.0; }, +[](double g) { return std::fabs(g); });
    };
    for (std::size_t tries = 0; tries < kNeighbours; ++tries, ++spent) {
      const bool all = open.empty();
      const std::vector<std::size_t> moving = all ? found : std::vector{open.back()};
      if (!all) open.pop_back();
      for (const std::size_t k : moving) moves[k] = 1;
      const Interval up = moved(1), down = moved(-1);
      for (const std::size_t k : moving) moves[k] = 0;
      for (std::size_t k = 0; k < size(); ++k)
        if ((up.low[k] > down.high[k] || down.low[k] > up.high[k]) && !std::exchange(known[k], 1)) found.push_back(k), open.push_back(k);
      if (!all || !open.empty()) continue;
      const auto [up_low, up_high] = sum_of(up, found);
      const auto [down_low, down_high] = sum_of(down, found);
      return up_low > down_high || down_low > up_high ? std::vector{i} : found;
    }
    return {};
  }
  /// Whether the sum of `got` over some elements is outside what all limits agree on; false where they do not agree.
  bool sum_is_wrong(const std::vector<std::size_t>& which, const std::vector<double>& got, double& due, double& sum) const {
    double low = -HUGE_VAL, high = HUGE_VAL, least = HUGE_VAL, most = -HUGE_VAL, radius = 0;
    for (const Interval& limit : all_) {
      double here = 0;
      for (const std::size_t i : which) here += limit.radius[i];
      radius = std::max(radius, here);
      const auto [from, to] = sum_of(limit, which);
      low = std::max(low, from), high = std::min(high, to), least = std::min(least, from), most = std::max(most, to);
      due = (from + to) / 2;
    }
    // Another choice has other numbers to round: each of those that are there is at most an ulp from one that is not rounded.
    const FloatFormat& stored = format(tensor_.dtype);
    sum = 0;
    for (const std::size_t i : which) sum += got[i], radius += 2 * stored.unit_roundoff() * std::fabs(got[i]) + stored.min_subnormal();
    return low <= high && (sum < least - radius || sum > most + radius);
  }

 private:
  static constexpr std::uint64_t inputs_ = 0x9e3779b97f4a7c15;
  static constexpr double kWide = 0x1p-8, kSlope = 0x1p9;
  static std::pair<double, double> sum_of(const Interval& limit, const std::vector<std::size_t>& which) {
    double from = 0, to = 0;
    for (const std::size_t i : which) from += limit.low[i], to += limit.high[i];
    return {from, to};
  }
  /// Whether two limits are apart by more than what a nudge moves a smooth gradient.
  bool jumps(double from, double to) const { return to > from + kSlope * nudge_ * std::max(std::fabs(from), std::fabs(to)); }
  CaseRun& run_;
  const Written& tensor_;
  const Interval& declared_;
  double nudge_;
  bool undecided_ = false;
  std::string input_;
  std::vector<double> low_, high_, most_low_, least_high_;
  std::vector<Interval> all_;
};

std::string at(const Shape& shape, std::size_t i) {
  std::string out;
  std::int64_t rest = static_cast<std::int64_t>(i);
  for (int axis = shape.rank - 1; axis >= 0; --axis) out = std::to_string(rest % shape[axis]) + (out.empty() ? "" : "," + out), rest /= shape[axis];
  return "[" + out + "]";
}

/// At most so many of them, evenly spread.
std::vector<std::size_t> spread(const std::vector<std::size_t>& all, std::size_t most) {
  const std::size_t count = std::min(all.size(), most);
  std::vector<std::size_t> out;
  for (std::size_t k = 0; k < count; ++k) out.push_back(all[k * all.size() / count]);
  return out;
}

/// at_kink() with nudges of that size; `undecided`: whether they were too small for some choice.
AtKink nudged_kink(CaseRun& run, const Written& tensor, const std::vector<double>& got, const Comparison& comparison, const Interval& interval, double nudge, bool& undecided) {
  Limits limits(run, tensor, interval, nudge);
  if (!limits.usable()) return {};
  const Random random(1, "kinks");
  std::vector<std::size_t> left(comparison.outside.begin(), comparison.outside.end()), smooth = left;
  const int nudges = std::clamp(static_cast<int>(kNudgedElements / limits.size()), kFewNudges, kNudges);
  for (int pair = 0; pair < nudges; ++pair) {
    const auto which = static_cast<std::uint64_t>(pair);
    limits.add_pair(random, which, pair < 2 ? std::nullopt : std::optional(left[random.below(which, left.size())]));
    std::erase_if(smooth, [&](std::size_t i) { return limits.kink(i); });
    std::erase_if(left, [&](std::size_t i) { return limits.kink(i) && limits.between(i, got[i]); });
    undecided = limits.undecided();
    if (left.empty() || (pair + 1 >= kFewNudges && smooth.size() == comparison.outside.size())) break;
  }
  // What nudges of all elements leave open is asked one at a time, until one is found out.
  const auto limits_at = [&](std::size_t i, double low, double high) {
    return fmt::format("at {}{} the one-sided derivatives are {:.6g} and {:.6g}", limits.input(), at(tensor.shape, i), low, high);
  };
  // A kink is what excuses, so it has to be shown: of what never jumped, evenly spread elements, all of them where that is cheap.
  const std::size_t most = std::max(kTries, kPushedElements / limits.size());
  for (const std::size_t i : spread(smooth, most)) {
    bool flat = false;
    double low = 0, high = 0;
    if (!limits.pushed(i, flat, low, high) || flat) return {};
  }
  std::vector<std::size_t> unexcused;
  std::set_union(left.begin(), left.end(), smooth.begin(), smooth.end(), std::back_inserter(unexcused));
  for (const std::size_t i : spread(unexcused, most)) {
    bool flat = false;
    double low = 0, high = 0;
    if (!limits.pushed(i, flat, low, high) || (got[i] >= low && got[i] <= high)) continue;
    if (limits.kink(i)) low = limits.low(i), high = limits.high(i);
    return {AtKink::Kind::no_subgradient, fmt::format("no subgradient: {}, and {:.6g} is not between them (declared: {:.6g})", limits_at(i, low, high), got[i], interval.value[i])};
  }
  std::size_t open = 0, spent = 0;
  for (const std::size_t i : spread({comparison.outside.begin(), comparison.outside.end()}, kSharing)) {
    if (spent * limits.size() > kNudgedElements / 2) break;
    const std::vector<std::size_t> shares = limits.neighbours(i, spent);
    open += shares.empty();
    double due = 0, sum = 0;
    if (shares.size() > 1 && limits.sum_is_wrong(shares, got, due, sum))
      return {AtKink::Kind::no_subgradient, fmt::format("no subgradient: the {} elements that tie with {}{} have {:.6g} together, where every choice among them gives {:.6g}",
                                                        shares.size(), limits.input(), at(tensor.shape, i), sum, due)};
  }
  const auto i = static_cast<std::size_t>(comparison.outside.front());
  const std::vector<Kink>& kinks = run.op.signature.kinks;
  const bool declared = std::any_of(kinks.begin(), kinks.end(), [&](const Kink& kink) { return kink.input == limits.input(); });
  return {declared ? AtKink::Kind::undeclared : AtKink::Kind::subgradient, fmt::format("another subgradient than the declared one: {}; got {:.6g}, declared {:.6g}{}", limits_at(i, limits.low(i), limits.high(i)), got[i], interval.value[i],
                                                 open > 0 ? " (so many elements tie that their sums were not compared)" : "")};
}

}  // namespace

AtKink at_kink(CaseRun& run, const Written& tensor, Pass pass, const std::vector<double>& got, const Comparison& comparison, const Interval& interval) {
  if (pass != Pass::backward && pass != Pass::backward_at_saved) return {};
  if (run.accumulates(tensor.name) || comparison.outside.empty()) return {};
  const reference::Recording& recording = run.reference.recording(run.reference.forms().front());
  reference::Expr target;
  for (const auto& [name, node] : recording.gradients)
    if (name == tensor.name) target = node;
  if (!target.defined() || !chooses(recording, target)) return {};
  // The small ones first: they move nothing else. Where a choice is made of a rounded sum, a few units of the compute type decide it.
  bool undecided = false;
  const AtKink small = nudged_kink(run, tensor, got, comparison, interval, 0x1p-40, undecided);
  return small.kind != AtKink::Kind::none || !undecided ? small : nudged_kink(run, tensor, got, comparison, interval, 0x1p-19, undecided);
}

std::vector<std::string> other_subgradients(const std::vector<CaseResult>& cases) {
  struct Seen {
    std::int64_t cases = 0;
    std::string first;
  };
  std::map<std::string, Seen> seen;
  for (const CaseResult& result : cases) {
    std::set<std::string> here;
    for (const CheckResult& check : result.checks) {
      if (check.code != "AC205" || !here.insert(subject_of(check)).second) continue;
      Seen& all = seen[result.op + " " + subject_of(check)];
      if (all.cases++ == 0) all.first = fmt::format("{}, in '{}'", check.note, result.name);
    }
  }
  std::vector<std::string> out;
  for (const auto& [subject, all] : seen)
    out.push_back(fmt::format("{}: NON_SMOOTH AC205 in {} case{}, which do not fail by it: {}", subject, all.cases, all.cases == 1 ? "" : "s", all.first));
  return out;
}

}  // namespace ampcheck::checks
