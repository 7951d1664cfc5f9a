// SPDX-License-Identifier: Apache-2.0
#include "reference/replay/changes.h"

#include <fmt/format.h>

#include <map>
#include <set>

#include "reference/graph/node_text.h"
#include "reference/graph/row_plan.h"
#include "reference/replay/plain_evaluator.h"
#include "reference/replay/value_slips.h"
#include "src/rounding.h"

namespace ampcheck::reference {

namespace {

using Values = std::vector<double>;
using Evaluator = PlainEvaluator<Fp64Policy>;

/// What kernels add so as not to divide by zero.
constexpr double kEps[] = {1e-12, 1e-10, 1e-8, 1e-7, 1e-6, 1e-5};

class Changes {
 public:
  Changes(const Graph& graph, const std::vector<std::pair<Expr, Values>>& leaves, Expr target, const NodeNames& names,
          std::int64_t most, const std::function<bool(const Change&, const Values&)>& see, const std::string& only)
      : graph_(graph), target_(target), most_(most), left_(most), see_(see), only_(only), evaluator_(graph) {
    for (const auto& [leaf, values] : leaves) evaluator_.set(leaf, values), given_.push_back(leaf.id);
    evaluator_.value(target);
    for (const auto& [id, text] : names)
      for (int at = id;; at = graph.node(at).args[0]) {  // and what they are views of
        names_.emplace(at, text);
        if (!moves_nothing(graph.node(at).primitive)) break;
      }
    needed_.assign(graph.nodes().size(), 0);
    needed_[static_cast<std::size_t>(target.id)] = 1;
    for (std::size_t id = needed_.size(); id-- > 0;) {
      if (!needed_[id] || given(static_cast<int>(id))) continue;
      for (const int arg : graph.node(static_cast<int>(id)).args) needed_[static_cast<std::size_t>(arg)] = 1;
      cost_ += cost(graph.node(static_cast<int>(id)));
      if (is_share(graph.node(static_cast<int>(id))))
        counts_.insert(std::round(1 / graph.node(static_cast<int>(id)).value));
    }
  }

  void run() {
    // The last nodes first: of two changes that give the same, the nearer one is the simpler to say.
    for (std::size_t id = needed_.size(); id-- > 0 && going_;)
      if (needed_[id]) change(static_cast<int>(id));
    if (going_) shares_together();
    if (going_) whole_factors();
    if (left_ < 0) going_ = true, left_ = most_;  // the other kind may still be small enough
    for (std::size_t id = needed_.size(); id-- > 0 && going_;)
      if (needed_[id]) narrow(static_cast<int>(id));
    if (going_) narrow_saved();
    if (going_) narrow_operands();
  }

 private:
  /// Scalar operations of a node, about.
  std::int64_t cost(const Node& node) const {
    if (node.primitive == Primitive::matmul)
      return node.shape.count() * graph_.node(node.args[0]).shape.last(node.transpose_a ? 1 : 0);
    const bool gathers =
        node.primitive == Primitive::sum || node.primitive == Primitive::put_add || node.primitive == Primitive::max;
    return gathers ? graph_.node(node.args[0]).shape.count() : node.shape.count();
  }
  bool given(int id) const { return std::find(given_.begin(), given_.end(), id) != given_.end(); }
  const Values& values(int id) { return evaluator_.value({const_cast<Graph*>(&graph_), id}); }
  std::string text(int id) const { return text_of(graph_, id, names_); }

  /// An operand of a node, repeated to its shape.
  Values spread(const Node& node, std::size_t k) {
    const Shape& shape = graph_.node(node.args[k]).shape;
    const Values& from = values(node.args[k]);
    if (shape == node.shape) return from;
    Values out(static_cast<std::size_t>(node.shape.count()));
    for (std::size_t i = 0; i < out.size(); ++i)
      out[i] = from[static_cast<std::size_t>(operand_index(node.shape, shape, static_cast<std::int64_t>(i)))];
    return out;
  }

  /// The target with other values for one node.
  void with(int id, Values other, Change change) {
    if (!going_ || !wanted(change.words) || other == values(id)) return;
    left_ -= cost_;
    if (left_ < 0) {
      going_ = false;
      return;
    }
    going_ = see_(change, evaluator_.value_if({{id, std::move(other)}}, target_));
  }
  void with(int id, Values other, std::string words) { with(id, std::move(other), Change{std::move(words), nullptr}); }

  bool wanted(const std::string& words) const { return only_.empty() || words == only_; }

  template <class F>
  Values map(const Values& from, F f) {
    Values out = from;
    for (double& v : out) v = f(v);
    return out;
  }

  void change(int id) {
    const Node& node = graph_.node(id);
    if (node.args.empty() || given(id)) return leaf(id);
    const auto arg = [&](std::size_t k) { return text(node.args[k]); };
    switch (node.primitive) {
      case Primitive::add:
      case Primitive::sub: {
        const double sign = node.primitive == Primitive::add ? 1 : -1;
        const Values a = spread(node, 0), b = spread(node, 1);
        if (const double times = ratio(a, b);
            times != 0)  // equal terms, as of x^2 or x^3: a power rule without its factor
          for (const double other : {1.0, times, times - sign, times + 2 * sign})
            with(id, map(b, [=](double v) { return other * v; }),
                 fmt::format("with a factor of {} for {} of {}", other, times + sign, arg(1)));
        equal_terms(id, node);
        with(id, a, "without the term " + arg(1));
        with(id, map(b, [=](double v) { return sign * v; }), "without the term " + arg(0));
        Values turned = a;
        for (std::size_t i = 0; i < turned.size(); ++i) turned[i] -= sign * b[i];
        with(id, std::move(turned), "with the other sign of the term " + arg(1));
        Values twice = a;
        for (std::size_t i = 0; i < twice.size(); ++i) twice[i] += 2 * sign * b[i];
        with(id, std::move(twice), "with the term " + arg(1) + " twice");
        if (node.primitive == Primitive::sub) shift_change(id, node);
        first_term(id, node);
        return;
      }
      case Primitive::mul:
        with(id, spread(node, 0), "without the factor " + arg(1));
        with(id, spread(node, 1), "without the factor " + arg(0));
        for (const std::size_t k : {std::size_t{0}, std::size_t{1}}) own_term(id, node, k), other_power(id, node, k);
        return;
      case Primitive::div: {
        const Values a = spread(node, 0), b = spread(node, 1);
        with(id, a, "without dividing by " + arg(1));
        for (const double eps : kEps) {
          Values guarded = a;
          for (std::size_t i = 0; i < guarded.size(); ++i) guarded[i] /= b[i] + eps;
          with(id, std::move(guarded), fmt::format("with an eps of {} added to {}", eps, arg(1)));
        }
        Values times = a;
        for (std::size_t i = 0; i < times.size(); ++i) times[i] *= b[i];
        with(id, std::move(times), fmt::format("with times {0} for divided by {0}", arg(1)));
        Values inverse = b;
        for (std::size_t i = 0; i < inverse.size(); ++i) inverse[i] /= a[i];
        with(id, std::move(inverse), fmt::format("with {} divided by {}, the inverse", arg(1), arg(0)));
        return;
      }
      case Primitive::log:
        for (const double eps : kEps)
          with(id, map(values(node.args[0]), [=](double v) { return std::log(v + eps); }),
               fmt::format("with an eps of {} added to {}", eps, arg(0)));
        with(id, map(values(node.args[0]), [](double v) { return std::log2(v); }),
             "with the logarithm to base 2 of " + arg(0));
        with(id, map(values(node.args[0]), [](double v) { return std::log10(v); }),
             "with the logarithm to base 10 of " + arg(0));
        with(id, map(values(node.args[0]), [](double v) { return std::log1p(v); }),
             "with log(1 + v) for log(v) of " + arg(0));
        return;
      case Primitive::exp:
        with(id, map(values(node.args[0]), [](double v) { return std::exp2(v); }), "with 2^v for e^v of " + arg(0));
        for (const double factor : {1.4, 1.44, 1.443, 1.4427, 1.44269})  // of 1.442695
          with(id, map(values(node.args[0]), [=](double v) { return std::exp2(factor * v); }),
               fmt::format("with 2^({} v) for e^v of {}: log2(e) is slightly off", factor, arg(0)));
        return;
      case Primitive::less:
      case Primitive::less_equal: return condition_change(id, node);
      case Primitive::max: return max_change(id, node);
      case Primitive::neg: with(id, values(node.args[0]), "with the other sign of " + arg(0)); return;
      case Primitive::square: with(id, values(node.args[0]), "with " + arg(0) + " not squared"); return;
      case Primitive::sqrt: with(id, values(node.args[0]), "without the square root of " + arg(0)); return;
      case Primitive::rsqrt:
        with(id, map(values(node.args[0]), [](double v) { return 1 / v; }), "with 1/v for 1/sqrt(v) of " + arg(0));
        outside_root(id, graph_.node(node.args[0]));
        with(id, map(values(node.args[0]), [](double v) { return std::sqrt(v); }),
             "with sqrt(v) for 1/sqrt(v) of " + arg(0));
        return;
      case Primitive::erf:
        with(id,
             map(values(node.args[0]),
                 [](double z) {
                   return std::tanh(std::sqrt(2 / M_PI) * (M_SQRT2 * z + 0.044715 * std::pow(M_SQRT2 * z, 3)));
                 }),
             "with the tanh approximation for erf");
        return;
      case Primitive::where:
        with(id, spread(node, 1), "without the condition " + arg(0));
        with(id, spread(node, 2), "as if " + arg(0) + " never held");
        return;
      case Primitive::maximum:
        with(id, spread(node, 0), "without max(., " + arg(1) + ")");
        with(id, spread(node, 1), "without max(., " + arg(0) + ")");
        return;
      case Primitive::sum: return sum_change(id, node);
      case Primitive::matmul: return matmul_change(id, node);
      case Primitive::take: return take_change(id, node);
      case Primitive::first_max: return ties_change(id, node);
      case Primitive::put_add: return put_change(id, node);
      case Primitive::stored: return other_rows(id);
      case Primitive::stop_gradient: with(id, Values(values(id).size(), 0.0), "without the shift " + arg(0)); return;
      default: return;
    }
  }

  /// A factor that divides, or stands twice.
  void other_power(int id, const Node& node, std::size_t k) {
    Values over = spread(node, 1 - k), twice = over;
    const Values factor = spread(node, k);
    for (std::size_t i = 0; i < over.size(); ++i) over[i] /= factor[i], twice[i] *= factor[i] * factor[i];
    with(id, std::move(over), fmt::format("divided by {0} for times {0}", text(node.args[k])));
    with(id, std::move(twice), fmt::format("with the factor {} twice", text(node.args[k])));
  }

  /// Of a chain of additions the first term alone: what follows from the others is dead.
  void first_term(int id, const Node& node) {
    int first = below(node.args[0]), left = 1;
    for (; graph_.node(first).primitive == Primitive::add || graph_.node(first).primitive == Primitive::sub; ++left)
      first = below(graph_.node(first).args[0]);
    if (left < 2 || graph_.node(first).shape.count() != node.shape.count()) return;
    with(id, values(first), fmt::format("with only the term {}, without the terms that follow it", text(first)));
  }

  /// Of equal terms among others in a chain of additions one alone: a power rule without its factor.
  void equal_terms(int id, const Node& node) {
    if (node.primitive != Primitive::add) return;
    const Values term = spread(node, 1);
    int times = 1, others = 0;
    for (int at = below(node.args[0]);; at = below(graph_.node(at).args[0])) {
      const Node& chain = graph_.node(at);
      const bool on = chain.primitive == Primitive::add && chain.shape == node.shape;
      ++(ratio(on ? spread(chain, 1) : values(at), term) == 1 ? times : others);
      if (!on) break;
    }
    if (times < 2 || others == 0) return;
    Values out = values(id);
    for (std::size_t i = 0; i < out.size(); ++i) out[i] -= (times - 1) * term[i];
    with(id, std::move(out), fmt::format("with a factor of 1 for {} of {}", times, text(node.args[1])));
  }

  /// < for <=, and the condition turned round.
  void condition_change(int id, const Node& node) {
    const Values a = spread(node, 0), b = spread(node, 1);
    const bool strict = node.primitive == Primitive::less;
    Values other = a, turned = values(id);
    for (std::size_t i = 0; i < other.size(); ++i)
      other[i] = strict ? a[i] <= b[i] : a[i] < b[i], turned[i] = 1 - turned[i];
    with(id, std::move(other),
         fmt::format("with {} {} {}: another convention where they are equal, as at zero", text(node.args[0]),
                     strict ? "<=" : "<", text(node.args[1])));
    with(id, std::move(turned),
         fmt::format("with the condition {} {} {} turned round", text(node.args[0]),
                     strict ? "<" : "<=", text(node.args[1])));
  }

  /// A maximum that leaves out the first or last number.
  void max_change(int id, const Node& node) {
    const Shape& shape = graph_.node(node.args[0]).shape;
    const Axis a = split(shape, node.axis);
    if (a.n < 2) return;
    const Values from = values(node.args[0]);
    for (const bool first : {true, false}) {
      Values out(values(id).size(), -HUGE_VAL);
      for (std::size_t i = 0; i < from.size(); ++i) {
        const std::int64_t at = static_cast<std::int64_t>(i), index = at / a.inner % a.n;
        double& most = out[static_cast<std::size_t>(at / (a.inner * a.n) * a.inner + at % a.inner)];
        if (index != (first ? 0 : a.n - 1)) most = std::max(most, from[i]);
      }
      with(id, std::move(out),
           fmt::format("without the {} number of the maximum of {}", first ? "first" : "last", text(node.args[0])));
    }
  }

  /// 1/(sqrt(v) + c) for 1/sqrt(v + c).
  void outside_root(int id, const Node& sum) {
    if (sum.primitive != Primitive::add || graph_.node(sum.args[1]).primitive != Primitive::constant) return;
    const double c = graph_.node(sum.args[1]).value;
    with(id, map(spread(sum, 0), [=](double v) { return 1 / (std::sqrt(v) + c); }),
         fmt::format("with the {} outside the root",
                     names_.contains(sum.args[1]) ? text(sum.args[1]) : "eps " + text(sum.args[1])));
  }

  /// Of terms that meet in one element, the last alone: what plain stores leave of a scatter.
  void put_change(int id, const Node& node) {
    Values last(values(id).size(), 0.0);
    const Values& from = values(node.args[0]);
    for (std::size_t i = 0; i < from.size(); ++i)
      if ((*node.map)[i] >= 0) last[static_cast<std::size_t>((*node.map)[i])] = from[i];
    with(id, std::move(last), "with only the last of the terms that meet in an element");
  }

  /// Of a sum: the mean instead, or a sum over more axes.
  void sum_change(int id, const Node& node) {
    const double n = static_cast<double>(graph_.node(node.args[0]).shape[node.axis]);
    if (n < 2) return;
    const std::string what = text(node.args[0]);
    const Shape& shape = graph_.node(node.args[0]).shape;
    weighted_sums(shape[node.axis], what, [&](const std::vector<double>& weights, std::string words) {
      with(id, weighted(values(node.args[0]), shape, node.axis, weights), std::move(words));
    });
    if (const int last = shape.rank - 1; shape.rank >= 2 && shape.last(0) == shape.last(1) && node.axis >= last - 1)
      with(id,
           weighted(transposed(values(node.args[0]), shape), shape, node.axis,
                    std::vector<double>(static_cast<std::size_t>(shape.last()), 1.0)),
           fmt::format("with the sum of {} along axis {} for axis {}", what, node.axis == last ? last - 1 : last,
                       node.axis));
    with(id, map(values(id), [=](double v) { return v / n; }), "with the mean for the sum of " + what);
    with(id, map(values(id), [=](double v) { return v * n / (n - 1); }),
         fmt::format("with {}/{} times the sum of {}: the count is off by one", n, n - 1, what));
    for (int axis = 0; axis < node.shape.rank; ++axis) {
      if (node.shape[axis] < 2) continue;
      Values wider = summed(values(id), node.shape, axis);
      with(id, map(wider, [&](double v) { return v / static_cast<double>(node.shape[axis]); }),
           fmt::format("with the mean of {} over axis {} as well", what, axis));
      with(id, std::move(wider), fmt::format("with the sum of {} over axis {} as well", what, axis));
    }
  }

  /// The same slips in the dot products of a matrix product.
  void matmul_change(int id, const Node& node) {
    const std::int64_t n = node.shape.last(1), m = node.shape.last(0),
                       k = graph_.node(node.args[0]).shape.last(node.transpose_a ? 1 : 0);
    if (k < 2) return;
    const Values a = values(node.args[0]), b = values(node.args[1]);
    weighted_sums(k, text(node.args[0]) + " * " + text(node.args[1]),
                  [&](const std::vector<double>& weights, std::string words) {
                    if (!going_ || !wanted(words) || (left_ -= cost(node)) < 0) return;
                    Values scaled = a, out(values(id).size(), 0.0);
                    for (std::size_t i = 0; i < scaled.size(); ++i) {
                      const std::int64_t at = static_cast<std::int64_t>(i) % (n * k);
                      scaled[i] *= weights[static_cast<std::size_t>(node.transpose_a ? at / n : at % k)];
                    }
                    for (std::int64_t plane = 0; plane * n * m < static_cast<std::int64_t>(out.size()); ++plane)
                      plain_matmul({n, k, m, node.transpose_a, node.transpose_b}, scaled.data() + plane * n * k,
                                   b.data() + plane * k * m, out.data() + plane * n * m);
                    with(id, std::move(out), std::move(words));
                  });
  }

  /// What lies outside an image or table read as 1, or as its neighbour.
  void take_change(int id, const Node& node) {
    if (std::none_of(node.map->begin(), node.map->end(), [](std::int64_t at) { return at < 0; })) return;
    Values ones = values(id), last = ones;
    double before = 0;
    for (std::size_t i = 0; i < ones.size(); ++i) {
      if ((*node.map)[i] < 0) ones[i] = 1, last[i] = before;
      before = last[i];
    }
    with(id, std::move(ones), "with ones for the zeros of the padding of " + text(node.args[0]));
    with(id, std::move(last), "with the last number inside for the zeros of the padding of " + text(node.args[0]));
  }

  /// Of equal maxima all, or the last.
  void ties_change(int id, const Node& node) {
    const Shape& shape = graph_.node(node.args[0]).shape;
    const Axis a = split(shape, node.axis);
    const Values from = values(node.args[0]), first = values(id);
    Values all(from.size(), 0.0), last = all;
    for (std::int64_t row = 0; row < a.outer * a.inner; ++row) {
      const std::int64_t begin = row / a.inner * a.inner * a.n + row % a.inner;
      std::int64_t at = begin;
      for (std::int64_t k = begin; k < begin + a.n * a.inner; k += a.inner)
        if (first[static_cast<std::size_t>(k)] != 0) at = k;
      std::int64_t latest = at;
      for (std::int64_t k = begin; k < begin + a.n * a.inner; k += a.inner)
        if (from[static_cast<std::size_t>(k)] == from[static_cast<std::size_t>(at)])
          all[static_cast<std::size_t>(k)] = 1, latest = k;
      last[static_cast<std::size_t>(latest)] = 1;
    }
    with(id, std::move(all), "with every one of equal maxima for the first: ties share all");
    with(id, std::move(last), "with the last of equal maxima for the first: ties");
  }

  /// The node below views.
  int below(int id) const {
    while (moves_nothing(graph_.node(id).primitive) || graph_.node(id).primitive == Primitive::stop_gradient)
      id = graph_.node(id).args[0];
    return id;
  }

  /// An element's own term where a sum over the axis is due.
  void own_term(int id, const Node& node, std::size_t k) {
    const Node& total = graph_.node(below(node.args[k]));
    if (total.primitive != Primitive::sum || graph_.node(total.args[0]).shape.count() != node.shape.count()) return;
    Values out = spread(node, 1 - k);
    const Values& terms = values(total.args[0]);
    for (std::size_t i = 0; i < out.size(); ++i) out[i] *= terms[i];
    with(id, std::move(out),
         fmt::format("with {} for its sum, without the terms of the other elements", text(total.args[0])));
  }

  /// A running or a block's maximum subtracted in place of that of all: sums that are not rescaled when it grows.
  void shift_change(int id, const Node& node) {
    const Node& shift = graph_.node(below(node.args[1]));
    if (shift.primitive != Primitive::max) return;
    const Shape& shape = graph_.node(shift.args[0]).shape;
    if (shape.count() != node.shape.count()) return;
    const Axis a = split(shape, shift.axis);
    const Values from = values(shift.args[0]);
    std::vector<std::pair<Values, std::string>> maxima;
    const auto local = [&](std::int64_t block, Block kind) { return local_maxima(from, a, block, kind); };
    maxima.emplace_back(local(1, Block::running), "the running maximum");
    for (const std::int64_t block : {std::int64_t{4}, std::int64_t{8}, std::int64_t{16}, std::int64_t{32}})
      if (block < a.n)
        maxima.emplace_back(local(block, Block::running), fmt::format("the running maximum of blocks of {}", block));
    for (const std::int64_t half : {a.n / 2, (a.n + 1) / 2})
      if (half > 0 && half < a.n) maxima.emplace_back(local(half, Block::two), "the maximum of each half");
    for (const std::int64_t block : {std::int64_t{4}, std::int64_t{8}, std::int64_t{16}, std::int64_t{32}})
      if (block < a.n)
        maxima.emplace_back(local(block, Block::each), fmt::format("the maximum of each block of {}", block));
    const Values minuend = spread(node, 0);
    for (const auto& [maximum, words] : maxima) {
      Values out = minuend;
      for (std::size_t i = 0; i < out.size(); ++i) out[i] -= maximum[i];
      const std::string said =
          fmt::format("with {} of {} for that of all: what was added up is not rescaled", words, text(shift.args[0]));
      // In its sums alone, where the terms themselves are right.
      for (std::size_t up = static_cast<std::size_t>(id) + 1; up < needed_.size(); ++up) {
        const Node& e = graph_.node(static_cast<int>(up));
        if (!needed_[up] || e.primitive != Primitive::exp || below(e.args[0]) != id) continue;
        for (std::size_t user = up + 1; user < needed_.size(); ++user) {
          const Node& total = graph_.node(static_cast<int>(user));
          if (!needed_[user] || total.primitive != Primitive::sum || below(total.args[0]) != static_cast<int>(up))
            continue;
          with(static_cast<int>(user),
               weighted(map(out, [](double v) { return std::exp(v); }), e.shape, total.axis,
                        std::vector<double>(static_cast<std::size_t>(e.shape[total.axis]), 1.0)),
               said + " in the sum");
        }
      }
      with(id, std::move(out), said);
    }
  }

  void leaf(int id) {
    const Node& node = graph_.node(id);
    if (node.primitive == Primitive::constant) {
      if (is_share(node)) {
        const double n = std::round(1 / node.value);
        if (n > 1) with(id, {1 / (n - 1)}, fmt::format("with 1/{} for 1/{}: the count is off by one", n - 1, n));
        with(id, {1 / (n + 1)}, fmt::format("with 1/{} for 1/{}: the count is off by one", n + 1, n));
        return;
      }
      with(id, {0.0}, "without the constant " + text(id));
      for (const double n : counts_)
        with(id, {node.value / n},
             fmt::format("with 1/{} of the constant {}, as if it were added to a sum of {} and not to its mean", n,
                         text(id), n));
      with(id, {-node.value}, "with the other sign of the constant " + text(id));
      with(id, {2 * node.value}, "with twice the constant " + text(id));
      with(id, {node.value / 2}, "with half the constant " + text(id));
      with(id, {node.value * node.value}, "with the square of the constant " + text(id));
      for (const int digits : {1, 2, 3, 4, 5}) {
        const double scale =
            node.value == 0 ? 1 : std::pow(10.0, digits - 1 - std::floor(std::log10(std::fabs(node.value))));
        for (const double off : {std::round(node.value * scale) / scale, std::trunc(node.value * scale) / scale})
          if (off != node.value)
            with(id, {off}, fmt::format("with {:.6g} for the constant {}, which is slightly off", off, text(id)));
      }
      return;
    }
    other_rows(id);
    const std::string what = text(id);
    const Values& from = values(id);
    const int rank = node.shape.rank;
    for (int axis = 0; axis < rank; ++axis)
      if (node.shape[axis] > 1)
        with(id, reversed(from, node.shape, axis), fmt::format("with {} reversed along axis {}", what, axis));
    if (rank >= 2)
      with(id, reversed(reversed(from, node.shape, rank - 1), node.shape, rank - 2),
           fmt::format("with {} reversed along both last axes", what));
    if (node.shape.rank >= 2 && node.shape.last(0) == node.shape.last(1))
      with(id, transposed(from, node.shape), "with " + what + " transposed");
    with(id, map(from, [](double v) { return std::fabs(v); }),
         Change{.words = "with |" + what + "| for " + what, .leaf = node.name, .nonlinear = true});
    with(id, map(from, [](double v) { return std::max(v, 0.0); }),
         Change{.words = "with max(" + what + ", 0) for " + what, .leaf = node.name, .nonlinear = true});
    with(id, map(from, [](double v) { return v * v; }),
         Change{.words = "with the square of " + what, .leaf = node.name, .nonlinear = true});
    if (rank >= 2 && !from.empty())
      with(id, Values(from.size(), from.front()), "with the first element of " + what + " for all of it");
    with(id, map(from, [](double v) { return -v; }), "with the other sign of " + what);
    with(id, Values(from.size(), 0.0), "without " + what);
    with(id, Values(from.size(), 1.0), Change{.words = "with ones for " + what, .leaf = node.name, .nonlinear = true});
  }

  /// A neighbour's or the first number along an axis.
  void other_rows(int id) {
    const Node& node = graph_.node(id);
    const std::string what = text(id);
    const Values from = values(id);
    first_matrix(id);
    for (int axis = 0; axis < node.shape.rank; ++axis) {
      if (node.shape[axis] < 2) continue;
      const char* const whose = axis + 1 < node.shape.rank ? ": another row's" : "";
      for (const int by : {1, -1})
        with(id, along(from, node.shape, axis, [by](std::int64_t i, std::int64_t n) { return (i + by + n) % n; }),
             fmt::format("with {} of the {} index along axis {}{}", what, by > 0 ? "next" : "previous", axis, whose));
      with(id, along(from, node.shape, axis, [](std::int64_t, std::int64_t) { return std::int64_t{0}; }),
           fmt::format("with the first {} along axis {} for all{}", what, axis, whose));
    }
  }

  /// The first matrix of a batch for all of them.
  void first_matrix(int id) {
    const Node& node = graph_.node(id);
    const std::int64_t plane = node.shape.rank < 4 ? 0 : node.shape.last(0) * node.shape.last(1);
    if (plane == 0) return;
    Values out = values(id);
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = out[i % static_cast<std::size_t>(plane)];
    with(id, std::move(out), fmt::format("with the first head or image of {} for all: another row's", text(id)));
  }

  /// Whether a node is a sum, times a constant perhaps.
  bool sums(int id) const {
    const Node& node = graph_.node(id);
    if (moves_nothing(node.primitive)) return sums(node.args[0]);
    if (node.primitive == Primitive::mul && graph_.node(node.args[1]).primitive == Primitive::constant)
      return sums(node.args[0]);
    return node.primitive == Primitive::sum || node.primitive == Primitive::matmul ||
           node.primitive == Primitive::put_add;
  }

  /// A node in fewer bits: an operand, an intermediate, or what is stored in more.
  void narrow(int id) {
    const Node& node = graph_.node(id);
    const bool operand = node.primitive == Primitive::input && given(id),
               constant = node.primitive == Primitive::constant && !is_share(node);
    if (!operand && !constant &&
        (node.args.empty() || given(id) || (moves_nothing(node.primitive) && node.primitive != Primitive::stored)))
      return;
    if ((node.primitive == Primitive::take && silent(graph_, node)) || node.primitive == Primitive::neg) return;
    for (const Narrow& low : narrows(operand)) {
      Values rounded = values(id);
      round_values(*low.format, {.rounding = low.rounding}, rounded, rounded);
      std::string words = fmt::format("{} {} in {}",
                                      operand    ? "takes"
                                      : constant ? "keeps the constant"
                                                 : "keeps",
                                      text(id), low.words) +
                          lost(values(id), rounded);
      with(id, std::move(rounded), Change{std::move(words), low.format, sums(id)});
    }
  }

  struct Narrow {
    const FloatFormat* format;
    Rounding rounding;
    const char* words;
  };
  /// cvt.rna.tf32 rounds ties away; tensor cores that are given fp32 leave the last bits out.
  static std::span<const Narrow> narrows(bool operand) {
    static constexpr Narrow kAll[] = {{&kBf16, Rounding::nearest_even, "bf16"},
                                      {&kFp16, Rounding::nearest_even, "fp16"},
                                      {&kTf32, Rounding::nearest_even, "tf32"},
                                      {&kTf32, Rounding::nearest_away, "tf32"},
                                      {&kTf32, Rounding::toward_zero, "tf32 (truncated)"},
                                      {&kBf16, Rounding::toward_zero, "bf16 (truncated)"}};
    return operand ? std::span<const Narrow>(kAll) : std::span<const Narrow>(kAll, 2);
  }

  /// A factor of all of the target that no product of the formula's own algebra shows: r (g - n mean(g n)) without its
  /// r.
  void whole_factors() {
    const Node& node = graph_.node(target_.id);
    const Values whole = values(target_.id);
    Values by;
    for (int id = target_.id; id-- > 0 && going_;) {
      const Node& factor = graph_.node(id);
      if (!needed_[static_cast<std::size_t>(id)] || factor.shape.count() < 2 || !repeats_to(factor.shape, node.shape) ||
          values(id) == by)
        continue;
      by = values(id);  // of a node and its views the last, which has a name
      Values without = whole, twice = whole;
      for (std::size_t i = 0; i < whole.size(); ++i) {
        const double f =
            by[static_cast<std::size_t>(operand_index(node.shape, factor.shape, static_cast<std::int64_t>(i)))];
        without[i] /= f, twice[i] *= f;
      }
      with(target_.id, std::move(without), fmt::format("without the factor {} of all of it", text(id)));
      with(target_.id, std::move(twice), fmt::format("with the factor {} of all of it once too often", text(id)));
    }
  }

  /// The count of every mean over n off by one, or rounded up to a vector.
  void shares_together() {
    std::map<std::string, std::vector<int>> shares;
    for (std::size_t id = 0; id < needed_.size(); ++id) {
      const Node& node = graph_.node(static_cast<int>(id));
      if (needed_[id] && is_share(node)) shares[node.name].push_back(static_cast<int>(id));
    }
    for (const auto& [name, ids] : shares) {
      const double n = std::round(1 / graph_.node(ids.front()).value);
      // All of them, or the last ones: those of the backward.
      for (std::size_t from = 0; from + 1 < ids.size(); ++from)
        for (const double other : {n - 1, n + 1, std::ceil(n / 4) * 4, std::ceil(n / 8) * 8, std::ceil(n / 32) * 32}) {
          const std::span<const int> some = std::span(ids).subspan(from);
          const std::string where =
              from == 0 ? "every mean" : fmt::format("the last {} of {} means", some.size(), ids.size());
          const std::string words = fmt::format("with 1/{} for 1/{} in {}: the count is off", other, n, where);
          if (other < 1 || other == n || !going_ || !wanted(words) || (left_ -= cost_) < 0) continue;
          std::vector<std::pair<int, Values>> others;
          for (const int id : some) others.emplace_back(id, Values{1 / other});
          going_ = see_(Change{words, nullptr}, evaluator_.value_if(std::move(others), target_));
        }
    }
  }

  /// What is saved, all of it in fewer bits.
  void narrow_saved() {
    std::vector<int> saved;
    std::string names;
    for (std::size_t id = 0; id < needed_.size(); ++id)
      if (needed_[id] && graph_.node(static_cast<int>(id)).primitive == Primitive::stored)
        saved.push_back(static_cast<int>(id)), names += (names.empty() ? "" : " and ") + text(static_cast<int>(id));
    if (saved.size() > 1) narrow_together(saved, "keeps " + names);
  }

  /// Several nodes in fewer bits at once.
  void narrow_together(const std::vector<int>& ids, const std::string& words) {
    for (const Narrow& low : narrows(true)) {
      const std::string said = fmt::format("{} in {}", words, low.words);
      if (!wanted(said)) continue;
      if (!going_ || (left_ -= cost_) < 0) return;
      std::vector<std::pair<int, Values>> others;
      for (const int id : ids) {
        Values rounded = values(id);
        round_values(*low.format, {.rounding = low.rounding}, rounded, rounded);
        others.emplace_back(id, std::move(rounded));
      }
      going_ = see_(Change{said, low.format, false}, evaluator_.value_if(std::move(others), target_));
    }
  }

  /// The operands of a product, as tensor cores take them, and all operands.
  void narrow_operands() {
    std::vector<int> leaves;
    for (const int id : given_)
      if (needed_[static_cast<std::size_t>(id)] && graph_.node(id).primitive == Primitive::input) leaves.push_back(id);
    if (leaves.size() > 1) narrow_together(leaves, "takes its operands");
    for (std::size_t id = needed_.size(); id-- > 0 && going_;) {
      const Node& node = graph_.node(static_cast<int>(id));
      if (!needed_[id] || given(static_cast<int>(id)) || node.primitive != Primitive::matmul ||
          node.args[0] == node.args[1])
        continue;
      narrow_together(node.args, fmt::format("takes the operands of {}", text(static_cast<int>(id))));
    }
  }

  const Graph& graph_;
  Expr target_;
  NodeNames names_;
  std::int64_t most_, left_, cost_ = 0;
  const std::function<bool(const Change&, const Values&)>& see_;
  const std::string& only_;
  Evaluator evaluator_;
  std::vector<int> given_;
  std::set<double> counts_;  ///< of the means
  std::vector<char> needed_;
  bool going_ = true;
};

}  // namespace

std::vector<double> evaluate_plainly(const Graph& graph,
                                     const std::vector<std::pair<Expr, std::vector<double>>>& leaves, Expr node) {
  Evaluator evaluator(graph);
  for (const auto& [leaf, values] : leaves) evaluator.set(leaf, values);
  return evaluator.value(node);
}

void for_each_change(const Graph& graph, const std::vector<std::pair<Expr, std::vector<double>>>& leaves, Expr target,
                     const NodeNames& names, std::int64_t most,
                     const std::function<bool(const Change&, const std::vector<double>&)>& see,
                     const std::string& only) {
  Changes(graph, leaves, target, names, most, see, only).run();
}

}  // namespace ampcheck::reference
