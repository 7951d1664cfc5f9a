// SPDX-License-Identifier: Apache-2.0
#include "checks/reach/preimage.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace ampcheck::checks {

namespace {

using reference::Graph;
using reference::Node;
using reference::Primitive;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
const Pieces kAll = {{-kInfinity, kInfinity}};

/// Pieces through a function that is monotone on [from, to].
Pieces mapped(const Pieces& pieces, double from, double to, const std::function<double(double)>& f) {
  Pieces out;
  for (const auto& [low, high] : intersected(pieces, {{from, to}})) {
    const double a = f(low), b = f(high);
    if (!std::isnan(a) && !std::isnan(b)) out = joined(std::move(out), {{std::min(a, b), std::max(a, b)}});
  }
  return out;
}

Pieces everywhere(const Pieces& pieces, const std::function<double(double)>& f) {
  return mapped(pieces, -kInfinity, kInfinity, f);
}

/// f is even: what it takes to a number it takes there from both sides.
Pieces mirrored(const Pieces& pieces) {
  return joined(everywhere(pieces, [](double v) { return -v; }), pieces);
}

/// k / v over pieces that may hold 0.
Pieces divided(double k, const Pieces& pieces) {
  const auto quotient = [k](double v) { return k / v; };
  return joined(
      mapped(pieces, -kInfinity, -0.0, [&](double v) { return v == 0 ? -std::copysign(kInfinity, k) : quotient(v); }),
      mapped(pieces, 0.0, kInfinity, [&](double v) { return v == 0 ? std::copysign(kInfinity, k) : quotient(v); }));
}

/// The argument at which an increasing function takes a value, by halving.
double inverse(const std::function<double(double)>& f, double value) {
  double low = -40, high = 40;  // erf and erfc are constant beyond
  for (int step = 0; step < 80; ++step) (f(low + (high - low) / 2) < value ? low : high) = low + (high - low) / 2;
  return high >= 40 ? kInfinity : low <= -40 ? -kInfinity : low;
}

/// Of an elementwise function of one argument; nothing where it has no inverse here.
std::optional<Pieces> argument_of(Primitive primitive, const Pieces& wanted) {
  switch (primitive) {
    case Primitive::neg: return everywhere(wanted, [](double v) { return -v; });
    case Primitive::abs: return mirrored(intersected(wanted, {{0, kInfinity}}));
    case Primitive::square: return mirrored(mapped(wanted, 0, kInfinity, [](double v) { return std::sqrt(v); }));
    case Primitive::sqrt: return mapped(wanted, 0, kInfinity, [](double v) { return v * v; });
    case Primitive::rsqrt: return mapped(wanted, 0, kInfinity, [](double v) { return 1 / (v * v); });
    case Primitive::exp: return mapped(wanted, 0, kInfinity, [](double v) { return std::log(v); });
    case Primitive::expm1: return mapped(wanted, -1, kInfinity, [](double v) { return std::log1p(v); });
    case Primitive::log: return everywhere(wanted, [](double v) { return std::exp(v); });
    case Primitive::log1p: return everywhere(wanted, [](double v) { return std::expm1(v); });
    case Primitive::tanh: return mapped(wanted, -1, 1, [](double v) { return std::atanh(v); });
    case Primitive::sigmoid: return mapped(wanted, 0, 1, [](double v) { return std::log(v) - std::log1p(-v); });
    case Primitive::erf:
      return mapped(wanted, -1, 1, [](double v) { return inverse([](double x) { return std::erf(x); }, v); });
    case Primitive::erfc:
      return mapped(wanted, 0, 2, [](double v) { return inverse([](double x) { return -std::erfc(x); }, -v); });
    case Primitive::take:
    case Primitive::reshape:
    case Primitive::stored:
    case Primitive::stop_gradient:
    case Primitive::no_gradient:
    case Primitive::own_adjoint:
    case Primitive::max: return wanted;  // of equal elements
    default: return std::nullopt;
  }
}

/// Of one argument of two; `k` is the other's value, `second` whether it is the first that is known.
std::optional<Pieces> argument_of(Primitive primitive, const Pieces& wanted, double k, bool second) {
  switch (primitive) {
    case Primitive::add: return everywhere(wanted, [k](double v) { return v - k; });
    case Primitive::sub: return everywhere(wanted, [k, second](double v) { return second ? k - v : v + k; });
    case Primitive::mul: return k == 0 ? std::optional<Pieces>() : everywhere(wanted, [k](double v) { return v / k; });
    case Primitive::div:
      if (k == 0) return std::nullopt;
      return second ? divided(k, wanted) : everywhere(wanted, [k](double v) { return v * k; });
    case Primitive::pow:  // of the positive numbers; the others give no more
      if (second || k == 0) return std::nullopt;
      return mapped(wanted, 0, kInfinity, [k](double v) { return std::pow(v, 1 / k); });
    case Primitive::maximum: {
      Pieces out = intersected(wanted, {{k, kInfinity}});
      if (!intersected(wanted, {{k, k}}).empty()) out = joined(std::move(out), {{-kInfinity, k}});
      return out;
    }
    default: return std::nullopt;
  }
}

class Preimage {
 public:
  Preimage(const Graph& graph, int top, int leaf, const std::function<double(int)>& typical)
      : graph_(graph), leaf_(leaf), typical_(typical), follows_(static_cast<std::size_t>(top) + 1, 0) {
    if (leaf > top) return;
    follows_[static_cast<std::size_t>(leaf)] = 1;
    for (int id = leaf + 1; id <= top; ++id)
      for (const int arg : graph.node(id).args)
        follows_[static_cast<std::size_t>(id)] |= follows_[static_cast<std::size_t>(arg)];
  }

  std::optional<Pieces> of(int id, const Pieces& wanted) const {
    if (id == leaf_) return wanted;
    const Node& node = graph_.node(id);
    if (!follows(id) || wanted.empty()) return std::nullopt;
    if (node.primitive == Primitive::sum) {  // n equal terms
      const double n = static_cast<double>(graph_.node(node.args[0]).shape.count()) /
                       static_cast<double>(std::max<std::int64_t>(node.shape.count(), 1));
      return n > 0 ? of(node.args[0], everywhere(wanted, [n](double v) { return v / n; })) : std::nullopt;
    }
    if (node.args.size() == 1 || node.primitive == Primitive::own_adjoint) {
      const std::optional<Pieces> argument = argument_of(node.primitive, wanted);
      return argument ? of(node.args[0], *argument) : std::nullopt;
    }
    if (node.args.size() != 2 || (follows(node.args[0]) && follows(node.args[1]))) return std::nullopt;
    const bool second = follows(node.args[1]);
    const std::optional<Pieces> argument =
        argument_of(node.primitive, wanted, typical_(node.args[second ? 0 : 1]), second);
    return argument ? of(node.args[second ? 1 : 0], *argument) : std::nullopt;
  }

  /// One side of a condition.
  std::optional<Pieces> side(int id, bool yes) const {
    const Node& node = graph_.node(id);
    const auto either = [&](bool of_yes, bool both) -> std::optional<Pieces> {
      const std::optional<Pieces> a = part(node.args[0], of_yes), b = part(node.args[1], of_yes);
      if (!a || !b) return std::nullopt;
      return both ? intersected(*a, *b) : joined(*a, *b);
    };
    switch (node.primitive) {
      case Primitive::less:
      case Primitive::less_equal:
      case Primitive::equal: return comparison(node, yes);
      case Primitive::mul: return either(yes, yes);
      case Primitive::add:
      case Primitive::maximum: return either(yes, !yes);
      case Primitive::sub: return typical_constant(node.args[0], 1) ? side(node.args[1], !yes) : std::nullopt;
      default:
        return argument_of(node.primitive, kAll) && node.args.size() == 1 && node.primitive != Primitive::max
                   ? side(node.args[0], yes)
                   : std::nullopt;
    }
  }

 private:
  bool follows(int id) const { return follows_[static_cast<std::size_t>(id)] != 0; }
  bool typical_constant(int id, double value) const {
    return graph_.node(id).primitive == Primitive::constant && graph_.node(id).value == value;
  }

  /// A part of a condition that does not follow from the leaf is as it is.
  std::optional<Pieces> part(int id, bool yes) const {
    if (follows(id)) return side(id, yes);
    return (typical_(id) != 0) == yes ? kAll : Pieces();
  }

  std::optional<Pieces> comparison(const Node& node, bool yes) const {
    const bool left = follows(node.args[0]), right = follows(node.args[1]);
    if (left == right) return std::nullopt;
    const double k = typical_(node.args[left ? 1 : 0]);
    if (std::isnan(k)) return std::nullopt;
    const int moving = node.args[left ? 0 : 1];
    if (node.primitive == Primitive::equal) return of(moving, yes ? Pieces{{k, k}} : kAll);
    return of(moving, left == yes ? Pieces{{-kInfinity, k}} : Pieces{{k, kInfinity}});
  }

  const Graph& graph_;
  int leaf_;
  const std::function<double(int)>& typical_;
  std::vector<char> follows_;
};

}  // namespace

Pieces intersected(const Pieces& a, const Pieces& b) {
  Pieces out;
  for (const auto& x : a)
    for (const auto& y : b)
      if (const double low = std::max(x.first, y.first), high = std::min(x.second, y.second); low <= high)
        out.emplace_back(low, high);
  std::sort(out.begin(), out.end());
  return out;
}

Pieces joined(Pieces a, const Pieces& b) {
  a.insert(a.end(), b.begin(), b.end());
  std::sort(a.begin(), a.end());
  Pieces out;
  for (const auto& piece : a) {
    if (!out.empty() && piece.first <= out.back().second)
      out.back().second = std::max(out.back().second, piece.second);
    else
      out.push_back(piece);
  }
  return out;
}

std::optional<Pieces> preimage(const Graph& graph, int node, const Pieces& wanted, int leaf,
                               const std::function<double(int)>& typical) {
  return Preimage(graph, node, leaf, typical).of(node, wanted);
}

std::optional<Pieces> preimage_of_condition(const Graph& graph, int condition, bool yes, int leaf,
                                            const std::function<double(int)>& typical) {
  return Preimage(graph, condition, leaf, typical).side(condition, yes);
}

}  // namespace ampcheck::checks
