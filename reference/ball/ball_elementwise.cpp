// SPDX-License-Identifier: Apache-2.0
// The elementwise rules (R1, R4-R8, R10): one short loop per primitive over blocks of unit stride, so that it
// vectorises.
#include <array>
#include <cstring>
#include <type_traits>

#include "reference/ball/ball_rules.h"
#include "src/error.h"

namespace ampcheck::reference {

namespace {

using In = std::span<const BlockIn>;

float sign(float x) { return x == 0 || x != x ? x : std::copysign(1.0f, x); }
float chosen(float condition, float yes, float no) { return condition != 0 ? yes : no; }
float larger(float x, float y) { return x > y || x != x ? x : y; }

/// The fp32 replay of a function of one operand.
double replay_function(Primitive primitive, float x) {
  switch (primitive) {
    case Primitive::exp: return std::exp(x);
    case Primitive::expm1: return std::expm1(x);
    case Primitive::log: return std::log(x);
    case Primitive::log1p: return std::log1p(x);
    case Primitive::tanh: return std::tanh(x);
    case Primitive::erf: return std::erf(x);
    case Primitive::erfc: return std::erfc(x);
    case Primitive::sin: return std::sin(x);
    case Primitive::cos: return std::cos(x);
    case Primitive::sqrt: return std::sqrt(x);
    case Primitive::rsqrt: return 1 / std::sqrt(x);
    case Primitive::sigmoid: return 1 / (1 + std::exp(-x));
    default: return std::numeric_limits<double>::quiet_NaN();
  }
}

/// The fp32 replay of one element (rule R9).
double replay(Primitive primitive, const float* x) {
  switch (primitive) {
    case Primitive::add: return x[0] + x[1];
    case Primitive::sub: return x[0] - x[1];
    case Primitive::neg: return -x[0];
    case Primitive::mul: return x[0] * x[1];
    case Primitive::square: return x[0] * x[0];
    case Primitive::div: return x[0] / x[1];
    case Primitive::pow: return std::pow(x[0], x[1]);
    case Primitive::abs: return std::fabs(x[0]);
    case Primitive::sign: return sign(x[0]);
    case Primitive::less: return x[0] < x[1];
    case Primitive::less_equal: return x[0] <= x[1];
    case Primitive::equal: return x[0] == x[1];
    case Primitive::where: return chosen(x[0], x[1], x[2]);
    case Primitive::maximum: return larger(x[0], x[1]);
    default: return replay_function(primitive, x[0]);
  }
}

/// Product of the factors above 1 and of those below 1; an operand that is no product is one factor.
struct Factors {
  double above, below;
};
Factors factors(const BlockIn& in, int i) {
  const double size = std::fabs(in.v[i]);
  // An infinite input is no overflow: what follows from it is exact.
  if (std::isinf(size) && !out_of_range(in.flags[i])) return {1, 1};
  return in.up[i] > 0 ? Factors{in.up[i], in.down[i]} : Factors{std::fmax(1.0, size), std::fmin(1.0, size)};
}

bool compares(Primitive p) {
  return p == Primitive::less || p == Primitive::less_equal || p == Primitive::equal || p == Primitive::sign;
}
bool has_pole(Primitive p) {
  return p == Primitive::log || p == Primitive::log1p || p == Primitive::div || p == Primitive::rsqrt ||
         p == Primitive::pow;
}

/// What is known of the range of one element.
struct Range {
  std::uint8_t flags = 0;
  bool finite_operands = true;
  bool unknown = false;  ///< the replay may be on the other side of what the kernel does
};

/// Of a decided choice, the operand that was not chosen.
bool is_unused(Primitive primitive, In in, std::size_t k, int i) {
  return primitive == Primitive::where && k > 0 && in[0].r[i] == 0 && (in[0].v[i] != 0) != (k == 1);
}

/// Whether the function has the same value at an operand that is beyond the range as at the infinity it becomes: as
/// exp(x - max(x)) is 0 either way.
bool levels_off(Primitive p, const BlockIn& x, int i) {
  if (!(x.flags[i] & kOverflowed) || (x.flags[i] & (kLeftRange | kUnbounded))) return false;  // that may be NaN
  switch (p) {
    case Primitive::exp:
    case Primitive::expm1: return x.v[i] + x.r[i] <= kMaxFinite;
    case Primitive::sigmoid:
    case Primitive::tanh:
    case Primitive::erf:
    case Primitive::erfc: return true;
    default: return false;
  }
}

/// What an element takes over from an operand.
void take_over(const BlockIn& operand, int i, Range& range) {
  range.flags |= inherited(operand.flags[i]);
  range.finite_operands &= std::isfinite(operand.v[i]) || out_of_range(operand.flags[i]);
}

/// Which of two equal infinities is the larger one, as of x and 2 x, the formula does not say.
bool orders_infinities(Primitive primitive, In in, int i) {
  return (primitive == Primitive::less || primitive == Primitive::less_equal) && std::isinf(in[0].v[i]) &&
         in[0].v[i] == in[1].v[i];
}

/// Whether a number that is surely not 0 is divided by an exact 0 of known sign: then every order of the factors gives
/// this infinity.
bool meets_pole_exactly(const RuleContext& c, In in, int i) {
  const BlockIn &a = in[0], &b = in[1];
  return b.signed_zeros && b.v[i] == 0 && b.r[i] == 0 && a.up[i] == 0 && (a.flags[i] | b.flags[i]) == 0 &&
         std::fabs(a.v[i]) - a.r[i] > c.flush && std::isfinite(a.v[i]);
}

/// The product chain (R4) of an element of a product: what its factors may do in another order.
void chain_factors(const RuleContext& c, Primitive primitive, In in, int i, BlockOut out, Range& range) {
  const Factors a = factors(in[0], i), b = primitive == Primitive::square ? a : factors(in[1], i);
  const bool divides = primitive == Primitive::div;  // a divisor's factors count reciprocally
  const double up = a.above * (divides ? 1 / b.below : b.above), down = a.below * (divides ? 1 / b.above : b.below);
  out.up[i] = up;
  out.down[i] = down;
  const bool zero = out.v[i] == 0 && out.r[i] == 0;
  if (down < kMinNormal && !zero) out.r[i] += 2 * c.eta * up;
  if (up > kMaxFinite) {
    range.flags |= kLeftRange;
    range.unknown = true;  // some order of the factors overflows
  }
}

/// The operand that may meet the pole.
const BlockIn& divisor(Primitive p, In in) { return p == Primitive::pow ? in.front() : in.back(); }

/// Product chains (R4) and range flags (R9) of one block; runs after the value and radius are there.
void range_block(const RuleContext& c, Primitive primitive, int n, In in, BlockOut out) {
  const bool product = primitive == Primitive::mul || primitive == Primitive::square || primitive == Primitive::div;
  for (int i = 0; i < n; ++i) {
    Range range;
    float x[3] = {0, 0, 0};
    for (std::size_t k = 0; k < in.size(); ++k) {
      if (!is_unused(primitive, in, k, i) && !levels_off(primitive, in[k], i)) take_over(in[k], i, range);
      x[k] = static_cast<float>(in[k].f[i]);
    }
    out.up[i] = 0;  // zero: not a product chain
    out.down[i] = 0;
    if (product && !(primitive == Primitive::div && meets_pole_exactly(c, in, i)))
      chain_factors(c, primitive, in, i, out, range);
    if (range.finite_operands && !(std::fabs(out.v[i]) + out.r[i] <= kMaxFinite)) {
      range.flags |= has_pole(primitive) ? std::uint8_t{kOverflowed} : beyond(out.v[i], out.r[i]);
      // It may overflow or not, whatever the replay's does.
      range.unknown |= std::fabs(out.v[i]) - out.r[i] <= kMaxFinite;
    }
    if (orders_infinities(primitive, in, i)) range.flags |= kLeftRange;
    // A choice between numbers that may be out of range, and what it chooses.
    range.unknown |= compares(primitive) && out_of_range(range.flags);
    range.unknown |= primitive == Primitive::where && out_of_range(in[0].flags[i]);
    // Infinite at the middle of the operand's ball alone: what underflowed on the way to log(v) or 1/v need not be
    // zero.
    const BlockIn& last = divisor(primitive, in);
    if (std::isinf(out.v[i]) && last.r[i] > 0 && std::isfinite(last.v[i]) && has_pole(primitive)) {
      range.flags |= kLeftRange;
      range.unknown = true;
    }
    out.r[i] = settle(out.v[i], out.r[i]);
    out.f[i] = range.unknown ? std::numeric_limits<double>::quiet_NaN() : replay(primitive, x);
    out.flags[i] = range.flags;
  }
}

}  // namespace

BroadcastPlan broadcast_plan(const Shape& shape, std::span<const Ball* const> args) {
  BroadcastPlan plan;
  for (int axis = 0; axis < shape.rank; ++axis) {
    if (shape[axis] == 1) continue;
    std::int64_t stride[3] = {};
    for (std::size_t k = 0; k < args.size(); ++k) {
      const Shape& s = args[k]->shape;
      const int own = axis - (shape.rank - s.rank);
      stride[k] = own >= 0 && s[own] != 1 ? row_major_strides(s)[own] : 0;
    }
    bool merge = plan.rank > 0;
    for (std::size_t k = 0; merge && k < args.size(); ++k)
      merge = plan.stride[k][plan.rank - 1] == stride[k] * shape[axis];
    if (!merge) plan.extent[plan.rank++] = 1;
    plan.extent[plan.rank - 1] *= shape[axis];
    for (std::size_t k = 0; k < args.size(); ++k) plan.stride[k][plan.rank - 1] = stride[k];
  }
  return plan;
}

namespace {

/// A result that may be subnormal may be flushed to zero.
void flush_block(double flush, int n, BlockOut out) {
  for (int i = 0; i < n; ++i)
    if ((out.v[i] != 0 || out.r[i] != 0) && std::fabs(out.v[i]) - out.r[i] < kMinNormal) out.r[i] += flush;
}

/// A unit-stride view of `n` numbers from a channel: the channel itself, or a filled copy where the operand repeats.
struct Stage {
  std::array<double, kBlock> room[5];
  std::array<std::uint8_t, kBlock> flags;
};
alignas(64) const std::array<double, kBlock> kZeros{};

const double* stage(const Channel& channel, std::int64_t at, std::int64_t stride, int n,
                    std::array<double, kBlock>& room) {
  if (!channel) return kZeros.data();
  if (stride == 1 || n == 1) return channel.get() + at;
  if (stride == 0)
    std::fill_n(room.begin(), n, channel[at]);
  else
    for (int i = 0; i < n; ++i) room[static_cast<std::size_t>(i)] = channel[at + i * stride];
  return room.data();
}

BlockIn stage_all(const Ball& ball, std::int64_t at, std::int64_t stride, int n, bool full, Stage& room) {
  BlockIn in{};
  in.v = stage(ball.v, at, stride, n, room.room[0]);
  in.r = stage(ball.r, at, stride, n, room.room[1]);
  if (!full) return in;
  in.f = stage(ball.replay, at, stride, n, room.room[2]);
  in.up = stage(ball.up, at, stride, n, room.room[3]);
  in.down = stage(ball.down, at, stride, n, room.room[4]);
  in.flags = ball.flags.get() + at;
  in.signed_zeros = ball.signed_zeros;
  if (stride != 1 && n > 1) {
    for (int i = 0; i < n; ++i) room.flags[static_cast<std::size_t>(i)] = ball.flags[at + i * stride];
    in.flags = room.flags.data();
  }
  return in;
}

/// Rule R3 for chained + and -: the state of the flattened sum, and the radius from it.
void chain_sums(const RuleContext& context, Primitive primitive, std::int64_t at, int n, const std::int64_t* offset,
                const std::int64_t* stride, std::span<const Ball* const> args, In in, bool keep, Ball& out) {
  struct {
    std::array<double, kBlock> terms, mass, base, grid;
    std::array<double, kBlock> room[4];
  } own;
  // Straight into the result where it is kept.
  const SumsOut state =
      keep ? SumsOut{nullptr, out.terms.get() + at, out.mass.get() + at, out.base.get() + at, out.grid.get() + at}
           : SumsOut{nullptr, own.terms.data(), own.mass.data(), own.base.data(), own.grid.data()};
  for (double* const sum : {state.terms, state.mass, state.base}) std::fill_n(sum, n, 0.0);
  std::fill_n(state.grid, n, kInfinity);
  for (std::size_t k = 0; k < args.size(); ++k) {
    const Ball& x = *args[k];
    SumsIn from{in[k].v, in[k].r, nullptr, nullptr, nullptr, nullptr};
    if (x.terms) {
      const auto channel = [&](const Channel& c, std::size_t room) {
        return stage(c, offset[k], stride[k], n, own.room[room]);
      };
      from.terms = channel(x.terms, 0);
      from.mass = channel(x.mass, 1);
      from.base = channel(x.base, 2);
      from.grid = channel(x.grid, 3);
    }
    add_terms(from, n, state);
  }
  // A plain a + b of two single terms keeps u|v|.
  if (primitive != Primitive::neg) settle_chain(context, n, out.v.get() + at, state, out.r.get() + at);
}

}  // namespace

void evaluate_elementwise(const RuleContext& context, const Node& node, std::span<const Ball* const> args, bool full,
                          bool wants_sum, Ball& out) {
  const bool sums =
      node.primitive == Primitive::add || node.primitive == Primitive::sub || node.primitive == Primitive::neg;
  const bool chained =
      sums && (wants_sum || std::any_of(args.begin(), args.end(), [](const Ball* b) { return b->terms != nullptr; }));
  allocate(out, full, chained && wants_sum);
  const BroadcastPlan plan = broadcast_plan(out.shape, args);
  const std::int64_t inner = plan.rank ? plan.extent[plan.rank - 1] : 1;
  const std::int64_t outer = inner ? out.count() / inner : 0;
  Stage rooms[3];
  for (std::int64_t row = 0; row < outer; ++row) {
    std::int64_t offset[3] = {}, stride[3] = {}, rest = row;
    for (int axis = plan.rank - 2; axis >= 0; --axis) {
      const std::int64_t i = rest % plan.extent[axis];
      rest /= plan.extent[axis];
      for (std::size_t k = 0; k < args.size(); ++k) offset[k] += i * plan.stride[k][axis];
    }
    for (std::size_t k = 0; k < args.size(); ++k) stride[k] = plan.rank ? plan.stride[k][plan.rank - 1] : 0;
    for (std::int64_t start = 0; start < inner; start += kBlock) {
      const int n = static_cast<int>(std::min<std::int64_t>(kBlock, inner - start));
      const std::int64_t at = row * inner + start;
      BlockIn in[3];
      std::int64_t from[3] = {};
      for (std::size_t k = 0; k < args.size(); ++k) {
        from[k] = offset[k] + start * stride[k];
        in[k] = stage_all(*args[k], from[k], stride[k], n, full, rooms[k]);
      }
      BlockOut block{out.v.get() + at, out.r.get() + at, nullptr, nullptr, nullptr, nullptr};
      evaluate_block(context, node.primitive, n, In(in, args.size()), block);
      if (full) {
        block.f = out.replay.get() + at;
        block.up = out.up.get() + at;
        block.down = out.down.get() + at;
        block.flags = out.flags.get() + at;
        range_block(context, node.primitive, n, In(in, args.size()), block);
      }
      if (context.flush > 0) flush_block(context.flush, n, block);
      if (chained) chain_sums(context, node.primitive, at, n, from, stride, args, In(in, args.size()), wants_sum, out);
    }
  }
}

}  // namespace ampcheck::reference
