// SPDX-License-Identifier: Apache-2.0
#include "reference/ball/ball.h"

#include <algorithm>
#include <array>

#include "reference/ball/ball_rules.h"
#include "src/error.h"
#include "src/rounding.h"

namespace ampcheck::reference {

BallEvaluator::BallEvaluator(const Graph& graph, Arithmetic arithmetic, std::vector<Expr> targets, Switches switches,
                             Radii radii)
    : graph_(graph),
      arithmetic_(std::move(arithmetic)),
      switches_(switches),
      radii_(radii),
      balls_(graph.nodes().size()),
      given_(balls_.size(), 0),
      fresh_(balls_.size(), 0),
      wants_sum_(balls_.size(), 0),
      keep_(balls_.size(), 0),
      varies_(balls_.size(), 0),
      constant_(balls_.size(), 0),
      targets_(std::move(targets)) {
  for (std::size_t id = 0; id < balls_.size(); ++id) {
    const Node& node = graph_.node(static_cast<int>(id));
    constant_[id] = node.primitive != Primitive::input && std::ranges::all_of(node.args, [&](int arg) {
                      return constant_[static_cast<std::size_t>(arg)] != 0;
                    });
  }
  rows_ = plan_rows(graph_, need(targets_, false));
  if (radii_ == Radii::uniform) mark_sharp();
  if (radii_ == Radii::uniform && rows_.step > 1) rows_.step *= 4;  // values alone: more of them stay in cache
  mark_sums();
}

namespace {

bool adds_up(Primitive p) {
  return p == Primitive::add || p == Primitive::sub || p == Primitive::sum || p == Primitive::put_add ||
         p == Primitive::cumsum;
}
/// Primitives through which a sum goes on as it is.
bool hands_on(Primitive p) {
  return p == Primitive::reshape || p == Primitive::neg || p == Primitive::take || p == Primitive::own_adjoint ||
         p == Primitive::stored || p == Primitive::no_gradient;
}

}  // namespace

/// A node carries the state of its sum where a consumer adds on, possibly through primitives that only move (R3).
void BallEvaluator::mark_sums() {
  const auto& nodes = graph_.nodes();
  const std::vector<char> needed = need(targets_, false);
  for (std::size_t id = nodes.size(); id-- > 0;) {
    if (!needed[id]) continue;
    const Primitive p = nodes[id].primitive;
    if (!adds_up(p) && !(hands_on(p) && wants_sum_[id])) continue;
    const std::size_t count = p == Primitive::own_adjoint ? 1 : nodes[id].args.size();
    for (std::size_t k = 0; k < count; ++k) {
      const auto arg = static_cast<std::size_t>(nodes[id].args[k]);
      const Primitive q = nodes[arg].primitive;
      if (adds_up(q) || hands_on(q) || q == Primitive::matmul) wants_sum_[arg] = 1;
    }
  }
}

void BallEvaluator::adds_on(Expr target) {
  wants_sum_[static_cast<std::size_t>(target.id)] = 1;
  mark_sums();
}

Ball BallEvaluator::added_to(const Ball& part, std::span<const double> held) const {
  const RuleContext c = context_of(Primitive::sum);
  Ball out;
  out.shape = part.shape;
  out.v = make_channel(part.count());
  out.r = make_channel(part.count());
  out.flags = part.flags;
  out.replay = part.replay;
  for (std::int64_t i = 0; i < part.count(); ++i) {
    const double h = held[static_cast<std::size_t>(i)], v = part.v[i], r = part.r ? part.r[i] : 0.0, sum = v + h;
    const double terms = part.terms ? part.terms[i] : (v != 0 || r != 0 ? 1.0 : 0.0),
                 mass = part.mass ? part.mass[i] : std::fabs(v) + r;
    const double base = part.base ? part.base[i] : r, grid = part.grid ? part.grid[i] : (r == 0 ? lowest_bit(v) : 0.0);
    const double chained = summation_radius(c, terms + 1, mass + std::fabs(h), base, std::fmin(grid, lowest_bit(h)));
    // A target whose sum has no state, or the sum first and what was held last.
    const bool exact = r == 0 && representable(sum);
    const double last = exact || terms == 0 ? r : r + c.u * (std::fabs(sum) + r);
    out.v[i] = sum;
    out.r[i] = settle(sum, std::fmax(chained, last));
  }
  measure(out);
  return out;
}

/// Products of which a target is a view: where one factor nears zero the other's size matters.
void BallEvaluator::mark_sharp() {
  sharp_.assign(balls_.size(), 0);
  for (const Expr& target : targets_) {
    const Node* node = &graph_.node(target.id);
    int id = target.id;
    while (node->primitive == Primitive::reshape || node->primitive == Primitive::own_adjoint ||
           node->primitive == Primitive::stored) {
      id = node->args[0];
      node = &graph_.node(id);
    }
    sharp_[static_cast<std::size_t>(id)] = node->primitive == Primitive::mul;
  }
}

void BallEvaluator::set(Expr leaf, std::span<const double> values, std::span<const double> radius) {
  const Node& node = graph_.node(leaf.id);
  if (static_cast<std::int64_t>(values.size()) != node.shape.count())
    throw Error("[ball] values of '" + node.name + "', got " + std::to_string(values.size()) + ", want " +
                node.shape.str());
  Ball ball;
  ball.shape = node.shape;
  ball.v = make_channel(ball.count());
  std::copy(values.begin(), values.end(), ball.v.get());
  if (!radius.empty()) {
    ball.r = make_channel(ball.count());
    std::copy(radius.begin(), radius.end(), ball.r.get());
  }
  measure(ball);
  give(leaf, std::move(ball));
}

void BallEvaluator::borrow(Expr leaf, std::span<const double> values, const Extremes& range) {
  const Node& node = graph_.node(leaf.id);
  if (static_cast<std::int64_t>(values.size()) != node.shape.count())
    throw Error("[ball] values of '" + node.name + "', got " + std::to_string(values.size()) + ", want " +
                node.shape.str());
  Ball ball;
  ball.shape = node.shape;
  ball.v = Channel(Channel(), const_cast<double*>(values.data()));  // nobody writes to a leaf
  ball.range = range;
  ball.narrow = true;
  give(leaf, std::move(ball));
}

namespace {

/// A subnormal operand may count as zero where the contract allows flushing.
void widen_subnormals(Ball& ball) {
  const auto subnormal = [](double v) { return v != 0 && std::fabs(v) < kMinNormal; };
  if (!(ball.range.smallest < kMinNormal)) return;
  Channel wide = make_channel(ball.count());
  for (std::int64_t i = 0; i < ball.count(); ++i)
    wide[i] = (ball.r ? ball.r[i] : 0.0) + (subnormal(ball.v[i]) ? std::fabs(ball.v[i]) : 0.0);
  ball.r = std::move(wide);
}

}  // namespace

void BallEvaluator::give(Expr leaf, Ball ball) {
  const auto id = static_cast<std::size_t>(leaf.id);
  if (arithmetic_.flushes_subnormals) widen_subnormals(ball);
  leaves_finite_ &= ball.range.finite;
  ball.signed_zeros = true;
  balls_[id] = std::move(ball);
  given_[id] = 1;
  // Whatever depends on it is stale.
  std::vector<char> stale(balls_.size(), 0);
  stale[id] = 1;
  for (std::size_t k = id + 1; k < balls_.size(); ++k)
    for (const int arg : graph_.node(static_cast<int>(k)).args)
      stale[k] = static_cast<char>(stale[k] | stale[static_cast<std::size_t>(arg)]);
  for (std::size_t k = id + 1; k < balls_.size(); ++k)
    if (stale[k] && !given_[k]) fresh_[k] = 0;
  fresh_[id] = 1;
}

void BallEvaluator::release(Expr stored) {
  const auto id = static_cast<std::size_t>(stored.id);
  given_[id] = 0;
  for (std::size_t k = id; k < balls_.size(); ++k)
    if (!given_[k]) fresh_[k] = 0;
}

namespace {

/// A leaf or an identity in the form that the full mode expects.
void complete(Ball& ball, bool full) {
  const std::int64_t n = ball.count();
  if (full && !ball.replay) {
    ball.replay = make_channel(n);
    ball.up = make_channel(n);
    ball.down = make_channel(n);
    std::copy_n(ball.v.get(), n, ball.replay.get());
    std::fill_n(ball.up.get(), n, 0.0);
    std::fill_n(ball.down.get(), n, 0.0);
    ball.flags =
        std::shared_ptr<std::uint8_t[]>(new std::uint8_t[static_cast<std::size_t>(std::max<std::int64_t>(n, 1))]());
  }
}

Ball filled(const Shape& shape, const std::vector<std::int64_t>& values) {
  Ball ball;
  ball.shape = shape;
  ball.v = make_channel(ball.count());
  for (std::size_t i = 0; i < values.size(); ++i)
    ball.v[static_cast<std::ptrdiff_t>(i)] = static_cast<double>(values[i]);
  return ball;
}

}  // namespace

bool round_ball(const FloatFormat& format, double unit, double eta_on, bool full, Ball& ball) {
  Ball out = ball;
  out.r = make_channel(ball.count());
  if (full) {  // a saved type of smaller range than the compute type: its own flags and replay
    complete(out, true);
    out.replay = make_channel(ball.count());
    std::copy_n((ball.replay ? ball.replay : ball.v).get(), ball.count(), out.replay.get());
    out.flags = std::shared_ptr<std::uint8_t[]>(
        new std::uint8_t[static_cast<std::size_t>(std::max<std::int64_t>(ball.count(), 1))]());
    if (ball.flags) std::copy_n(ball.flags.get(), ball.count(), out.flags.get());
  }
  out.terms = out.mass = out.base = out.grid = nullptr;
  std::vector<double> rounded(static_cast<std::size_t>(ball.count()));
  round_values(format, RoundingMode{}, {ball.v.get(), rounded.size()}, rounded);
  for (std::int64_t i = 0; i < ball.count(); ++i) {
    const double v = ball.v[i], r = ball.r ? ball.r[i] : 0.0, size = std::fabs(v) + r;
    const bool exact = r == 0 && rounded[static_cast<std::size_t>(i)] == v;
    out.r[i] =
        exact ? 0.0
              : settle(v, r + unit * size + (size < 2 * format.min_normal() ? eta_on * format.min_subnormal() : 0.0));
    if (size <= format.max_finite() || !std::isfinite(v)) continue;
    if (!full) return false;
    out.flags[i] = static_cast<std::uint8_t>(out.flags[i] | kOverflowed);
    out.replay[i] = std::copysign(kInfinity, v);
  }
  ball = std::move(out);
  return true;
}

void bound_chain(const Node& node, std::span<const Ball* const> args, Ball& out) {
  const auto above = [](const Ball& b) { return std::max({b.chain_up, b.range.largest, 1.0}); };
  const auto below = [](const Ball& b) { return std::min({b.chain_down, b.range.smallest, 1.0}); };
  const Ball& a = *args[0];
  switch (node.primitive) {
    case Primitive::mul:
      out.chain_up = above(a) * above(*args[1]);
      out.chain_down = below(a) * below(*args[1]);
      break;
    case Primitive::square:
      out.chain_up = above(a) * above(a);
      out.chain_down = below(a) * below(a);
      break;
    case Primitive::div:
      out.chain_up = above(a) / below(*args[1]);
      out.chain_down = below(a) / above(*args[1]);
      break;
    case Primitive::reshape:
    case Primitive::stored:
    case Primitive::own_adjoint:
    case Primitive::no_gradient:
    case Primitive::take:
      out.chain_up = a.chain_up;
      out.chain_down = a.chain_down;
      break;
    default: break;
  }
}

std::vector<char> BallEvaluator::need(const std::vector<Expr>& wanted, bool stop_at_fresh) const {
  std::vector<char> needed(balls_.size(), 0);
  for (const Expr& target : wanted) needed[static_cast<std::size_t>(target.id)] = 1;
  for (std::size_t id = balls_.size(); id-- > 0;) {
    if (!needed[id] || given_[id] || (stop_at_fresh && fresh_[id])) continue;
    for (const int arg : graph_.node(static_cast<int>(id)).args) needed[static_cast<std::size_t>(arg)] = 1;
  }
  return needed;
}

RuleContext BallEvaluator::context_of(Primitive primitive) const {
  const bool off = switches_.without == static_cast<int>(primitive);
  const double inflation = 1 + 0x1p-20, u = kFp32.unit_roundoff() * inflation;
  RuleContext c;
  c.u = off ? 0.0 : u;
  c.u_sum = off || !switches_.summation
                ? 0.0
                : (arithmetic_.accumulate_roundoff > 0 ? arithmetic_.accumulate_roundoff * inflation : u);
  c.eta = off ? 0.0 : (arithmetic_.flushes_subnormals ? kMinNormal : kMinSubnormal / 2) * inflation;
  c.flush = !off && arithmetic_.flushes_subnormals ? kMinNormal * inflation : 0.0;
  c.depth = arithmetic_.summation_depth;
  c.sum_factor = arithmetic_.one_pass ? 4 : 1;
  c.grid = !arithmetic_.one_pass && arithmetic_.accumulate_roundoff == 0;
  c.math = arithmetic_.math;
  return c;
}

RuleContext BallEvaluator::context_of(std::size_t id) const {
  RuleContext c = context_of(graph_.node(static_cast<int>(id)).primitive);
  if (constant_[id]) {
    c.u_sum = switches_.summation ? c.u : 0.0;
    c.sum_factor = 1;
    c.grid = true;
  }
  return c;
}

RuleContext BallEvaluator::product_context(std::size_t id, const Node& node) const {
  RuleContext c = context_of(id);
  if (c.u != 0 && !constant_[id]) c.core = core_product(graph_, node, arithmetic_.products);
  return c;
}

bool BallEvaluator::finish(const Node& node, std::span<const Ball* const> in, Ball& out) const {
  complete(out, full_);
  const bool narrow = measure(out);
  if (full_) return true;
  if (!in.empty()) bound_chain(node, in, out);
  return narrow && far_from_the_ends(out);
}

bool BallEvaluator::compute(std::size_t id, const Node& node, MapPart map, std::span<const Ball* const> in,
                            Ball& out) const {
  const bool wants = wants_sum_[id] != 0;
  if (radii_ == Radii::uniform) return compute_uniform(id, node, map, wants, sharp_[id] != 0, in, out);
  const RuleContext c = context_of(id);
  out.shape = node.shape;
  switch (node.primitive) {
    case Primitive::input: throw Error("[ball] leaf '" + node.name + "' has no values");
    case Primitive::constant:
      out.v = make_channel(1);
      out.v[0] = node.value;
      if (!representable(node.value)) {
        out.r = make_channel(1);
        out.r[0] = c.u * std::fabs(node.value);
      }
      break;
    case Primitive::indicator: out = filled(node.shape, *node.map); break;
    case Primitive::sum: evaluate_sum(c, node, *in[0], full_, wants, out); break;
    case Primitive::cumsum: evaluate_cumsum(c, node, *in[0], full_, wants, out); break;
    case Primitive::max: evaluate_max(node, *in[0], full_, out); break;
    case Primitive::first_max: evaluate_first_max(node, *in[0], full_, out); break;
    case Primitive::matmul: {
      const bool held = evaluate_matmul(product_context(id, node), node, *in[0], *in[1], full_, wants, out);
      if (!held) return false;
      break;
    }
    case Primitive::take: evaluate_take(map, *in[0], full_, out); break;
    case Primitive::put_add: evaluate_put_add(c, map, *in[0], full_, wants, out); break;
    case Primitive::reshape:
    case Primitive::own_adjoint:
    case Primitive::no_gradient:
    case Primitive::stored:
    case Primitive::stop_gradient:
      out = *in[0];
      out.shape = node.shape;
      if (node.primitive == Primitive::stop_gradient) out.r = out.terms = nullptr;
      if (const auto saved = arithmetic_.saved.find(node.name); node.primitive == Primitive::stored &&
                                                                saved != arithmetic_.saved.end() &&
                                                                saved->second->precision < kFp32.precision)
        return round_ball(*saved->second, saved->second->unit_roundoff(), c.u == 0 ? 0.0 : 1.0, full_, out) &&
               finish(node, in, out);
      return true;  // as tame as its operand
    default: evaluate_elementwise(c, node, in, full_, wants, out);
  }
  return finish(node, in, out);
}

bool BallEvaluator::evaluate(const std::vector<char>& needed) {
  // How many consumers still want a node; a node that nobody wants any more gives its buffers back.
  std::vector<int> wanted(balls_.size(), 0);
  for (std::size_t id = 0; id < balls_.size(); ++id)
    if (needed[id] && !fresh_[id])
      for (const int arg : graph_.node(static_cast<int>(id)).args) ++wanted[static_cast<std::size_t>(arg)];

  for (std::size_t id = 0; id < balls_.size(); ++id) {
    if (!needed[id]) continue;
    if (fresh_[id]) {
      complete(balls_[id], full_);
      continue;
    }
    if (!compute_whole(id)) return false;
    for (const int arg : graph_.node(static_cast<int>(id)).args)
      if (--wanted[static_cast<std::size_t>(arg)] == 0) drop(static_cast<std::size_t>(arg));
  }
  return true;
}

bool BallEvaluator::compute_whole(std::size_t id) {
  const Node& node = graph_.node(static_cast<int>(id));
  std::array<const Ball*, 3> args{};
  const std::size_t count = std::min<std::size_t>(node.args.size(), 3);
  for (std::size_t k = 0; k < count; ++k) args[k] = &balls_[static_cast<std::size_t>(node.args[k])];
  Ball out;
  if (!compute(id, node, MapPart(node.map), {args.data(), count}, out)) return false;
  balls_[id] = std::move(out);
  fresh_[id] = 1;
  return true;
}

void BallEvaluator::adopt_moved(const BallEvaluator& other) {
  if (full_ || other.full_) return;
  std::vector<int> leaf(balls_.size(), -1);  // the exact leaf that a node's elements are taken from
  for (std::size_t id = 0; id < balls_.size(); ++id) {
    const Node& node = graph_.node(static_cast<int>(id));
    if (node.args.empty() && given_[id] && !varies_[id] && !balls_[id].r) leaf[id] = static_cast<int>(id);
    if (node.primitive != Primitive::take && node.primitive != Primitive::reshape) continue;
    leaf[id] = leaf[static_cast<std::size_t>(node.args[0])];
    if (leaf[id] < 0 || fresh_[id] || !other.fresh_[id] || !other.balls_[id].v) continue;
    Ball out;
    out.shape = node.shape;
    out.v = other.balls_[id].v;
    const Ball* const in = &balls_[static_cast<std::size_t>(leaf[id])];
    if (finish(node, {&in, 1}, out)) {
      balls_[id] = std::move(out);
      fresh_[id] = keep_[id] = 1;
    }
  }
}

void BallEvaluator::drop(std::size_t id) {
  if (!keep_[id] && !given_[id]) {
    balls_[id] = Ball{};
    fresh_[id] = 0;
  }
}

void BallEvaluator::start_full() {
  full_ = true;  // the graph starts again, with range flags
  forget();
}

void BallEvaluator::run(const std::vector<Expr>& targets) {
  // Kept from now on: what targets of later runs (the gradients of the next cotangents) need of this run's nodes.
  const std::vector<char> later = need(targets_, false);
  const std::vector<char> now = need(targets, false);
  for (std::size_t id = 0; id < balls_.size(); ++id) {
    if (!later[id] || now[id]) continue;
    for (const int arg : graph_.node(static_cast<int>(id)).args) keep_[static_cast<std::size_t>(arg)] = 1;
  }
  for (const Expr& target : targets_) keep_[static_cast<std::size_t>(target.id)] = 1;
  if (evaluate(need(targets, true))) return;
  start_full();
  evaluate(need(targets, true));
}

}  // namespace ampcheck::reference
