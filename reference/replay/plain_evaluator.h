// SPDX-License-Identifier: Apache-2.0
// Evaluates a graph over one scalar type, without radii: in 100 digits for the certificate, in fp64 for training the
// small nets, in fp32 with a chosen order of summation for replays. The scalar type brings its functions through a
// policy; the graph walk is written once.
#pragma once

#include <algorithm>
#include <cmath>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "reference/graph/expr.h"
#include "reference/replay/plain_loops.h"
#include "src/error.h"

namespace ampcheck::reference {

struct Fp64Policy;

/// Policy: `using Real`; static constant(double) and functions exp ... cos of Real; sum(span of terms) in its order;
/// where it has them, fuses() and sum_of_products(factors, factors), which take products into sums by fma.
template <class Policy>
class PlainEvaluator {
 public:
  using Real = typename Policy::Real;
  using Values = std::vector<Real>;

  explicit PlainEvaluator(const Graph& graph, Policy policy = {})
      : graph_(graph),
        policy_(std::move(policy)),
        values_(graph.nodes().size()),
        borrowed_(values_.size(), nullptr),
        ready_(values_.size(), 0),
        given_(ready_),
        changed_(ready_) {}

  /// Gives a node its values; what follows from it is evaluated anew when asked for, the rest is kept.
  void set(Expr leaf, Values values) {
    take(leaf, values);
    values_[static_cast<std::size_t>(leaf.id)] = std::move(values);
  }
  /// As set(), without a copy: the values stay where they are and must outlive their use.
  void borrow(Expr leaf, const Values& values) {
    take(leaf, values);
    borrowed_[static_cast<std::size_t>(leaf.id)] = &values;
  }
  /// Keeps the values that every no_gradient node has now, whatever is set later; until release_conventions().
  void hold_conventions() {
    for (std::size_t id = 0; id < values_.size(); ++id) {
      if (graph_.node(static_cast<int>(id)).primitive != Primitive::no_gradient) continue;
      evaluate(id);
      given_[id] = 1;
    }
  }
  /// Lets them follow from their arguments again.
  void release_conventions() {
    for (std::size_t id = 0; id < values_.size(); ++id) {
      if (graph_.node(static_cast<int>(id)).primitive != Primitive::no_gradient || !given_[id]) continue;
      given_[id] = ready_[id] = 0;
      outdate_what_follows(id);
    }
  }
  /// As value(), given away where they are its own: evaluated anew if they are asked for again.
  Values give_value(Expr target) {
    const auto id = static_cast<std::size_t>(target.id);
    evaluate(id);
    if (borrowed_[id] != nullptr || given_[id]) return kept(id);
    ready_[id] = 0;
    return std::move(values_[id]);
  }
  /// Evaluates what `target` needs and returns its values.
  const Values& value(Expr target) { return evaluate(static_cast<std::size_t>(target.id)); }

  /// Values of `target` if these nodes, of its graph, had others; all nodes keep theirs. Valid until the next call.
  const Values& value_if(std::vector<std::pair<int, Values>> others, Expr target) {
    static_assert(!kFuses, "a product that has other values is not to be taken into a sum");
    evaluate(static_cast<std::size_t>(target.id));
    if (others_.empty()) others_.resize(values_.size());
    std::vector<int> ids;
    for (auto& [id, values] : others) {
      ids.push_back(id);
      others_[static_cast<std::size_t>(id)] = std::move(values);
    }
    if (ids != changed_ids_ || target.id != changed_target_) plan_changed(std::move(ids), target.id);
    for (const int id : changed_ids_) changed_[static_cast<std::size_t>(id)] = 1;
    for (const std::size_t id : follow_) {
      others_[id] = compute(graph_.node(static_cast<int>(id)));
      changed_[id] = 1;
    }
    const auto at = static_cast<std::size_t>(target.id);
    const Values& out = changed_[at] ? others_[at] : kept(at);
    std::fill(changed_.begin(), changed_.end(), 0);
    return out;
  }

  /// What the last value_if() evaluated besides the nodes that it was given.
  const std::vector<std::size_t>& followed() const { return follow_; }

  /// Values of a node if its k-th argument had these there; whatever else follows from that argument keeps its own.
  Values value_if_argument(int id, std::size_t k, Values values) {
    const Node& node = graph_.node(id);
    for (const int arg : node.args) evaluate(static_cast<std::size_t>(arg));
    if (others_.empty()) others_.resize(values_.size());
    const auto at = static_cast<std::size_t>(node.args[k]);
    others_[at] = std::move(values);
    changed_[at] = 1;
    Values out = compute(node);
    changed_[at] = 0;
    return out;
  }

 private:
  const Values& arg(const Node& node, std::size_t k) const {
    const auto id = static_cast<std::size_t>(node.args[k]);
    return changed_[id] ? others_[id] : kept(id);
  }
  const Values& kept(std::size_t id) const { return borrowed_[id] != nullptr ? *borrowed_[id] : values_[id]; }
  /// A node counts as given from now on.
  void take(Expr leaf, const Values& values) {
    const auto first = static_cast<std::size_t>(leaf.id);
    if (values.size() != at(graph_.node(leaf.id).shape.count()))
      throw Error("[plain] values of '" + graph_.node(leaf.id).name + "', got " + std::to_string(values.size()) +
                  ", want " + graph_.node(leaf.id).shape.str());
    borrowed_[first] = nullptr;
    ready_[first] = given_[first] = 1;
    outdate_what_follows(first);
  }
  /// Which nodes of the target's follow from those of these ids.
  void plan_changed(std::vector<int> ids, int target) {
    changed_ids_ = std::move(ids);
    changed_target_ = target;
    follow_.clear();
    std::vector<char> stale(values_.size(), 0), needed = stale;
    for (const int id : changed_ids_) stale[static_cast<std::size_t>(id)] = 1;
    needed[static_cast<std::size_t>(target)] = 1;
    for (std::size_t id = static_cast<std::size_t>(target) + 1; id-- > 0;)
      if (needed[id] && !given_[id] && !stale[id])
        for (const int arg : graph_.node(static_cast<int>(id)).args) needed[static_cast<std::size_t>(arg)] = 1;
    for (std::size_t id = 0; id <= static_cast<std::size_t>(target); ++id) {
      if (given_[id] || stale[id] || !needed[id]) continue;
      for (const int arg : graph_.node(static_cast<int>(id)).args) stale[id] |= stale[static_cast<std::size_t>(arg)];
      if (stale[id]) follow_.push_back(id);
    }
  }
  const Shape& arg_shape(const Node& node, std::size_t k) const { return graph_.node(node.args[k]).shape; }
  static std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }
  /// Policies that may take the products of a sum unrounded.
  static constexpr bool kFuses = requires(const Policy& p, const Values& v) { p.sum_of_products(v, v); };

  const Values& evaluate(std::size_t target) {
    std::vector<char> needed(values_.size(), 0);
    needed[target] = 1;
    for (std::size_t id = target + 1; id-- > 0;) {
      if (!needed[id] || ready_[id]) continue;
      for (const int arg : graph_.node(static_cast<int>(id)).args) needed[static_cast<std::size_t>(arg)] = 1;
    }
    for (std::size_t id = 0; id <= target; ++id) {
      if (!needed[id] || ready_[id]) continue;
      values_[id] = compute(graph_.node(static_cast<int>(id)));
      ready_[id] = 1;
    }
    return kept(target);
  }

  void outdate_what_follows(std::size_t first) {
    std::vector<char> stale(values_.size(), 0);
    stale[first] = 1;
    for (std::size_t id = first + 1; id < values_.size(); ++id) {
      if (given_[id]) continue;
      for (const int arg : graph_.node(static_cast<int>(id)).args) stale[id] |= stale[static_cast<std::size_t>(arg)];
      if (stale[id]) ready_[id] = 0;
    }
  }

  /// Policies of more than fp64 know named constants exactly.
  static Real constant(const Node& node) {
    if constexpr (requires { Policy::named_constant(node.name); })
      if (!node.name.empty()) return Policy::named_constant(node.name);
    if constexpr (requires { Policy::named_constant(node.name, node.value); })
      return Policy::named_constant(node.name, node.value);
    return Policy::constant(node.value);
  }

  Values compute(const Node& node) {
    const auto n = at(node.shape.count());
    switch (node.primitive) {
      case Primitive::input: throw Error("[plain] leaf '" + node.name + "' has no values");
      case Primitive::constant: return Values(1, policy_.round(constant(node)));
      case Primitive::indicator: {
        Values out;
        for (const std::int64_t v : *node.map) out.push_back(Policy::constant(static_cast<double>(v)));
        return out;
      }
      case Primitive::reshape:
      case Primitive::stop_gradient:
      case Primitive::no_gradient:
      case Primitive::own_adjoint: return arg(node, 0);
      case Primitive::stored: return policy_.stored(node.name, arg(node, 0));
      case Primitive::sum:
      case Primitive::max:
      case Primitive::first_max: return reduce(node);
      case Primitive::cumsum: return running(node);
      case Primitive::matmul: return matmul(node);
      case Primitive::take: {
        Values out(n, Policy::constant(0));
        for (std::size_t i = 0; i < n; ++i)
          if ((*node.map)[i] >= 0) out[i] = arg(node, 0)[at((*node.map)[i])];
        return out;
      }
      case Primitive::put_add: {
        std::vector<std::vector<Real>> terms(n);
        for (std::size_t i = 0; i < arg(node, 0).size(); ++i)
          if ((*node.map)[i] >= 0) terms[at((*node.map)[i])].push_back(arg(node, 0)[i]);
        Values out;
        for (auto& t : terms) out.push_back(policy_.sum(t));
        return out;
      }
      default: return elementwise(node);
    }
  }

  Values elementwise(const Node& node) {
    const auto n = at(node.shape.count());
    if constexpr (std::is_same_v<Policy, Fp64Policy>) {
      const Values* args[3] = {};
      const Shape* shapes[3] = {};
      for (std::size_t k = 0; k < node.args.size(); ++k) {
        args[k] = &arg(node, k);
        shapes[k] = &arg_shape(node, k);
      }
      return plain_elementwise(node, {args, node.args.size()}, {shapes, node.args.size()});
    }
    Values out(n, Policy::constant(0));
    // Row-major strides of each operand, 0 where it repeats.
    std::int64_t stride[3][kMaxRank] = {};
    for (std::size_t k = 0; k < node.args.size(); ++k) {
      const Shape& s = arg_shape(node, k);
      const Shape own = row_major_strides(s);
      for (int axis = 0; axis < s.rank; ++axis)
        stride[k][axis + node.shape.rank - s.rank] = s[axis] == 1 ? 0 : own[axis];
    }
    if constexpr (requires { policy_.plain(); })
      if (policy_.plain() && n > 0 && by_lines(node, stride, out)) return out;
    std::int64_t index[kMaxRank] = {}, from[3] = {};
    static const Real kNone = Policy::constant(0);
    for (std::size_t i = 0; i < n; ++i) {
      const Real& a = arg(node, 0)[at(from[0])];
      const Real& b = node.args.size() > 1 ? arg(node, 1)[at(from[1])] : kNone;
      const Real& c = node.args.size() > 2 ? arg(node, 2)[at(from[2])] : kNone;
      if constexpr (requires { policy_.erring(node.primitive, a); })
        out[i] = policy_.erring(node.primitive, scalar(node.primitive, a, b, c));
      else
        out[i] = policy_.round(scalar(node.primitive, a, b, c));
      for (int axis = node.shape.rank - 1; axis >= 0; --axis) {
        for (std::size_t k = 0; k < node.args.size(); ++k) from[k] += stride[k][axis];
        if (++index[axis] < node.shape[axis]) break;
        for (std::size_t k = 0; k < node.args.size(); ++k) from[k] -= stride[k][axis] * node.shape[axis];
        index[axis] = 0;
      }
    }
    return out;
  }

  /// The commonest operations along the last axis, chosen once a node; false for others.
  bool by_lines(const Node& node, const std::int64_t (&stride)[3][kMaxRank], Values& out) const {
    switch (node.primitive) {
      case Primitive::add: return lines(node, stride, out, [](Real a, Real b) { return a + b; });
      case Primitive::sub: return lines(node, stride, out, [](Real a, Real b) { return a - b; });
      case Primitive::mul: return lines(node, stride, out, [](Real a, Real b) { return a * b; });
      case Primitive::div: return lines(node, stride, out, [](Real a, Real b) { return Policy::divide(a, b); });
      case Primitive::square: return lines(node, stride, out, [](Real a, Real) { return a * a; });
      default: return false;
    }
  }
  template <class F>
  bool lines(const Node& node, const std::int64_t (&stride)[3][kMaxRank], Values& out, F f) const {
    const Values &a = arg(node, 0), &b = arg(node, node.args.size() - 1);
    const std::size_t second = node.args.size() - 1;
    const int last = node.shape.rank - 1;
    const std::int64_t inner = last >= 0 ? node.shape[last] : 1,
                       by[2] = {last >= 0 ? stride[0][last] : 0, last >= 0 ? stride[second][last] : 0};
    for (std::int64_t first = 0; first < std::ssize(out); first += inner) {
      std::int64_t from[2] = {0, 0}, rest = first / inner;
      for (int axis = last - 1; axis >= 0; rest /= node.shape[axis--]) {
        from[0] += rest % node.shape[axis] * stride[0][axis];
        from[1] += rest % node.shape[axis] * stride[second][axis];
      }
      const Real *const x = a.data() + from[0], *const y = b.data() + from[1];
      Real* const to = out.data() + first;
      for (std::int64_t k = 0; k < inner; ++k) to[k] = f(x[k * by[0]], y[k * by[1]]);
    }
    return true;
  }

  static Real truth(bool yes) { return Policy::constant(yes ? 1 : 0); }
  static Real absolute(const Real& x) { return x < 0 ? Real(-x) : x; }
  static Real sign(const Real& x) { return x > 0 ? Policy::constant(1) : (x < 0 ? Policy::constant(-1) : x); }
  static Real chosen(const Real& condition, const Real& yes, const Real& no) {
    if constexpr (requires { Policy::chosen(condition, yes, no); }) return Policy::chosen(condition, yes, no);
    return condition != 0 ? yes : no;
  }
  static Real larger(const Real& x, const Real& y) { return x > y || x != x ? x : y; }

  static Real function(Primitive primitive, const Real& a) {
    switch (primitive) {
      case Primitive::exp: return Policy::exp(a);
      case Primitive::expm1: return Policy::expm1(a);
      case Primitive::log: return Policy::log(a);
      case Primitive::log1p: return Policy::log1p(a);
      case Primitive::tanh: return Policy::tanh(a);
      case Primitive::erf: return Policy::erf(a);
      case Primitive::erfc: return Policy::erfc(a);
      case Primitive::sin: return Policy::sin(a);
      case Primitive::cos: return Policy::cos(a);
      case Primitive::sqrt: return Policy::sqrt(a);
      case Primitive::rsqrt: return Policy::divide(Policy::constant(1), Policy::sqrt(a));
      case Primitive::sigmoid: return Policy::divide(Policy::constant(1), Policy::constant(1) + Policy::exp(-a));
      default: throw Error(std::string("[plain] no rule for ") + name(primitive));
    }
  }

  static Real scalar(Primitive primitive, const Real& a, const Real& b, const Real& c) {
    switch (primitive) {
      case Primitive::add: return a + b;
      case Primitive::sub: return a - b;
      case Primitive::neg: return -a;
      case Primitive::mul: return a * b;
      case Primitive::div: return Policy::divide(a, b);
      case Primitive::square: return a * a;
      case Primitive::pow: return Policy::pow(a, b);
      case Primitive::abs: return absolute(a);
      case Primitive::sign: return sign(a);
      case Primitive::less: return truth(a < b);
      case Primitive::less_equal: return truth(a <= b);
      case Primitive::equal: return truth(a == b);
      case Primitive::where: return chosen(a, b, c);
      case Primitive::maximum: return larger(a, b);
      default: return function(primitive, a);
    }
  }

  Values reduce(const Node& node) {
    const Shape& s = arg_shape(node, 0);
    const Values& x = arg(node, 0);
    std::int64_t outer = 1, inner = 1;
    const std::int64_t n = s[node.axis];
    for (int i = 0; i < node.axis; ++i) outer *= s[i];
    for (int i = node.axis + 1; i < s.rank; ++i) inner *= s[i];
    Values out(at(node.shape.count()), Policy::constant(0));
    if constexpr (std::is_same_v<Policy, Fp64Policy>)
      if (node.primitive == Primitive::sum) {
        plain_sums(x.data(), outer, n, inner, out.data());
        return out;
      }
    if constexpr (kFuses)
      if (const auto [a, b] = factors(node); !a.empty()) {
        std::vector<Real> left(at(n)), right(at(n));
        for (std::size_t i = 0; i < out.size(); ++i) {
          const std::size_t first = i / at(inner) * at(n * inner) + i % at(inner);
          for (std::size_t j = 0; j < left.size(); ++j) {
            left[j] = a[first + j * at(inner)];
            right[j] = b[first + j * at(inner)];
          }
          out[i] = policy_.sum_of_products(left, right);
        }
        return out;
      }
    std::vector<Real> terms(at(n));
    for (std::int64_t o = 0; o < outer; ++o)
      for (std::int64_t k = 0; k < inner; ++k) {
        for (std::int64_t i = 0; i < n; ++i) terms[at(i)] = x[at((o * n + i) * inner + k)];
        if (node.primitive == Primitive::sum) {
          out[at(o * inner + k)] = policy_.sum(terms);
          continue;
        }
        std::size_t best = 0;
        for (std::size_t i = 1; i < terms.size(); ++i)
          if (terms[best] == terms[best] && (terms[i] > terms[best] || terms[i] != terms[i])) best = i;
        if (node.primitive == Primitive::max)
          out[at(o * inner + k)] = terms.empty() ? Policy::constant(-INFINITY) : terms[best];
        else if (n > 0)
          out[at((o * n + static_cast<std::int64_t>(best)) * inner + k)] = Policy::constant(1);
      }
    return out;
  }

  /// Cumulative sums: in the policy's order where it has one, else one term after the other.
  Values running(const Node& node) const {
    const Shape& s = node.shape;
    Values out = arg(node, 0);
    std::int64_t inner = 1;
    const std::int64_t n = s[node.axis];
    for (int i = node.axis + 1; i < s.rank; ++i) inner *= s[i];
    Values terms(at(n));
    const std::int64_t lines = n > 0 ? std::ssize(out) / n : 0;
    for (std::int64_t line = 0; line < lines; ++line) {
      const auto place = [&](std::int64_t i) {
        return at(line / inner * n * inner + line % inner + (node.reversed ? n - 1 - i : i) * inner);
      };
      for (std::int64_t i = 0; i < n; ++i) terms[at(i)] = out[place(i)];
      if constexpr (requires { policy_.run(terms); })
        policy_.run(terms);
      else
        for (std::size_t i = 1; i < terms.size(); ++i) terms[i] = terms[i - 1] + terms[i];
      for (std::int64_t i = 0; i < n; ++i) out[place(i)] = terms[at(i)];
    }
    return out;
  }

  /// The factors of the products that a sum adds up, element by element; none where products are not fused into it, or
  /// these are no products.
  std::pair<Values, Values> factors(const Node& sum) const {
    if (sum.primitive != Primitive::sum || !policy_.fuses()) return {};
    int id = sum.args[0];
    while (graph_.node(id).primitive == Primitive::reshape && !given_[static_cast<std::size_t>(id)])
      id = graph_.node(id).args[0];
    const Node& product = graph_.node(id);
    if (given_[static_cast<std::size_t>(id)]) return {};
    if (product.primitive == Primitive::square) return {arg(product, 0), arg(product, 0)};
    if (product.primitive != Primitive::mul) return {};
    return {broadcast(product, 0), broadcast(product, 1)};
  }

  /// Operand k of an elementwise node at each of its elements.
  Values broadcast(const Node& node, std::size_t k) const {
    const Shape& s = arg_shape(node, k);
    const Shape own = row_major_strides(s);
    Values out(at(node.shape.count()));
    for (std::size_t i = 0; i < out.size(); ++i) {
      std::int64_t rest = static_cast<std::int64_t>(i), from = 0;
      for (int axis = node.shape.rank - 1; axis >= 0; --axis) {
        const int mine = axis - node.shape.rank + s.rank;
        if (mine >= 0 && s[mine] != 1) from += rest % node.shape[axis] * own[mine];
        rest /= node.shape[axis];
      }
      out[i] = arg(node, k)[at(from)];
    }
    return out;
  }

  Values matmul(const Node& node) {
    const Values &a = arg(node, 0), &b = arg(node, 1);
    const std::int64_t n = node.shape.last(1), m = node.shape.last(0),
                       k = arg_shape(node, 0).last(node.transpose_a ? 1 : 0);
    Values out(at(node.shape.count()), Policy::constant(0));
    const std::int64_t plane = n * m, batches = plane > 0 ? node.shape.count() / plane : 0;
    if constexpr (std::is_same_v<Policy, Fp64Policy>) {
      for (std::int64_t batch = 0; batch < batches; ++batch)
        plain_matmul({n, k, m, node.transpose_a, node.transpose_b}, a.data() + batch * n * k, b.data() + batch * k * m,
                     out.data() + batch * plane);
      return out;
    }
    std::vector<Real> terms(at(k)), left(kFuses ? at(k) : 0), right(left.size());
    for (std::int64_t batch = 0; batch < batches; ++batch)
      for (std::int64_t i = 0; i < n; ++i)
        for (std::int64_t j = 0; j < m; ++j) {
          for (std::int64_t p = 0; p < k; ++p) {
            const Real& x = a[at(batch * n * k + (node.transpose_a ? p * n + i : i * k + p))];
            const Real& y = b[at(batch * k * m + (node.transpose_b ? j * k + p : p * m + j))];
            if constexpr (kFuses) {
              left[at(p)] = x;
              right[at(p)] = y;
            }
            if constexpr (requires { policy_.product(x * y); })
              terms[at(p)] = policy_.product(x * y);
            else
              terms[at(p)] = policy_.round(x * y);
          }
          Real& to = out[at(batch * plane + i * m + j)];
          if constexpr (kFuses)
            to = policy_.fuses() ? policy_.sum_of_products(left, right) : policy_.sum(terms);
          else
            to = policy_.sum(terms);
        }
    return out;
  }

  const Graph& graph_;
  Policy policy_;
  std::vector<Values> values_;
  std::vector<const Values*> borrowed_;  ///< by node, of those that were
  std::vector<char> ready_;
  std::vector<char> given_;
  std::vector<Values> others_;  ///< of value_if()
  std::vector<char> changed_;   ///< nodes that have one of those
  std::vector<int> changed_ids_;
  int changed_target_ = -1;
  std::vector<std::size_t> follow_;
};

/// fp64, sums in order.
struct Fp64Policy {
  using Real = double;
  static double constant(double v) { return v; }
  static double divide(double a, double b) { return a / b; }
  static double exp(double x) { return std::exp(x); }
  static double expm1(double x) { return std::expm1(x); }
  static double log(double x) { return std::log(x); }
  static double log1p(double x) { return std::log1p(x); }
  static double tanh(double x) { return std::tanh(x); }
  static double erf(double x) { return std::erf(x); }
  static double erfc(double x) { return std::erfc(x); }
  static double sin(double x) { return std::sin(x); }
  static double cos(double x) { return std::cos(x); }
  static double sqrt(double x) { return std::sqrt(x); }
  static double pow(double x, double p) { return std::pow(x, p); }
  static double round(double x) { return x; }
  static double sum(const std::vector<double>& terms) {
    double s = 0;
    for (const double t : terms) s += t;
    return s;
  }
  static std::vector<double> stored(const std::string&, const std::vector<double>& v) { return v; }
};

}  // namespace ampcheck::reference
