// SPDX-License-Identifier: Apache-2.0
#include "checks/judge/kinks.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <set>

#include "checks/judge/kink_limits.h"
#include "checks/judge/kink_sums.h"
#include "src/elements.h"
#include "src/index.h"

namespace ampcheck::checks {

namespace {

using reference::Primitive;

constexpr double kSmall = 0x1p-40;  ///< a nudge that moves nothing but choices
constexpr double kLarge = 0x1p-19;  ///< one that decides a choice between rounded sums
constexpr int kNudges = 48;         ///< at most; two decide every element of an elementwise op
constexpr int kFewNudges = 8;       ///< of any gradient: each keeps its limits, and takes as long as judging it
constexpr std::size_t kNudgedElements = 1 << 24;  ///< of a gradient, times its nudges beyond those
constexpr std::size_t kSurelySmooth =
    1 << 20;  ///< of a gradient, times nudges in which nothing jumps: the third of three is the middle in one of three
constexpr std::size_t kSharing =
    8;  ///< elements whose partners in a tie are looked for one by one, at most; half of kNudgedElements in all
constexpr std::size_t kTries = 16;  ///< elements of any gradient that are pushed
constexpr std::size_t kPushedElements =
    1 << 18;  ///< of a gradient, times the elements of it that are pushed one at a time

/// The choices that a gradient depends on: of an adjoint, these are its masks. Shifts that are held do not count.
std::vector<reference::Expr> choices_of(const reference::Recording& recording, reference::Expr target) {
  std::vector<reference::Expr> out;
  std::vector<char> needed(recording.graph->nodes().size(), 0);
  needed[static_cast<std::size_t>(target.id)] = 1;
  for (std::size_t id = needed.size(); id-- > 0;) {
    if (!needed[id]) continue;
    const reference::Node& node = recording.graph->node(static_cast<int>(id));
    switch (node.primitive) {
      case Primitive::less:
      case Primitive::less_equal:
      case Primitive::equal:
      case Primitive::first_max:
      case Primitive::sign: out.push_back(recording.graph->at(static_cast<int>(id))); break;
      case Primitive::stop_gradient:
      case Primitive::no_gradient: continue;
      default: break;
    }
    for (const int arg : node.args) needed[static_cast<std::size_t>(arg)] = 1;
  }
  return out;
}

/// A gradient, or another tensor of the formula's derivatives, with elements outside of its interval.
struct Suspect : WrongTensor {
  const std::vector<std::int64_t>& outside;
  const std::vector<Subject>& together;
};

std::string one_sided(const Suspect& of, const KinkLimits& limits, std::size_t i, double low, double high) {
  return fmt::format("at {}{} the one-sided derivatives are {:.9g} and {:.9g}",
                     limits.input().empty() ? of.tensor.name : limits.input(),
                     index_text(of.tensor.shape, static_cast<std::int64_t>(i)), low, high);
}

/// Words if sums that no choice changes are not what they have to be: those of the kinds of wrong_sum(), and those of
/// the elements that single nudges show to share. `open`: how many of these share with too many.
std::string wrong_shares(const Suspect& of, const KinkLimits& limits, std::size_t& open) {
  if (!of.run.reference.inputs_finite()) return "";  // what stands for infinity is not equal to it in all that follows
  std::vector<Gradient> gradients{{&of.tensor, of.got}};
  for (const Subject& other : of.together)
    if (other.tensor->name != of.tensor.name && is_float(other.tensor->dtype))
      gradients.push_back({other.tensor, to_doubles(other.got)});
  std::stable_partition(gradients.begin() + 1, gradients.end(),
                        [&](const Gradient& other) { return other.tensor->shape == of.tensor.shape; });
  std::vector<const Written*> tensors;
  for (const Gradient& gradient : gradients) tensors.push_back(gradient.tensor);
  const Random random(1, "kinks");
  if (std::string words =
          wrong_sum(gradients, limits.choices(random, tensors), limits.one_choice(random, tensors), of.outside, limits);
      !words.empty())
    return words;
  std::size_t spent = 0;
  for (const std::size_t i : spread({of.outside.begin(), of.outside.end()}, kSharing)) {
    if (spent * limits.size() > kNudgedElements / 2) break;
    const std::vector<std::size_t> shares = limits.neighbours(i, spent);
    open += shares.empty();
    double due = 0, sum = 0;
    if (shares.size() > 1 && limits.sum_is_wrong(shares, of.got, due, sum))
      return fmt::format(
          "no subgradient: the {} elements that tie with {}{} have {:.9g} together, where every choice among them "
          "gives {:.9g}",
          shares.size(), limits.input(), index_text(of.tensor.shape, static_cast<std::int64_t>(i)), sum, due);
  }
  return "";
}

/// Whether some element outside stands at a kink that the op declares for that input: at the others any subgradient is
/// right.
bool at_declared_kink(const Suspect& of, const std::string& input) {
  const auto values = of.run.reference.inputs().find(input);
  const TensorSpec* const spec = of.run.op.signature.input(input);
  return std::ranges::any_of(of.run.op.signature.kinks, [&](const Kink& kink) {
    if (kink.input != input) return false;
    if (values == of.run.reference.inputs().end() || spec == nullptr || values->second.size() != of.got.size())
      return true;  // which number the element follows from is not known
    const double near = kLarge + 2 * format(of.run.call.dtype(*spec)).unit_roundoff() * std::fabs(kink.at);
    return std::ranges::any_of(of.outside, [&](std::int64_t i) {
      return std::fabs(values->second[static_cast<std::size_t>(i)] - kink.at) <= near;
    });
  });
}

/// at_kink() with nudges of that size; `undecided`: whether they were too small for some choice.
AtKink nudged_kink(const Suspect& of, double nudge, bool& undecided) {
  KinkLimits limits(of.run, of.tensor, of.pass, of.interval, nudge);
  if (!limits.usable()) return {};
  const Random random(1, "kinks");
  std::vector<std::size_t> left(of.outside.begin(), of.outside.end()), smooth = left;
  const int nudges = std::clamp(static_cast<int>(kNudgedElements / limits.size()), kFewNudges, kNudges);
  const int enough = std::clamp(static_cast<int>(kSurelySmooth / limits.size()), kFewNudges, nudges);
  for (int pair = 0; pair < nudges; ++pair) {
    const auto which = static_cast<std::uint64_t>(pair);
    // A push makes an element an extreme of those that tie, and none of the middle.
    const bool pushes = limits.of_backward() && pair % 4 == 3;
    limits.add_pair(random, which, pushes ? std::optional(left[random.below(which, left.size())]) : std::nullopt);
    std::erase_if(smooth, [&](std::size_t i) { return limits.kink(i); });
    std::erase_if(left, [&](std::size_t i) { return limits.kink(i) && limits.between(i, of.got[i]); });
    undecided = limits.undecided();
    if (left.empty() || (pair + 1 >= enough && smooth.size() == of.outside.size())) break;
  }
  const auto first = static_cast<std::size_t>(of.outside.front());
  const auto excused = [&](AtKink::Kind kind, const char* more) {
    return AtKink{kind, fmt::format("another subgradient than the declared one: {}; got {:.9g}, declared {:.9g}{}",
                                    one_sided(of, limits, first, limits.low(first), limits.high(first)), of.got[first],
                                    of.interval.value[first], more)};
  };
  if (!limits.of_backward()) return left.empty() ? excused(AtKink::Kind::subgradient, "") : AtKink{};
  // What nudges of all elements leave open is asked one at a time, until one is found out.
  // A kink is what excuses, so it has to be shown: of what never jumped, evenly spread elements, all of them where that
  // is cheap.
  const std::size_t most = std::max(kTries, kPushedElements / limits.size());
  for (const std::size_t i : spread(smooth, most)) {
    const KinkLimits::Pushed ends = limits.pushed(i);
    if (!ends.bounded || ends.smooth) return {};
  }
  std::vector<std::size_t> unexcused;
  std::set_union(left.begin(), left.end(), smooth.begin(), smooth.end(), std::back_inserter(unexcused));
  for (const std::size_t i : spread(unexcused, most)) {
    const KinkLimits::Pushed ends = limits.pushed(i);
    if (!ends.bounded || limits.admits(ends, of.got[i])) continue;
    const bool seen = limits.kink(i);
    return {AtKink::Kind::no_subgradient,
            fmt::format("no subgradient: {}, and {:.9g} is not between them (declared: {:.9g})",
                        one_sided(of, limits, i, seen ? limits.low(i) : ends.low, seen ? limits.high(i) : ends.high),
                        of.got[i], of.interval.value[i])};
  }
  std::size_t open = 0;
  if (const std::string words = wrong_shares(of, limits, open); !words.empty())
    return {AtKink::Kind::no_subgradient, words};
  const bool declared = at_declared_kink(of, limits.input());
  return excused(declared ? AtKink::Kind::undeclared : AtKink::Kind::subgradient,
                 open > 0   ? " (so many elements tie that their sums were not compared one by one)"
                 : declared ? " (what a formula takes at a tie: ampcheck explain formulas)"
                            : "");
}

}  // namespace

AtKink at_kink(const WrongTensor& wrong, const std::vector<std::int64_t>& outside,
               const std::vector<Subject>& together) {
  CaseRun& run = wrong.run;
  // The forward of a backward as an op is a gradient too.
  if ((wrong.pass == Pass::forward && !run.op.of_gradient) || outside.empty()) return {};
  const reference::Recording& recording = run.reference.recording(run.reference.forms().front());
  reference::Expr target;
  for (const auto& [name, node] : nodes_of(recording, wrong.pass))
    if (name == wrong.tensor.name) target = node;
  const std::vector<reference::Expr> choices =
      target.defined() ? choices_of(recording, target) : std::vector<reference::Expr>();
  if (choices.empty()) return {};
  const Suspect suspect{wrong, outside, together};
  // Most slips have nothing to do with a kink, which is seen in a few evaluations; nudges take up to a hundred.
  if (const KinkLimits limits(run, wrong.tensor, wrong.pass, wrong.interval, kLarge); limits.decided(choices))
    return {};
  if (const KinkLimits limits(run, wrong.tensor, wrong.pass, wrong.interval, kSmall);
      limits.usable() && limits.surely_smooth(outside))
    return {};
  // The small ones first: they move nothing else. Where a choice is made of a rounded sum, a few units of the compute
  // type decide it.
  bool undecided = false;
  const AtKink small = nudged_kink(suspect, kSmall, undecided);
  return small.kind != AtKink::Kind::none || !undecided ? small : nudged_kink(suspect, kLarge, undecided);
}

std::vector<std::string> other_subgradients(const std::vector<CaseResult>& cases) {
  struct Seen {
    std::int64_t cases = 0;
    std::string first;
  };
  std::map<std::pair<std::string, CheckId>, Seen> seen;
  for (const CaseResult& result : cases) {
    std::set<CheckId> here;
    for (const CheckResult& check : result.checks) {
      if (check.code != Code::ac205 || !here.insert(subject_of(check)).second) continue;
      Seen& all = seen[{result.op, subject_of(check)}];
      if (all.cases++ == 0) all.first = fmt::format("{}, in '{}'", check.note, result.name);
    }
  }
  std::vector<std::string> out;
  for (const auto& [what, all] : seen)
    out.push_back(fmt::format("{} {}: NON_SMOOTH AC205 in {} case{}, which do not fail by it: {}", what.first,
                              name(what.second), all.cases, all.cases == 1 ? "" : "s", all.first));
  return out;
}

}  // namespace ampcheck::checks
