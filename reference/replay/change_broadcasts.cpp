// SPDX-License-Identifier: Apache-2.0
// Changes of what is repeated: a parameter that is laid along another axis, a centre that is not the mean, statistics
// that come from elsewhere, counts that are those of another axis.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "reference/graph/row_plan.h"
#include "reference/replay/formula_changes.h"
#include "reference/replay/plain_loops.h"
#include "reference/replay/value_slips.h"

namespace ampcheck::reference {

namespace {

/// Bits of choice among the changes of a kind, about.
constexpr double kOfLayouts = 6, kOfCentres = 8, kOfStatistics = 10, kOfCounts = 4;

bool joins_two(Primitive p) {
  return p == Primitive::add || p == Primitive::sub || p == Primitive::mul || p == Primitive::div;
}

/// The one axis of the result along which an operand is repeated, which it is along no other; -1 if there is none.
int repeated_axis(const Shape& operand, const Shape& result) {
  if (operand.rank != result.rank) return -1;
  int out = -1;
  for (int axis = 0; axis < result.rank; ++axis) {
    if (operand[axis] == result[axis]) continue;
    if (out >= 0 || operand[axis] != 1) return -1;
    out = axis;
  }
  return out;
}

}  // namespace

void FormulaChanges::laid_along_another_axis(int id) {
  const Node& node = graph_.node(id);
  if (!joins_two(node.primitive)) return;
  const std::int64_t all = node.shape.count();
  for (const std::size_t k : {std::size_t{1}, std::size_t{0}}) {
    const Shape& shape = graph_.node(node.args[k]).shape;
    const std::int64_t n = shape.count();
    if (n < 2 || n >= all || !repeats_to(shape, node.shape)) continue;
    const Values from = values(node.args[k]), kept = spread(node, 1 - k);
    const auto say = [&](auto place, const std::string& how) {
      Values laid(static_cast<std::size_t>(all));
      for (std::int64_t i = 0; i < all; ++i)
        laid[static_cast<std::size_t>(i)] = from[static_cast<std::size_t>(place(i) % n)];
      const Values& a = k == 0 ? laid : kept;
      const Values& b = k == 0 ? kept : laid;
      Values out = a;
      for (std::size_t i = 0; i < out.size(); ++i)
        out[i] = node.primitive == Primitive::add   ? a[i] + b[i]
                 : node.primitive == Primitive::sub ? a[i] - b[i]
                 : node.primitive == Primitive::mul ? a[i] * b[i]
                                                    : a[i] / b[i];
      with(
          id, std::move(out),
          chosen(fmt::format("with {} {}: it is broadcast over the wrong axis, another index", text(node.args[k]), how),
                 kOfLayouts));
    };
    std::int64_t inner = 1;
    for (int back = 0; back < node.shape.rank; ++back) {
      const std::int64_t extent = node.shape.last(back), step = inner;
      if (extent > 1)
        say([=](std::int64_t i) { return i / step % extent; },
            fmt::format("laid along axis {}", node.shape.rank - 1 - back));
      inner *= extent;
    }
    say([](std::int64_t i) { return i; }, "laid along the elements as they lie in memory");
    if (all % n == 0) say([=](std::int64_t i) { return i / (all / n); }, "laid along blocks of the elements in memory");
  }
}

void FormulaChanges::other_centre(int id) {
  const Node& node = graph_.node(id);
  if (node.primitive != Primitive::sub || !(graph_.node(node.args[0]).shape == node.shape)) return;
  const int axis = repeated_axis(graph_.node(node.args[1]).shape, node.shape);
  if (axis < 0) return;
  const Axis a = split(node.shape, axis);
  if (a.n < 2) return;
  const Values from = values(node.args[0]);
  const auto row = [&](std::size_t i) {
    const auto at = static_cast<std::int64_t>(i);
    return std::pair{at - at / a.inner % a.n * a.inner, at};
  };
  const auto extreme = [&](bool largest) {
    Values out(from.size());
    for (std::size_t i = 0; i < from.size(); ++i) {
      const std::int64_t first = row(i).first;
      double v = from[static_cast<std::size_t>(first)];
      for (std::int64_t k = 1; k < a.n; ++k) {
        const double other = from[static_cast<std::size_t>(first + k * a.inner)];
        v = largest ? std::fmax(v, other) : std::fmin(v, other);
      }
      out[i] = v;
    }
    return out;
  };
  const auto at_place = [&](std::int64_t place) {
    Values out(from.size());
    for (std::size_t i = 0; i < from.size(); ++i)
      out[i] = from[static_cast<std::size_t>(row(i).first + place * a.inner)];
    return out;
  };
  const auto say = [&](const Values& centre, const std::string& words) {
    Values other = from;
    for (std::size_t i = 0; i < other.size(); ++i) other[i] -= centre[i];
    const std::string said = fmt::format("with {} {} for less {}", text(node.args[0]), words, text(node.args[1]));
    with(id, other, chosen(said, kOfCentres));
    for (std::size_t user = static_cast<std::size_t>(id) + 1; user < needed_.size() && going_; ++user) {
      if (!needed_[user] || given(static_cast<int>(user))) continue;
      const Node& uses = graph_.node(static_cast<int>(user));
      for (std::size_t k = 0; k < uses.args.size(); ++k)
        if (uses.args[k] == id && (left_ -= node.shape.count()) > 0)
          with(static_cast<int>(user), evaluator_.value_if_argument(static_cast<int>(user), k, other),
               chosen(fmt::format("{} in {}", said, text(static_cast<int>(user))), kOfCentres));
    }
  };
  say(at_place(0), "less its first number");
  say(at_place(a.n - 1), "less its last number");
  say(extreme(true), "less its largest number");
  say(extreme(false), "less its smallest number");
  say(Values(from.size(), 0.0), "less nothing");
  Values added = spread(node, 1);
  for (double& v : added) v = -v;
  say(added, "plus it, the other sign,");
}

void FormulaChanges::joined_in_one_use(int id, const std::vector<int>& at_hand) {
  const Shape& shape = graph_.node(id).shape;
  std::vector<std::pair<int, std::size_t>> uses;
  for (std::size_t user = 0; user < needed_.size(); ++user)
    if (needed_[user] && !given(static_cast<int>(user)))
      for (std::size_t k = 0; k < graph_.node(static_cast<int>(user)).args.size(); ++k)
        if (graph_.node(static_cast<int>(user)).args[k] == id) uses.emplace_back(static_cast<int>(user), k);
  if (uses.size() < 2) return;  // joined() has it
  for (const int other : at_hand) {
    const Shape& of = graph_.node(other).shape;
    if (other == id || !given(other) || !repeats_to(of, shape)) continue;
    for (const bool divides : {false, true}) {
      Values joint = values(id);
      const Values& factor = values(other);
      for (std::size_t i = 0; i < joint.size(); ++i) {
        const double f = factor[static_cast<std::size_t>(operand_index(shape, of, static_cast<std::int64_t>(i)))];
        joint[i] = divides ? joint[i] / f : joint[i] * f;
      }
      for (const auto& [user, k] : uses) {
        if (!going_ || (left_ -= shape.count()) <= 0) return;
        with(user, evaluator_.value_if_argument(user, k, joint),
             chosen(fmt::format("with {0} {2} {1} for {0} in {3}", text(id), text(other),
                                divides ? "divided by" : "times", text(user)),
                    kOfStatistics));
      }
    }
  }
}

void FormulaChanges::statistics_exchanged() {
  std::vector<int> given_ones, computed;
  const std::int64_t most = graph_.node(target_.id).shape.count();
  for (const int leaf : given_)
    if (const Node& node = graph_.node(leaf); node.primitive == Primitive::input && node.shape.count() > 1)
      given_ones.push_back(leaf);
  for (std::size_t id = 0; id < needed_.size(); ++id) {
    const Node& node = graph_.node(static_cast<int>(id));
    if (needed_[id] && !given(static_cast<int>(id)) && !node.args.empty() && !moves_nothing(node.primitive) &&
        node.shape.count() > 1 && node.shape.count() <= most)
      computed.push_back(static_cast<int>(id));
  }
  const auto fits = [&](int leaf, int node) {
    return graph_.node(leaf).shape.count() == graph_.node(node).shape.count() &&
           !(graph_.node(leaf).shape == graph_.node(node).shape);  // those leaves_exchanged() and others have
  };
  for (const int p : given_ones)
    for (const int a : computed) {
      if (!going_) return;
      if (!fits(p, a)) continue;
      with(a, values(p),
           chosen(fmt::format("with {} for {}: another input in its place", text(p), text(a)), kOfCentres));
      for (const int q : given_ones)
        for (const int b : computed) {
          if (q == p || b <= a || !fits(q, b) || !going_) continue;
          all_with({{a, values(p)}, {b, values(q)}},
                   chosen(fmt::format("with {} for {} and {} for {}: other inputs in their place", text(p), text(a),
                                      text(q), text(b)),
                          kOfStatistics));
        }
    }
}

void FormulaChanges::counts_of_other_axes() {
  std::vector<int> shares;
  std::set<std::int64_t> extents;
  for (std::size_t id = 0; id < needed_.size(); ++id) {
    if (!needed_[id]) continue;
    const Node& node = graph_.node(static_cast<int>(id));
    if (is_share(node)) shares.push_back(static_cast<int>(id));
    if (node.primitive == Primitive::input)
      for (int axis = 0; axis < node.shape.rank; ++axis) extents.insert(node.shape[axis]);
  }
  const auto say = [&](std::size_t from, std::size_t end, double n, double other) {
    std::vector<std::pair<int, Values>> others;
    for (std::size_t k = from; k < end; ++k)
      if (std::round(1 / graph_.node(shares[k]).value) == n) others.emplace_back(shares[k], Values{1 / other});
    if (others.empty()) return;
    const std::string where = others.size() == 1 ? fmt::format("mean {} of {}", from + 1, shares.size())
                              : from == 0        ? "every mean"
                                                 : fmt::format("the last {} means", others.size());
    Change change =
        chosen(other == 1 ? fmt::format("without the factor 1/{} in {}: the sum for the mean", n, where)
                          : fmt::format("with 1/{} for 1/{} in {}: the count of another axis", other, n, where),
               kOfCounts);
    all_with(std::move(others), change);
  };
  extents.insert(1);
  for (const double n : std::set<double>(counts_))
    for (const std::int64_t extent : extents) {
      if (extent < 1) continue;
      const auto e = static_cast<double>(extent);
      std::set<double> counts{e, n * e};
      if (std::fmod(n, e) == 0) counts.insert(n / e);
      for (const double other : counts) {
        if (other == n) continue;
        for (std::size_t from = 0; from < shares.size() && going_; ++from) {
          say(from, shares.size(), n, other);
          if (from + 1 < shares.size()) say(from, from + 1, n, other);
        }
      }
    }
}

}  // namespace ampcheck::reference
