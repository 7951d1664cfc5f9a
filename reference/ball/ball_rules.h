// SPDX-License-Identifier: Apache-2.0
// What the files of the ball evaluator share: constants of the arithmetic, blocks of elements, helpers of the rules.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "reference/ball/ball.h"

namespace ampcheck::reference {

inline constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// One product of matrices on tensor cores (src/accumulator.h has the bound).
struct CoreProduct {
  TensorCoreBlock block;           ///< does not exist: fp32 chains
  const FloatFormat* a = nullptr;  ///< types of the operands
  const FloatFormat* b = nullptr;
  bool round_a = false, round_b = false;  ///< operands that come in another type
  bool on() const { return block.exists(); }
};
/// What tensor cores do of this matmul node of a graph.
CoreProduct core_product(const Graph& graph, const Node& node, const CoreProducts& products);
/// The blocks of its products in the storage type.
TensorCoreBlock block_of(const CoreProducts& products);
/// Unit by which an operand that is brought to this type errs: tf32 takes fp32's upper bits (twice the unit roundoff).
double conversion_unit(const FloatFormat& format);

/// Rounding of numbers to a shorter type, by no more than `unit` of their size and a step of subnormals. False if they
/// may overflow there and the mode has no flags to say so.
bool round_ball(const FloatFormat& format, double unit, double eta_on, bool full, Ball& ball);

/// Constants of fp32 compute for one node. `u` and `eta` are zero for a primitive that is switched off.
struct RuleContext {
  double u = 0;           ///< unit roundoff, inflated by 1 + 2^-20 for the fp64 reference's own error
  double u_sum = 0;       ///< the accumulator's
  double eta = 0;         ///< half a subnormal step, or min_normal where subnormals are flushed
  double flush = 0;       ///< what a subnormal result may lose: min_normal where the contract allows flushing, else 0
  double depth = 0;       ///< largest number of roundings of a term in a sum; 0: n - 1
  double sum_factor = 1;  ///< 4 for one-pass sums
  bool grid = true;       ///< whether exactly representable partial sums round nothing
  MathSet math;
  CoreProduct core;  ///< of a matmul
};
inline constexpr double kMaxFinite = kFp32.max_finite();
inline constexpr double kMinNormal = kFp32.min_normal();
inline constexpr double kMinSubnormal = kFp32.min_subnormal();

inline bool representable(double v) { return static_cast<double>(static_cast<float>(v)) == v; }
/// True for +-2^k.
inline bool power_of_two(double v) {
  return (__builtin_bit_cast(std::uint64_t, v) & 0xfffffffffffffull) == 0 && v != 0;
}
/// Own rounding of an inexact result, and the underflow term.
inline double rounded(const RuleContext& c, double v, double radius_in) {
  const double size = std::fabs(v) + radius_in;
  return radius_in + c.u * size + (size < 2 * kMinNormal ? c.eta : 0.0);
}
/// A radius that is not a number says nothing: infinite. A non-finite value is judged by class: zero.
inline double settle(double v, double r) {
  const double sure = r == r ? r : kInfinity;
  return std::fabs(v) < kInfinity ? sure : 0.0;
}

/// R9. Whether an operand may be out of range, or not a number, although the inputs are finite.
inline bool out_of_range(std::uint8_t flags) { return flags & (kOverflowed | kLeftRange | kUnbounded); }
/// The flags that a result takes over from an operand.
inline std::uint8_t inherited(std::uint8_t flags) {
  return static_cast<std::uint8_t>((flags & (kOverflowed | kLeftRange) ? kLeftRange : 0) |
                                   (flags & (kMayBeNan | kUnbounded)));
}
/// The flags of a result of operands that are in range.
inline std::uint8_t beyond(double v, double r) {
  if (std::fabs(v) + r <= kMaxFinite) return 0;
  return std::fabs(v) <= kMaxFinite && !(r <= kMaxFinite) ? kUnbounded : kOverflowed;
}
/// Whether some order of a sum of terms of both signs overflows on the way: by all terms of one sign. `mass`: the sum
/// of the terms' sizes, which without a bound of one of them says nothing.
inline bool some_order_overflows(double v, double mass, std::uint8_t flags) {
  return !(flags & kUnbounded) && (mass + std::fabs(v)) / 2 > kMaxFinite;
}

inline constexpr int kBlock = 256;

/// One block of an operand; every pointer has unit stride.
struct BlockIn {
  const double *v, *r;
  const double *f, *up, *down;
  const std::uint8_t* flags;
  bool signed_zeros;  ///< Ball::signed_zeros
};
struct BlockOut {
  double *v, *r;
  double *f, *up, *down;
  std::uint8_t* flags;
};

/// Value and radius of one block of at most kBlock elements.
void evaluate_block(const RuleContext& context, Primitive primitive, int n, std::span<const BlockIn> in, BlockOut out);

/// Terms of sums (rule R3): plain ones where `terms` is null, exact ones where `r` is.
struct SumsIn {
  const double *v, *r;
  const double *terms, *mass, *base, *grid;
};
/// Sums side by side; `value` is null where only the state is wanted.
struct SumsOut {
  double* value;
  double *terms, *mass, *base, *grid;
};
/// A running sum whose own rounding does not grow with the number of terms (Knuth's two-sum): a partial sum that
/// another follows from cannot take a better order.
struct ExactSum {
  double high = 0, low = 0;
  void add(double x) {
    const double sum = high + x, part = sum - high;
    low += (high - (sum - part)) + (x - part);
    high = sum;
  }
  /// An infinite sum has no low part.
  double value() const { return std::fabs(high) < kInfinity ? high + low : high; }
};
struct SumState {
  double value = 0, terms = 0, mass = 0, base = 0;
};
void add_terms(const SumsIn& x, std::int64_t n, const SumsOut& sums);
/// Radii of sums of more than two terms.
void settle_chain(const RuleContext& context, int n, const double* v, const SumsOut& sums, double* r);
/// One contiguous run of n plain terms.
void sum_run(const double* v, const double* r, std::int64_t n, SumState& out);

/// Largest value, value - r and value + r of a run of n; false where one of them is not a number.
bool max_of_run(const double* v, const double* r, std::int64_t n, double& most, double& low, double& high);

void evaluate_elementwise(const RuleContext& context, const Node& node, std::span<const Ball* const> args, bool full,
                          bool wants_sum, Ball& out);
void evaluate_sum(const RuleContext& context, const Node& node, const Ball& x, bool full, bool wants_sum, Ball& out);
void evaluate_cumsum(const RuleContext& context, const Node& node, const Ball& x, bool full, bool wants_sum, Ball& out);
void evaluate_max(const Node& node, const Ball& x, bool full, Ball& out);
void evaluate_first_max(const Node& node, const Ball& x, bool full, Ball& out);
void evaluate_take(MapPart map, const Ball& x, bool full, Ball& out);
void evaluate_put_add(const RuleContext& context, MapPart map, const Ball& x, bool full, bool wants_sum, Ball& out);
/// False where operands leave the range of the type in which tensor cores take them, in the plain mode.
bool evaluate_matmul(const RuleContext& context, const Node& node, const Ball& a, const Ball& b, bool full,
                     bool wants_sum, Ball& out);

/// Running state of `count` sums side by side (rule R3).
struct Sums {
  explicit Sums(std::int64_t count)
      : value(static_cast<std::size_t>(count)), terms(value), mass(value), base(value), grid(value.size(), kInfinity) {}
  std::vector<double> value, terms, mass, base, grid;
};
/// Adds elements at, at + 1, ... of x to sums to, to + 1, ...
void add_terms(const Ball& x, std::int64_t at, std::int64_t count, Sums& sums, std::size_t to);
/// Values and radii of all sums into elements at, at + 1, ... of an allocated ball.
void store_sums(const RuleContext& context, const Sums& sums, std::int64_t at, bool wants_sum, Ball& out);

/// Radius of a sum from its state (rule R2, R3), given the value.
inline double summation_radius(const RuleContext& c, double terms, double mass, double base, double grid) {
  const double most =
      terms - 1 + (c.u_sum > 0x1p-23 ? 1 : 0);  // a term that enters a shorter accumulator is rounded, 0 + x too
  const double limited = c.depth < most ? c.depth : most, roundings = c.depth > 0 ? limited : most;
  const double gamma = c.sum_factor * roundings * c.u_sum, order = gamma * mass / (1 - gamma);
  double r = base + (gamma < 1 ? order : kInfinity);
  r += c.sum_factor > 1 ? terms * terms * c.eta : 0.0;  // each rescaling step may underflow
  // Every partial sum is a multiple of the lowest bit and below 2^24 times it: representable in any order.
  r = (c.grid & (base == 0) & (grid > 0) & (mass <= 0x1p24 * grid)) ? 0.0 : r;
  r += grid >= kMinNormal ? 0.0
                          : terms * c.flush;  // partial sums are multiples of the lowest bit: then none is subnormal
  return terms <= 1 && most < 1 ? base : r;
}
/// Lowest set bit of a finite non-zero number; infinity for zero, 0 for a non-finite one.
inline double lowest_bit(double v) {
  const auto bits = __builtin_bit_cast(std::uint64_t, v) & 0x7fffffffffffffffull;
  const bool bare = (bits & 0xfffffffffffffull) == 0;  // nothing but the implicit bit
  const double size = __builtin_bit_cast(double, bits), rest = __builtin_bit_cast(double, bits&(bits - 1));
  const double bit = size - (bare ? 0.0 : rest);
  return v == 0 ? kInfinity : (size < kInfinity ? bit : 0.0);
}

/// The least of a run of n.
double lowest_bit(const double* v, std::int64_t n);

/// Tensor-wide bounds of the product chain (R4) for the plain mode.
void bound_chain(const Node& node, std::span<const Ball* const> args, Ball& out);
/// Far enough from both ends of the range that no rule of the full mode could add anything.
inline bool far_from_the_ends(const Ball& b) {
  return b.range.finite && b.range.largest < 0x1p100 && b.range.smallest > 0x1p-100 && b.chain_up < 0x1p120 &&
         b.chain_down > 0x1p-120;
}

/// Extents and operand strides of an elementwise iteration, adjacent axes merged; the innermost stride is 0 or 1.
struct BroadcastPlan {
  int rank = 0;
  std::int64_t extent[kMaxRank] = {};
  std::int64_t stride[3][kMaxRank] = {};
};
BroadcastPlan broadcast_plan(const Shape& shape, std::span<const Ball* const> args);

/// outer x n x inner decomposition of a tensor around an axis.
struct Axis {
  std::int64_t outer = 1, n = 1, inner = 1;
};
Axis split(const Shape& shape, int axis);

/// An operand of evaluate_values(): n numbers, or one that stands for all.
struct ValuesIn {
  const double* p;
  bool repeats;
};
/// Values of an elementwise primitive, of finite operands. `seen` takes in what is written, `gap` the smallest |a - b|
/// of a comparison. `out` overlaps no operand.
void evaluate_values(Primitive primitive, std::size_t n, const ValuesIn* in, double* out, Extremes& seen, double& gap);
/// The same of mul, square and div, of which `seen` takes in no more than the largest, and whether all are finite.
void evaluate_products(Primitive primitive, std::size_t n, const ValuesIn* in, double* out, Extremes& seen);
void see_values(const double* v, std::size_t n, Extremes& seen);
/// sums[k] += v[k], mass[k] += |v[k]| for k < n, row after row.
void add_values(const double* v, std::size_t rows, std::size_t n, double* sums, double* mass);

/// Radii::uniform: sums side by side; only their values and magnitudes are kept by element, of their terms the widest.
struct UniformSums {
  explicit UniformSums(std::int64_t count) : value(static_cast<std::size_t>(count)), mass(value) {}
  std::vector<double> value, mass;
  double terms = 0, mass_each = 0, base_each = 0, relative = 0;  ///< of one term: what adds to |v|, and to the radius
  double grid = kInfinity;  ///< of which every term is a multiple; 0: none is known
};
/// Takes in the bounds of terms from x.
void see_terms(const Ball& x, UniformSums& sums);
/// Values and the one radius of all sums, of n terms each at most; `out` has its shape. False if there is none.
bool store_uniform(const RuleContext& context, const UniformSums& sums, double n, bool wants_sum, Ball& out);
/// One element and the bound of its radius at its own operands, not at the worst of a part.
struct ElementBound {
  double v = 0;
  UniformRadius radius;
};
/// The same of an elementwise primitive's result.
ElementBound element_result(const RuleContext& context, Primitive primitive, std::span<const ElementBound> in,
                            bool wants_sum);
/// out[k] = a |x[k]| + b |y[k]| + c.
void weigh_magnitudes(std::size_t n, const ValuesIn* in, double a, double b, double c, double* out);
/// Values of the product and the one radius of its elements.
bool uniform_matmul(const RuleContext& context, const Node& node, const Ball& a, const Ball& b, bool wants_sum,
                    Ball& out);

/// Allocates the channels that a mode needs.
void allocate(Ball& ball, bool full, bool wants_sum);

/// dst[i] = f(src[i]) in fp64, vectorised; error below 2^-50 relative.
void vector_exp(const double* x, double* y, int n);
void vector_expm1(const double* x, double* y, int n);
void vector_log(const double* x, double* y, int n);
void vector_log1p(const double* x, double* y, int n);
void vector_tanh(const double* x, double* y, int n);
void vector_erf(const double* x, double* y, int n);
void vector_erfc(const double* x, double* y, int n);
/// By libm, which reduces arguments of any size.
void vector_sin(const double* x, double* y, int n);
void vector_cos(const double* x, double* y, int n);

}  // namespace ampcheck::reference
