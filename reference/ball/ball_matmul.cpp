// SPDX-License-Identifier: Apache-2.0
// Matrix products as balls: rule R5 for each product, R2 for the sum, by fp64 products of values and of magnitudes. On
// tensor cores the products are exact, and the sum has the bound of src/accumulator.h.
#include <Eigen/Core>
#include <vector>

#include "reference/ball/ball_rules.h"

namespace ampcheck::reference {

namespace {

using Matrix = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using View = Eigen::Map<const Matrix>;

/// One operand of one batch, [rows, cols] in memory, and what is known of it.
struct Operand {
  View v;
  const double* r;                ///< null: all zero
  bool transposed, sums_rows;     ///< sums_rows: the summed axis is that of the rows
  bool exact = true;              ///< all radii zero
  double grid = kInfinity;        ///< lowest set bit of all values
  bool short_significand = true;  ///< at most 12 bits: products are exact in fp32
  std::int64_t zeros = 0;
  /// A tensor core aligns by the exponent of the operand's type, which of a subnormal number is that of min_normal: for
  /// that it counts as so large.
  double least = 0;
};

Operand prepare(const Ball& x, std::int64_t at, std::int64_t rows, std::int64_t cols, bool transposed, bool first) {
  Operand o{View(x.v.get() + at, rows, cols), x.r ? x.r.get() + at : nullptr, transposed, transposed == first};
  for (std::int64_t i = 0; i < rows * cols; ++i) {
    const double r = o.r != nullptr ? o.r[i] : 0.0, v = o.v.data()[i], low = lowest_bit(v);
    o.exact &= r == 0;
    o.grid = std::fmin(o.grid, low);
    o.short_significand &= v == 0 || std::fabs(v) < 0x1p12 * low;
    o.zeros += v == 0 && r == 0;
  }
  return o;
}

/// One batch of a product of [n, k] and [k, m]: where its operands and its result begin.
struct Batch {
  std::int64_t n, k, m;
  std::int64_t at_a, at_b, at;
};

/// Which of an operand's numbers enter a product.
enum class Of { values, magnitudes, outer, nonzero, lifted };  // v, |v|, |v| + r, |v| + r != 0, see Operand::least

/// k0 <= k < k0 + n of x along the axis that the operand sums.
auto cut(const Operand& o, const View& x, std::int64_t k0, std::int64_t n) {
  return o.sums_rows ? x.block(k0, 0, n, x.cols()) : x.block(0, k0, x.rows(), n);
}
Matrix part(const Operand& o, Of of, std::int64_t k0, std::int64_t n) {
  Matrix size = cut(o, o.v, k0, n).cwiseAbs();
  if (of != Of::magnitudes && !o.exact) size += cut(o, View(o.r, o.v.rows(), o.v.cols()), k0, n);
  if (of == Of::nonzero) size = (size.array() != 0).cast<double>();
  if (of == Of::lifted) size = (size.array() != 0).select(size.array().max(o.least), 0.0);
  return size;
}

/// out += a b of one part of the summed axis.
template <class A, class B>
void add_product(const A& a, bool ta, const B& b, bool tb, Eigen::Ref<Matrix> out) {
  if (ta && tb)
    out.noalias() += a.transpose() * b.transpose();
  else if (ta)
    out.noalias() += a.transpose() * b;
  else if (tb)
    out.noalias() += a * b.transpose();
  else
    out.noalias() += a * b;
}

constexpr std::int64_t kPart = std::int64_t{1} << 19;  ///< about the numbers of both operands that are copied at a time

/// a b, part by part of the summed axis of extent k, so that copies of the operands stay small.
void product(const Operand& a, const Operand& b, Of of, std::int64_t k, Eigen::Ref<Matrix> out) {
  out.setZero();
  const std::int64_t step = std::max<std::int64_t>(256, kPart / std::max<std::int64_t>(out.rows() + out.cols(), 1));
  for (std::int64_t k0 = 0; k0 < k; k0 += step) {
    const std::int64_t n = std::min(step, k - k0);
    if (of == Of::values)
      add_product(cut(a, a.v, k0, n), a.transposed, cut(b, b.v, k0, n), b.transposed, out);
    else
      add_product(part(a, of, k0, n), a.transposed, part(b, of, k0, n), b.transposed, out);
  }
}

/// Whether zeros are so many that counting the non-zero products of each sum sharpens the bound; otherwise they are k.
bool many_zeros(const Operand& x) { return x.zeros * 8 > x.v.size(); }

/// Flags and replay of one batch (rule R9); `mass` is sum |a b| with radii.
void range_of_product(const Ball& a, const Ball& b, const Node& node, const Batch& batch,
                      const Eigen::Map<Matrix>& mass, Ball& out) {
  const auto [n, k, m, at_a, at_b, at] = batch;
  const std::int64_t ai = node.transpose_a ? 1 : k, ak = node.transpose_a ? n : 1;
  const std::int64_t bk = node.transpose_b ? 1 : m, bj = node.transpose_b ? k : 1;
  const double *const va = a.v.get(), *const vb = b.v.get(), *const ra = a.replay.get(), *const rb = b.replay.get();
  const std::uint8_t *const fa = a.flags.get(), *const fb = b.flags.get();
  for (std::int64_t i = 0; i < n; ++i)
    for (std::int64_t j = 0; j < m; ++j) {
      float sum = 0;
      std::uint8_t flags = 0;
      bool finite = true, positive = false, negative = false;
      std::int64_t x = at_a + i * ai, y = at_b + j * bj;
      for (std::int64_t p = 0; p < k; ++p, x += ak, y += bk) {
        const std::uint8_t f = static_cast<std::uint8_t>(fa[x] | fb[y]);
        flags |= inherited(f);
        const double term = va[x] * vb[y];
        finite &= std::isfinite(term) || out_of_range(f);
        positive |= term > 0;
        negative |= term < 0;
        sum += static_cast<float>(ra[x]) * static_cast<float>(rb[y]);
      }
      const std::int64_t to = at + i * m + j;
      out.replay[to] = sum;
      if (finite && positive && negative && some_order_overflows(out.v[to], mass(i, j), flags)) {
        flags |= kLeftRange;  // some order overflows, whatever the replay's does
        out.replay[to] = std::numeric_limits<double>::quiet_NaN();
      }
      if (finite) flags |= beyond(out.v[to], out.r[to]);
      if (std::isinf(out.v[to]) || (flags & kOverflowed)) flags |= kMayBeNan;
      out.flags[to] = flags;
    }
}

/// Largest norm of the vectors that an operand brings into the products.
double largest_norm(const Operand& o) {
  const auto squares = o.v.array().square();
  const double most =
      o.v.size() == 0 ? 0.0 : (o.sums_rows ? squares.colwise().sum().maxCoeff() : squares.rowwise().sum().maxCoeff());
  return std::sqrt(most) * (1 + 0x1p-40);
}

/// What of a matmul the two modes share: the operands as tensor cores take them. False where they may overflow.
bool operands_of_cores(const CoreProduct& core, bool full, Ball& a, Ball& b) {
  return (!core.round_a || round_ball(*core.a, conversion_unit(*core.a), 1.0, full, a)) &&
         (!core.round_b || round_ball(*core.b, conversion_unit(*core.b), 1.0, full, b));
}

/// A bound of the radii after rounding to a type; false where numbers may overflow there, or are small enough to matter
/// (Operand::least).
bool round_uniform(const FloatFormat& format, bool rounds, const Ball& x, UniformRadius& all) {
  if (x.range.smallest < 2 * format.min_normal()) return false;
  if (!rounds) return true;
  const double unit = conversion_unit(format);
  all.relative += unit * (1 + all.relative);
  all.absolute = all.absolute * (1 + unit) + format.min_subnormal();
  return x.range.largest + all.at(x.range.largest) <= format.max_finite();
}

/// The state of sums that chains of fp32 add up: their roundings are terms - 1.
double terms_of_cores(const TensorCoreBlock& block, double nonzero, double all) {
  return nonzero <= 1 ? nonzero : 1 + block.roundings(nonzero, all);
}

/// What is left of E where a product, or the result, comes near the end of fp32's range: no E is below that of
/// min_normal, and results are multiples of min_subnormal.
double underflow_of_cores(const TensorCoreBlock& block, double nonzero) {
  return 2 * nonzero * (std::ldexp(kMinNormal, -block.fraction) + kMinSubnormal);
}

}  // namespace

/// sum |a b| <= |a| |b| and sum |a| <= sqrt(k) |a| (Cauchy and Schwarz).
bool uniform_matmul(const RuleContext& c, const Node& node, const Ball& a, const Ball& b, bool wants_sum, Ball& out) {
  out.v = make_channel(out.count());
  const std::int64_t n = out.shape.last(1), m = out.shape.last(0), k = a.shape.last(node.transpose_a ? 1 : 0);
  const std::int64_t plane = n * m, batches = plane > 0 ? out.count() / plane : 0;
  UniformRadius ra = a.all, rb = b.all;
  const CoreProduct& core = c.core;
  if (core.on() && (!round_uniform(*core.a, core.round_a, a, ra) || !round_uniform(*core.b, core.round_b, b, rb)))
    return false;
  const double depth = static_cast<double>(k), both = ra.relative + rb.relative + ra.relative * rb.relative;
  double mass = 0, in = 0;
  for (std::int64_t batch = 0; batch < batches; ++batch) {
    const double *va = a.v.get() + batch * n * k, *vb = b.v.get() + batch * k * m;
    const Operand x{node.transpose_a ? View(va, k, n) : View(va, n, k), nullptr, node.transpose_a, node.transpose_a};
    const Operand y{node.transpose_b ? View(vb, m, k) : View(vb, k, m), nullptr, node.transpose_b, !node.transpose_b};
    product(x, y, Of::values, k, Eigen::Map<Matrix>(out.v.get() + batch * plane, n, m));
    const double size_a = largest_norm(x), size_b = largest_norm(y);
    mass = std::max(mass, size_a * size_b);
    const double lone = size_a * rb.absolute * (1 + ra.relative) + size_b * ra.absolute * (1 + rb.relative);
    in = std::max(in, size_a * size_b * both + std::sqrt(depth) * lone + depth * ra.absolute * rb.absolute);
  }
  see_values(out.v.get(), static_cast<std::size_t>(out.count()), out.range);
  mass = (mass + in) * (1 + 0x1p-40);
  const double own = core.on() ? underflow_of_cores(core.block, depth) : c.u * mass;
  const double base = in * (1 + 0x1p-40) + own + depth * c.eta;
  const double terms = core.on() ? terms_of_cores(core.block, depth, depth) : depth;
  out.all.absolute = summation_radius(c, terms, mass, base, 0.0) * (1 + 0x1p-40);
  if (wants_sum) {
    out.all.chained = true;
    out.all.terms = terms;
    out.all.mass = mass;
    out.all.base = base;
  }
  return out.all.absolute < 0x1p100;
}

namespace {

/// Lifted sizes of one batch's sums, where they are not those of the products.
Matrix lifted_mass(const CoreProduct& core, Operand& x, Operand& y, const Batch& batch) {
  const auto lifts = [](const Operand& o, const FloatFormat& format) {
    if (!o.exact) return true;
    for (std::int64_t i = 0; i < o.v.size(); ++i)
      if (o.v.data()[i] != 0 && std::fabs(o.v.data()[i]) < format.min_normal()) return true;
    return false;
  };
  if (!lifts(x, *core.a) && !lifts(y, *core.b)) return {};
  x.least = core.a->min_normal();
  y.least = core.b->min_normal();
  Matrix out(batch.n, batch.m);
  product(x, y, Of::lifted, batch.k, out);
  return out;
}

/// A number for each sum of a batch: in the channel that will hold the state of the sums, where there is one.
struct Sizes {
  Sizes(bool wanted, bool kept, const Channel& channel, const Batch& batch)
      : own(wanted && !kept ? batch.n : 0, batch.m),
        all(kept ? channel.get() + batch.at : own.data(), wanted ? batch.n : 0, batch.m) {}
  Matrix own;
  Eigen::Map<Matrix> all;  ///< empty where none is wanted
};

/// State of one sum, as Ball has it by channel.
struct State {
  double terms, mass, base, grid;
};

/// What holds for all sums of a batch.
struct BatchRules {
  BatchRules(const RuleContext& context, const Operand& x, const Operand& y, double k, double each_underflow)
      : c(context), all(k), underflow(each_underflow), exact(x.exact && y.exact) {
    exact_products = c.core.on() || (exact && x.short_significand && y.short_significand && underflow == 0);
    if (exact) grid = x.grid * y.grid;
    if (c.core.on()) fine = std::ldexp(1.0, c.core.block.exact_bits() - 24);
  }

  const RuleContext& c;
  double all;        ///< terms of a sum
  double underflow;  ///< of a product; 0: none can
  bool exact;        ///< no operand has a radius
  bool exact_products;
  double grid = 0;  ///< lowest bit of all products; 0: none is known
  double fine = 1;  ///< every sum below 2^24 times this many lowest bits is exact

  /// Of a sum with sum |a b| with radii, the same without them, its terms that are not zero, and its lifted size.
  State state(double mass, double inner, double nonzero, double aligned) const {
    double base = exact ? 0.0 : (mass - inner) + 0x1p-50 * mass, terms = nonzero;
    const bool on_grid = exact && c.grid && aligned <= 0x1p24 * fine * grid && underflow == 0;
    if (!exact_products && !on_grid && mass > 0) base += c.u * mass + nonzero * underflow;
    if (c.core.on()) {
      const TensorCoreBlock& block = c.core.block;
      terms = terms_of_cores(block, nonzero, all);
      if (!on_grid && nonzero > 1) base += c.u_sum * block.truncations(nonzero, all) * (aligned - mass) * (1 + 0x1p-40);
      if (underflow > 0 && mass > 0) base += nonzero * underflow + underflow_of_cores(block, nonzero);
    }
    if (!(base == base)) base = kInfinity;
    return {terms, mass, base, on_grid ? fine * grid : 0.0};
  }
};

/// Values, radii and, where it is kept, the state of the sums of one batch.
void evaluate_batch(const RuleContext& c, const Node& node, const Ball& a, const Ball& b, const Batch& batch,
                    double underflow, bool full, bool wants_sum, Ball& out) {
  const auto [n, k, m, at_a, at_b, at] = batch;
  Operand x = node.transpose_a ? prepare(a, at_a, k, n, true, true) : prepare(a, at_a, n, k, false, true);
  Operand y = node.transpose_b ? prepare(b, at_b, m, k, true, false) : prepare(b, at_b, k, m, false, false);
  product(x, y, Of::values, k, Eigen::Map<Matrix>(out.v.get() + at, n, m));
  const BatchRules rules(c, x, y, static_cast<double>(k), underflow);
  Sizes mass(true, wants_sum, out.mass, batch), inner(!rules.exact, wants_sum, out.base, batch);
  product(x, y, rules.exact ? Of::magnitudes : Of::outer, k, mass.all);
  if (!rules.exact) product(x, y, Of::magnitudes, k, inner.all);
  const bool counted = many_zeros(x) || many_zeros(y);
  Sizes nonzero(counted, wants_sum, out.terms, batch);
  if (counted) product(x, y, Of::nonzero, k, nonzero.all);
  const Matrix lifted = c.core.on() ? lifted_mass(c.core, x, y, batch) : Matrix();
  for (std::int64_t i = 0; i < n * m; ++i) {
    const double s = mass.all.data()[i];
    const State sum = rules.state(s, rules.exact ? s : inner.all.data()[i], counted ? nonzero.all.data()[i] : rules.all,
                                  lifted.size() > 0 ? lifted.data()[i] : s);
    out.r[at + i] = settle(out.v[at + i], summation_radius(c, sum.terms, sum.mass, sum.base, sum.grid));
    if (!wants_sum) continue;
    out.terms[at + i] = sum.terms;
    out.mass[at + i] = sum.mass;
    out.base[at + i] = sum.base;
    out.grid[at + i] = sum.grid;
  }
  if (full) range_of_product(a, b, node, batch, mass.all, out);
}

}  // namespace

bool evaluate_matmul(const RuleContext& c, const Node& node, const Ball& left, const Ball& right, bool full,
                     bool wants_sum, Ball& out) {
  Ball a = left, b = right;
  if (c.core.on() && !operands_of_cores(c.core, full, a, b)) return false;
  allocate(out, full, wants_sum);
  const std::int64_t n = out.shape.last(1), m = out.shape.last(0), k = a.shape.last(node.transpose_a ? 1 : 0);
  const std::int64_t plane = n * m, batches = plane > 0 ? out.count() / plane : 0;
  // An underflowing product loses up to half a subnormal step (or all of it where subnormals are flushed).
  const double underflow = full || a.range.smallest * b.range.smallest < kMinNormal ? c.eta : 0.0;
  for (std::int64_t i = 0; i < batches; ++i)
    evaluate_batch(c, node, a, b, {n, k, m, i * n * k, i * k * m, i * plane}, underflow, full, wants_sum, out);
  return true;
}

}  // namespace ampcheck::reference
