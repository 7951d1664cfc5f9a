// SPDX-License-Identifier: Apache-2.0
// The adjoint of every primitive, as a graph over the same primitives; so a gradient can be interpreted by every
// arithmetic and differentiated again.
#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

#include "reference/graph/expr.h"
#include "reference/graph/strided.h"
#include "reference/graph/unguarded.h"
#include "src/error.h"

namespace ampcheck::reference {

namespace {

/// A copy of g stretched to `shape`.
Expr stretch(Expr g, const Shape& shape) {
  if (g.shape() == shape) return g;
  Shape strides = row_major_strides(g.shape());
  for (; strides.rank < shape.rank; ++strides.rank)
    for (int i = strides.rank; i >= 0; --i) strides[i] = i ? strides[i - 1] : 0;
  const int lead = shape.rank - g.shape().rank;
  for (int i = lead; i < shape.rank; ++i)
    if (g.shape()[i - lead] == 1) strides[i] = 0;
  return take(g, strided_offsets(shape, strides), shape);
}

/// A condition of a `where`: the gradient of one of its branches is 0 where the other is chosen.
struct Guard {
  int condition = -1;
  bool yes = true;  ///< the branch
  bool operator==(const Guard&) const = default;
};

bool fits_into(const Shape& a, const Shape& shape) {
  bool fits = a.rank <= shape.rank;
  for (int i = 0; fits && i < a.rank; ++i) fits = a.last(i) == 1 || a.last(i) == shape.last(i);
  return fits;
}

/// Guards through which a gradient has come, and whether 0 may have met a pole behind them since: an adjoint that
/// reaches the chosen branch alone is exactly 0 there, not 0/0 or 0 times infinity. Its guards are applied once more
/// only where the gradient leaves them.
struct Guarded {
  std::vector<Guard> guards;
  bool open = false;
  /// The same behind one more `where`.
  Guarded behind(int condition, bool yes) const {
    Guarded out = *this;
    out.guards.push_back({condition, yes});
    return out;
  }
  /// After an operation with poles, or with a factor that may be infinite.
  Guarded opened() const { return {guards, !guards.empty()}; }
  /// g, 0 where a guard says so; it has no guards then.
  Expr close(Expr g) {
    for (const Guard& guard : guards) {
      if (!open) break;
      const Expr condition = g.graph->at(guard.condition), zero = constant(*g.graph, 0.0);
      g = guard.yes ? where(condition, g, zero) : where(condition, zero, g);
    }
    guards.clear();
    open = false;
    return g;
  }
  /// Whether every condition is one of a tensor of this shape.
  bool fits(const Graph& graph, const Shape& shape) const {
    return std::ranges::all_of(guards,
                               [&](const Guard& guard) { return fits_into(graph.node(guard.condition).shape, shape); });
  }
};

/// Gradients by node. A gradient may have extent 1 where its node is wider: the same number for the whole axis.
class Gradients {
 public:
  Gradients(Graph& graph, bool guarded) : graph_(graph), guarded_(guarded) {}
  /// Adds contribution `g`, found at a node of shape `at`, to the gradient of an argument of that node.
  void add(int id, Expr g, const Shape& at, Guarded by) {
    if (!guarded_) by = {};
    if (static_cast<std::size_t>(id) >= of_.size()) {
      of_.resize(static_cast<std::size_t>(id) + 1);
      by_.resize(of_.size());
    }
    Expr& slot = of_[static_cast<std::size_t>(id)];
    Guarded& held = by_[static_cast<std::size_t>(id)];
    const Shape shape = graph_.node(id).shape;
    if (!by.fits(graph_, shape)) g = by.close(g);
    if (!(shape == at)) g = sum_to(stretch(g, at), shape);  // broadcasting repeated the argument: add up
    if (!slot.defined()) {
      slot = g;
      held = std::move(by);
      return;
    }
    if (held.guards != by.guards) {
      slot = held.close(slot);
      g = by.close(g);
    }
    slot = slot + g;
    held.open |= by.open;
  }
  Expr of(int id) const {
    return static_cast<std::size_t>(id) < of_.size() ? of_[static_cast<std::size_t>(id)] : Expr{};
  }
  Guarded by(int id) const { return by_[static_cast<std::size_t>(id)]; }

 private:
  Graph& graph_;
  bool guarded_;  ///< otherwise nobody is told of guards
  std::vector<Expr> of_;
  std::vector<Guarded> by_;
};

/// Contributions of one node; `at` is the shape at which they were found.
struct Contributions {
  Gradients& gradients;
  Shape at;
  Guarded by;
  void add(int id, Expr g) { gradients.add(id, g, at, by); }
  void add(int id, Expr g, Guarded behind) { gradients.add(id, g, at, std::move(behind)); }
};

void matmul_adjoint(Contributions& grads, const Node& node, Expr a, Expr b, Expr g) {
  const bool ta = node.transpose_a, tb = node.transpose_b;
  grads.at = a.shape();
  grads.add(a.id, ta ? matmul(b, g, tb, true) : matmul(g, b, false, !tb));
  grads.at = b.shape();
  grads.add(b.id, tb ? matmul(g, a, true, ta) : matmul(a, g, !ta, false));
}

/// The parts that the rule of the node gives its arguments; the value itself comes first and gets none.
void parts_of_own_adjoint(Contributions& grads, Graph& graph, const Node& node, Expr g) {
  const std::vector<Expr> parts = node.adjoint(g);
  if (parts.size() + 1 > node.args.size())
    throw Error("[formula] parts of an own adjoint, got " + std::to_string(parts.size()) + ", want at most " +
                std::to_string(node.args.size() - 1));
  for (std::size_t i = 0; i < parts.size(); ++i) {
    // A part at the shape of the value belongs to a stretched argument, and is added up like any other.
    grads.at = broadcast_shape(parts[i].shape(), graph.node(node.args[i + 1]).shape);
    grads.add(node.args[i + 1], parts[i]);
  }
}

[[noreturn]] void no_adjoint(Primitive p) { throw Error(std::string("[formula] no adjoint of ") + name(p)); }

/// The value of what follows from constants by the four operations, nearly: an exponent and what is made of it.
std::optional<double> fixed_value(const Graph& graph, int id) {
  const Node& node = graph.node(id);
  if (node.primitive == Primitive::constant) return node.value;
  if (node.primitive < Primitive::add || node.primitive > Primitive::div) return std::nullopt;
  const std::optional<double> a = fixed_value(graph, node.args.front()), b = fixed_value(graph, node.args.back());
  if (!a || !b) return std::nullopt;
  switch (node.primitive) {
    case Primitive::add: return *a + *b;
    case Primitive::sub: return *a - *b;
    case Primitive::mul: return *a * *b;
    case Primitive::div: return *a / *b;
    default: return -*a;  // neg
  }
}

/// p - 1: a number of its own where every arithmetic has it exactly.
Expr less_one(Expr p) {
  const Node& node = p.graph->node(p.id);
  const bool in_fp32 = static_cast<double>(static_cast<float>(node.value)) == node.value;
  const bool exact = node.primitive == Primitive::constant && node.name.empty() && in_fp32 &&
                     std::fabs(node.value) < 0x1p20 && node.value - 1.0 + 1.0 == node.value;
  return exact ? constant(*p.graph, node.value - 1.0) : p - 1.0;
}

/// dy/dx = p x^(p-1), dy/dp = y log x. Where p is 0 the value is 1 whatever x is, and 0 times the pole of x^-1 is not a
/// number; where x is 0 and p is not negative, log x says nothing.
void pow_adjoint(Contributions& grads, Expr x, Expr p, Expr y, Expr g) {
  Graph& graph = *x.graph;
  if (const std::optional<double> exponent = fixed_value(graph, p.id)) {
    if (*exponent != 0) grads.add(x.id, g * (p * pow(x, less_one(p))));
    return;
  }
  const Expr zero = constant(graph, 0.0);
  grads.add(x.id, where(equal(p, zero), zero, g * (p * pow(x, less_one(p)))));
  grads.add(p.id, where(equal(x, zero) * less_equal(zero, p), zero, g * (y * log(x))));
}

bool elementwise(Primitive p) { return p >= Primitive::add && p <= Primitive::maximum; }

/// Whether the gradient of such an operation is a finite multiple of what comes in, whatever its operands are.
bool keeps_zero(const Graph& graph, const Node& node) {
  switch (node.primitive) {
    case Primitive::add:
    case Primitive::sub:
    case Primitive::neg:
    case Primitive::abs:
    case Primitive::where:
    case Primitive::maximum: return true;
    case Primitive::mul:
      return std::ranges::any_of(node.args, [&](int arg) { return graph.node(arg).primitive == Primitive::constant; });
    default: return false;
  }
}

/// Leaves, what is held fixed, and what is flat between its jumps.
bool passes_no_gradient(Primitive p) {
  switch (p) {
    case Primitive::input:
    case Primitive::constant:
    case Primitive::indicator:
    case Primitive::stop_gradient:
    case Primitive::no_gradient:
    case Primitive::less:
    case Primitive::less_equal:
    case Primitive::equal:
    case Primitive::first_max:
    case Primitive::sign: return true;
    default: return false;
  }
}

/// The gradient of a, of which y is a function.
Expr gradient_of_function(Graph& graph, Primitive function, Expr a, Expr y, Expr g) {
  switch (function) {
    case Primitive::neg: return -g;
    case Primitive::square: return g * 2.0 * a;
    case Primitive::exp: return g * y;
    case Primitive::expm1: return g * (y + 1.0);
    case Primitive::log: return g / a;
    case Primitive::log1p: return g / (1.0 + a);
    case Primitive::tanh: return g * (1.0 - square(y));
    case Primitive::erf: return g * named_constant(graph, "2/sqrt(pi)") * exp(-square(a));
    case Primitive::erfc: return -(g * named_constant(graph, "2/sqrt(pi)") * exp(-square(a)));
    case Primitive::sin: return g * cos(a);
    case Primitive::cos: return -(g * sin(a));
    case Primitive::sqrt: return g * 0.5 / y;
    case Primitive::rsqrt: return g * -0.5 * y * y * y;
    case Primitive::sigmoid: return g * y * (1.0 - y);
    case Primitive::abs: {
      Node sign;
      sign.primitive = Primitive::sign;
      sign.args = {a.id};
      sign.shape = a.shape();
      return g * graph.record(std::move(sign));
    }
    default: no_adjoint(function);
  }
}

void elementwise_adjoint(Contributions& grads, Graph& graph, const Node& node, Expr y, Expr g) {
  const Expr a = graph.at(node.args[0]), b = node.args.size() < 2 ? Expr{} : graph.at(node.args[1]);
  if (!keeps_zero(graph, node)) grads.by = grads.by.opened();
  switch (node.primitive) {
    case Primitive::add:
      grads.add(a.id, g);
      grads.add(b.id, g);
      break;
    case Primitive::sub:
      grads.add(a.id, g);
      grads.add(b.id, -g);
      break;
    case Primitive::mul:
      grads.add(a.id, g * b);
      grads.add(b.id, g * a);
      break;
    case Primitive::div:
      grads.add(a.id, g / b);
      grads.add(b.id, -(g * y / b));
      break;
    case Primitive::where: {
      const Expr c = graph.at(node.args[2]), zero = constant(graph, 0.0);
      grads.add(b.id, where(a, g, zero), grads.by.behind(a.id, true));
      grads.add(c.id, where(a, zero, g), grads.by.behind(a.id, false));
      break;
    }
    case Primitive::maximum: {
      const Expr zero = constant(graph, 0.0), second = less(a, b);
      grads.add(a.id, where(second, zero, g));
      grads.add(b.id, where(second, g, zero));
      break;
    }
    case Primitive::pow: pow_adjoint(grads, a, b, y, g); break;
    default: grads.add(a.id, gradient_of_function(graph, node.primitive, a, y, g));
  }
}

/// Takes the guards along to the argument `a` of a node that is not elementwise: as they are where rows keep theirs,
/// moved where the elements move. Otherwise they are closed; returns the gradient.
Expr move_guards(Guarded& by, Graph& graph, const Node& node, Expr a, Expr g) {
  if (by.guards.empty()) return g;
  const auto moves = [&](Expr condition) -> std::optional<Expr> {
    condition = stretch(condition, node.shape);
    Expr moved;
    switch (node.primitive) {
      case Primitive::reshape: return reshape(condition, a.shape());
      case Primitive::put_add: return take_by(condition, node.map, a.shape());
      case Primitive::take:
        moved = put_add_by(condition, node.map, a.shape());
        if (graph.node(moved.id).primitive == Primitive::take) return moved;  // no element is taken twice
        return std::nullopt;
      default: return std::nullopt;
    }
  };
  if (node.primitive == Primitive::sum || node.primitive == Primitive::stored || node.primitive == Primitive::max)
    return g;
  Guarded out{{}, by.open};
  for (const Guard& guard : by.guards) {
    const std::optional<Expr> moved = moves(graph.at(guard.condition));
    if (!moved) return by.close(g);
    out.guards.push_back({moved->id, guard.yes});
  }
  by = std::move(out);
  return g;
}

void push(Graph& graph, int id, Expr g, Gradients& gradients) {
  const Node& node = graph.node(id);
  const Primitive p = node.primitive;
  if (passes_no_gradient(p)) return;
  Contributions grads{gradients, node.shape, gradients.by(id)};
  if (elementwise(p)) return elementwise_adjoint(grads, graph, node, graph.at(id), g);
  const Expr a = graph.at(node.args[0]);
  grads.at = a.shape();
  g = move_guards(grads.by, graph, node, a, g);
  if (p != Primitive::stored) g = stretch(g, node.shape);
  switch (p) {
    case Primitive::sum:
    case Primitive::stored: grads.add(a.id, g); break;
    case Primitive::cumsum: grads.add(a.id, cumsum(g, node.axis, !node.reversed)); break;
    case Primitive::max: grads.add(a.id, where(first_max(a, node.axis), g, constant(graph, 0.0))); break;
    case Primitive::matmul: matmul_adjoint(grads, node, a, graph.at(node.args[1]), g); break;
    case Primitive::take: grads.add(a.id, put_add_by(g, node.map, a.shape())); break;
    case Primitive::put_add: grads.add(a.id, take_by(g, node.map, a.shape())); break;
    case Primitive::reshape: grads.add(a.id, reshape(g, a.shape())); break;
    case Primitive::own_adjoint: parts_of_own_adjoint(grads, graph, node, g); break;
    default: no_adjoint(p);
  }
}

std::vector<Expr> vjp_of(Graph& graph, const std::vector<Expr>& outputs, const std::vector<Expr>& cotangents,
                         const std::vector<Expr>& inputs, bool guarded) {
  // Only what depends on an input has a gradient worth recording.
  const auto size = graph.nodes().size();
  std::vector<bool> active(size, false);
  for (const Expr& input : inputs) active[static_cast<std::size_t>(input.id)] = true;
  for (std::size_t id = 0; id < size; ++id) {
    const Node& n = graph.nodes()[id];
    const std::size_t skip = n.primitive == Primitive::own_adjoint ? 1 : 0;  // its value is not differentiated
    for (std::size_t i = skip; i < n.args.size(); ++i)
      if (active[static_cast<std::size_t>(n.args[i])]) active[id] = true;
  }
  Gradients grads(graph, guarded);
  for (std::size_t i = 0; i < outputs.size(); ++i) grads.add(outputs[i].id, cotangents[i], outputs[i].shape(), {});
  for (std::size_t id = size; id-- > 0;) {
    const Expr g = grads.of(static_cast<int>(id));
    if (g.defined() && active[id]) push(graph, static_cast<int>(id), g, grads);
  }
  std::vector<Expr> result;
  for (const Expr& input : inputs) {
    Expr g = grads.of(input.id);
    if (g.defined()) g = grads.by(input.id).close(g);
    const Shape& shape = graph.node(input.id).shape;
    result.push_back(
        g.defined() ? stretch(g, shape)
                    : indicator(graph, shape, std::vector<std::int64_t>(static_cast<std::size_t>(shape.count()), 0)));
  }
  return result;
}

}  // namespace

std::vector<Expr> Graph::vjp(const std::vector<Expr>& outputs, const std::vector<Expr>& cotangents,
                             const std::vector<Expr>& inputs) {
  return vjp_of(*this, outputs, cotangents, inputs, true);
}

std::vector<Expr> vjp_unguarded(Graph& graph, const std::vector<Expr>& outputs, const std::vector<Expr>& cotangents,
                                const std::vector<Expr>& inputs) {
  return vjp_of(graph, outputs, cotangents, inputs, false);
}

}  // namespace ampcheck::reference
