// SPDX-License-Identifier: Apache-2.0
#include "checks/reach/sites.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "reference/graph/node_text.h"

namespace ampcheck::checks {

namespace {

using reference::Node;
using reference::Primitive;
using Kind = Site::Kind;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

bool compares(Primitive p) { return p == Primitive::less || p == Primitive::less_equal || p == Primitive::equal; }
/// What a formula makes of several comparisons.
bool combines(Primitive p) {
  return p == Primitive::mul || p == Primitive::add || p == Primitive::sub || p == Primitive::maximum ||
         p == Primitive::where;
}

/// Values of an operand at each element of a node's shape.
std::vector<double> stretched(const std::vector<double>& values, const Shape& from, const Shape& to) {
  if (from == to) return values;
  const Shape strides = row_major_strides(from);
  std::vector<double> out(static_cast<std::size_t>(to.count()));
  for (std::size_t i = 0; i < out.size(); ++i) {
    std::int64_t rest = static_cast<std::int64_t>(i), at = 0;
    for (int axis = to.rank - 1; axis >= 0; --axis) {
      const int own = axis - to.rank + from.rank;
      if (own >= 0 && from[own] != 1) at += rest % to[axis] * strides[own];
      rest /= to[axis];
    }
    out[i] = values[static_cast<std::size_t>(at)];
  }
  return out;
}

/// Nodes that follow from a floating input.
std::vector<char> moved_by_inputs(const reference::Recording& recording) {
  std::vector<char> out(recording.graph->nodes().size(), 0);
  for (const auto& [name, node] : recording.inputs) out[static_cast<std::size_t>(node.id)] = 1;
  for (std::size_t id = 0; id < out.size(); ++id)
    for (const int arg : recording.graph->node(static_cast<int>(id)).args)
      out[id] |= out[static_cast<std::size_t>(arg)];
  return out;
}

class Collector {
 public:
  explicit Collector(const reference::Recording& recording)
      : graph_(*recording.graph), first_backward_(static_cast<int>(graph_.nodes().size())) {
    for (const auto& [name, node] : recording.outputs) names_.emplace(node.id, name);
    for (const auto& [name, node] : recording.cotangents) first_backward_ = std::min(first_backward_, node.id);
  }

  void condition(int id) {
    if (std::any_of(sites_.begin(), sites_.end(), [&](const Site& s) { return s.node == id && s.kind != Kind::term; }))
      return;
    const std::string text = reference::text_of(graph_, id);
    add({Kind::yes, id, -1, true, text + " yes", text});
    add({Kind::no, id, -1, true, text + " no", "not (" + text + ")"});
  }

  void terms(int sum) {
    for (const int term : graph_.node(sum).args) {
      const Node& node = graph_.node(term);
      const bool nothing = node.primitive == Primitive::stop_gradient || node.primitive == Primitive::indicator ||
                           (node.primitive == Primitive::constant && node.value == 0);
      if (nothing) continue;
      const std::string text = reference::text_of(graph_, term, names_), of = reference::text_of(graph_, sum, names_);
      add({Kind::term, term, sum, sum < first_backward_, text + " in " + of, "the term " + text + " of " + of});
    }
  }

  std::vector<Site> take() { return std::move(sites_); }

 private:
  void add(Site site) {
    const int turn = ++turns_[site.key];  // deep nodes may read alike
    if (turn > 1) site.key += "#" + std::to_string(turn);
    sites_.push_back(std::move(site));
  }

  const reference::Graph& graph_;
  int first_backward_;
  reference::NodeNames names_;
  std::map<std::string, int> turns_;
  std::vector<Site> sites_;
};

}  // namespace

std::vector<char> needed_nodes(const reference::Recording& recording) {
  std::vector<char> needed(recording.graph->nodes().size(), 0);
  for (const reference::Expr& node : recording.output_nodes()) needed[static_cast<std::size_t>(node.id)] = 1;
  for (const reference::Expr& node : recording.gradient_nodes()) needed[static_cast<std::size_t>(node.id)] = 1;
  for (std::size_t id = needed.size(); id-- > 0;)
    for (const int arg : recording.graph->node(static_cast<int>(id)).args)
      if (needed[id]) needed[static_cast<std::size_t>(arg)] = 1;
  return needed;
}

namespace {

/// Nodes whose value a result takes: what conditions alone read is seen by the sides that they take.
std::vector<char> valued_nodes(const reference::Recording& recording) {
  std::vector<char> out(recording.graph->nodes().size(), 0);
  for (const reference::Expr& node : recording.output_nodes()) out[static_cast<std::size_t>(node.id)] = 1;
  for (const reference::Expr& node : recording.gradient_nodes()) out[static_cast<std::size_t>(node.id)] = 1;
  for (std::size_t id = out.size(); id-- > 0;) {
    const Node& node = recording.graph->node(static_cast<int>(id));
    if (!out[id] || compares(node.primitive)) continue;
    for (std::size_t k = node.primitive == Primitive::where ? 1 : 0; k < node.args.size(); ++k)
      out[static_cast<std::size_t>(node.args[k])] = 1;
  }
  return out;
}

}  // namespace

std::vector<Site> sites_of(const reference::Recording& recording, const std::vector<char>& needed) {
  const reference::Graph& graph = *recording.graph;
  const std::vector<char> valued = valued_nodes(recording);
  const std::vector<char> moved = moved_by_inputs(recording);
  Collector out(recording);
  for (std::size_t id = 0; id < needed.size(); ++id) {
    const Node& node = graph.node(static_cast<int>(id));
    if (!needed[id] || !moved[id]) continue;
    if (compares(node.primitive)) out.condition(static_cast<int>(id));
    if (valued[id] && (node.primitive == Primitive::add || node.primitive == Primitive::sub))
      out.terms(static_cast<int>(id));
    if (node.primitive == Primitive::where && moved[static_cast<std::size_t>(node.args[0])] &&
        combines(graph.node(node.args[0]).primitive))
      out.condition(node.args[0]);
  }
  return out.take();
}

void SiteValues::set(const std::string& leaf, const std::vector<double>& values) {
  const auto input = recording_.inputs.find(leaf), cotangent = recording_.cotangents.find(leaf);
  if (input != recording_.inputs.end())
    plain_.set(input->second, values);
  else if (cotangent != recording_.cotangents.end())
    plain_.set(cotangent->second, values);
}

double SiteValues::distance(const Site& side) {
  const Node& node = recording_.graph->node(side.node);
  const std::vector<double> truth = value(side.node);
  const bool yes = side.kind == Kind::yes;
  if (std::any_of(truth.begin(), truth.end(), [&](double v) { return (v != 0) == yes; })) return 0;
  if (!compares(node.primitive) || truth.empty()) return kInfinity;
  const auto operand = [&](std::size_t k) {
    return stretched(value(node.args[k]), recording_.graph->node(node.args[k]).shape, node.shape);
  };
  const std::vector<double> left = operand(0), right = operand(1);
  double least = kInfinity;
  for (std::size_t i = 0; i < left.size(); ++i) least = std::fmin(least, std::fabs(left[i] - right[i]));
  return std::fmax(least, std::numeric_limits<double>::denorm_min());
}

namespace {

/// The sum with one of its two terms left out.
std::vector<double> without(const Node& sum, const Node& kept, const std::vector<double>& values, bool negated) {
  std::vector<double> out = stretched(values, kept.shape, sum.shape);
  if (negated)
    for (double& v : out) v = -v;
  return out;
}

/// Largest move of judged elements, in units of half the interval and of the storage rounding.
double moved_by(const Interval& interval, const std::vector<double>& before, const std::vector<double>& after) {
  const double u = format(interval.dtype).unit_roundoff(), least = format(interval.dtype).min_subnormal() / 2;
  double most = 0;
  for (std::size_t i = 0; i < before.size(); ++i) {
    if (!interval.how.empty() && interval.how[i] != Judgement::interval) continue;
    if (!std::isfinite(before[i]) || std::fabs(before[i]) > format(interval.dtype).max_finite()) continue;
    if (!std::isfinite(after[i])) return kInfinity;
    const double room = std::fmax(interval.high[i] - interval.value[i], interval.value[i] - interval.low[i]) +
                        std::fmax(u * std::fabs(interval.value[i]), least);
    most = std::fmax(most, std::fabs(after[i] - before[i]) / room);
  }
  return most;
}

}  // namespace

double SiteValues::share(const Site& term, const std::map<std::string, Interval>& wanted) {
  const reference::Graph& graph = *recording_.graph;
  const Node& sum = graph.node(term.sum);
  const bool first = sum.args[0] == term.node;
  const int kept = sum.args[first ? 1 : 0];
  const std::vector<double> rest =
      without(sum, graph.node(kept), value(kept), first && sum.primitive == Primitive::sub);
  double most = 0;
  for (const auto& [name, node] : term.forward ? recording_.outputs : recording_.gradients) {
    const auto interval = wanted.find(name);
    if (interval == wanted.end() || node.id < term.sum) continue;
    const std::vector<double> before = value(node.id);
    most = std::fmax(most, moved_by(interval->second, before, plain_.value_if({{term.sum, rest}}, node)));
  }
  return most;
}

bool SiteValues::matters(const Site& term) {
  constexpr double kSame = 0x1p-30;  // relative: a shift that cancels leaves the rounding of fp64
  const reference::Graph& graph = *recording_.graph;
  const Node& sum = graph.node(term.sum);
  const std::vector<double> before = value(term.sum);
  double size = 0;
  for (const double v : before) size += std::isfinite(v) ? std::fabs(v) / static_cast<double>(before.size()) : 0.0;
  std::vector<double> push(static_cast<std::size_t>(graph.node(term.node).shape.count()));
  for (std::size_t i = 0; i < push.size(); ++i)
    push[i] = (size > 0 ? size : 1) * (0.5 + 0.25 * static_cast<double>(i % 3));  // not one shift for all
  push = stretched(push, graph.node(term.node).shape, sum.shape);
  for (std::size_t i = 0; i < push.size(); ++i) push[i] += before[i];
  for (const auto& [name, node] : term.forward ? recording_.outputs : recording_.gradients) {
    if (node.id < term.sum) continue;
    const std::vector<double> was = value(node.id);
    const std::vector<double>& now = plain_.value_if({{term.sum, push}}, node);
    for (std::size_t i = 0; i < was.size(); ++i)
      if (!(std::fabs(now[i] - was[i]) <= kSame * std::fabs(was[i])) && std::isfinite(was[i])) return true;
  }
  return false;
}

}  // namespace ampcheck::checks
