// SPDX-License-Identifier: Apache-2.0
// Matrix products as balls: rule R5 for each product, R2 for the sum, by fp64 products of values and of magnitudes.
#include <Eigen/Core>
#include <vector>

#include "reference/ball_rules.h"

namespace ampcheck::reference {

namespace {

using Matrix = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using FloatMatrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using View = Eigen::Map<const Matrix>;

/// One operand of one batch: values, magnitudes and, where inexact, magnitudes with radii.
struct Operand {
  std::int64_t rows, cols;
  bool transposed;
  Matrix magnitude, outer;  // |v| and |v| + r
  bool exact = true;        // all radii zero
  double grid = kInfinity;  // lowest set bit of all values
  bool short_significand = true;  // at most 12 bits: products are exact in fp32
};

Operand prepare(const Ball& x, std::int64_t at, std::int64_t rows, std::int64_t cols, bool transposed) {
  Operand o{rows, cols, transposed, {}, {}};
  o.magnitude = View(x.v.get() + at, rows, cols).cwiseAbs();
  for (std::int64_t i = 0; i < rows * cols; ++i) {
    const double r = x.r ? x.r[at + i] : 0.0, v = x.v[at + i], low = lowest_bit(v);
    o.exact &= r == 0;
    o.grid = std::fmin(o.grid, low);
    o.short_significand &= v == 0 || std::fabs(v) < 0x1p12 * low;
  }
  if (!o.exact) o.outer = o.magnitude + View(x.r.get() + at, rows, cols);
  return o;
}

template <class A, class B>
Matrix product(const A& a, bool ta, const B& b, bool tb) {
  if (ta && tb) return a.transpose() * b.transpose();
  if (ta) return a.transpose() * b;
  if (tb) return a * b.transpose();
  return a * b;
}

/// Number of non-zero products of each sum; empty (k everywhere) unless zeros are so many that counting sharpens the bound.
Matrix count_terms(const Operand& a, const Operand& b) {
  const Matrix& x = a.exact ? a.magnitude : a.outer;
  const Matrix& y = b.exact ? b.magnitude : b.outer;
  const auto zeros = (x.array() == 0).count() * 8 > x.size() || (y.array() == 0).count() * 8 > y.size();
  if (!zeros) return {};
  const Matrix mx = (x.array() != 0).cast<double>(), my = (y.array() != 0).cast<double>();
  return product(mx, a.transposed, my, b.transposed);
}

/// Flags and replay of one batch (rule R9).
void range_of_product(const Ball& a, std::int64_t at_a, const Ball& b, std::int64_t at_b, const Node& node, const Matrix& mass,
                      std::int64_t n, std::int64_t k, std::int64_t m, std::int64_t at, Ball& out) {
  const std::int64_t ai = node.transpose_a ? 1 : k, ak = node.transpose_a ? n : 1;
  const std::int64_t bk = node.transpose_b ? 1 : m, bj = node.transpose_b ? k : 1;
  for (std::int64_t i = 0; i < n; ++i)
    for (std::int64_t j = 0; j < m; ++j) {
      float sum = 0;
      std::uint8_t flags = 0;
      bool finite = true, positive = false, negative = false;
      for (std::int64_t p = 0; p < k; ++p) {
        const std::int64_t x = at_a + i * ai + p * ak, y = at_b + p * bk + j * bj;
        const std::uint8_t f = static_cast<std::uint8_t>(a.flags[x] | b.flags[y]);
        if (f & (kOverflowed | kLeftRange)) flags |= kLeftRange;
        const double term = a.v[x] * b.v[y];
        finite &= std::isfinite(term) || (f & (kOverflowed | kLeftRange));
        positive |= term > 0, negative |= term < 0;
        sum += static_cast<float>(a.replay[x]) * static_cast<float>(b.replay[y]);
      }
      const std::int64_t to = at + i * m + j;
      out.replay[to] = sum;
      if (finite && mass(i, j) > kMaxFinite && positive && negative) {
        flags |= kLeftRange;  // some order overflows, whatever the replay's does
        out.replay[to] = std::numeric_limits<double>::quiet_NaN();
      }
      if (finite && !(std::fabs(out.v[to]) + out.r[to] <= kMaxFinite)) flags |= kOverflowed;
      if (std::isinf(out.v[to])) flags |= kMayBeNan;
      out.flags[to] = flags;
    }
}

}  // namespace

void evaluate_matmul(const RuleContext& c, const Node& node, const Ball& a, const Ball& b, bool full, bool wants_sum,
                     Ball& out) {
  allocate(out, full, wants_sum);
  const std::int64_t n = out.shape.last(1), m = out.shape.last(0), k = a.shape.last(node.transpose_a ? 1 : 0);
  const std::int64_t plane = n * m, batches = plane > 0 ? out.count() / plane : 0;
  // An underflowing product loses up to half a subnormal step (or all of it where subnormals are flushed).
  const double underflow = full || a.range.smallest * b.range.smallest < kMinNormal ? c.eta : 0.0;
  for (std::int64_t batch = 0; batch < batches; ++batch) {
    const std::int64_t at_a = batch * n * k, at_b = batch * k * m, at = batch * n * m;
    const Operand x = node.transpose_a ? prepare(a, at_a, k, n, true) : prepare(a, at_a, n, k, false);
    const Operand y = node.transpose_b ? prepare(b, at_b, m, k, true) : prepare(b, at_b, k, m, false);
    Eigen::Map<Matrix> value(out.v.get() + at, n, m);
    value = product(View(a.v.get() + at_a, x.rows, x.cols), node.transpose_a, View(b.v.get() + at_b, y.rows, y.cols), node.transpose_b);
    const bool exact = x.exact && y.exact;
    const Matrix inner = product(x.magnitude, node.transpose_a, y.magnitude, node.transpose_b);
    const Matrix spread = exact ? Matrix() : product(x.exact ? x.magnitude : x.outer, node.transpose_a, y.exact ? y.magnitude : y.outer, node.transpose_b);
    const Matrix& mass = exact ? inner : spread;
    const Matrix terms = count_terms(x, y);
    const bool exact_products = exact && x.short_significand && y.short_significand && underflow == 0;
    const double grid = exact ? x.grid * y.grid : 0.0;
    for (std::int64_t i = 0; i < n * m; ++i) {
      const double s = mass.data()[i], t = terms.size() > 0 ? terms.data()[i] : static_cast<double>(k);
      double base = exact ? 0.0 : (s - inner.data()[i]) + 0x1p-50 * s;
      const bool on_grid = exact && c.grid && s <= 0x1p24 * grid && underflow == 0;
      if (!exact_products && !on_grid && s > 0) base += c.u * s + t * underflow;
      if (!(base == base)) base = kInfinity;
      out.r[at + i] = settle(out.v[at + i], summation_radius(c, t, s, base, on_grid ? grid : 0.0));
      if (wants_sum) out.terms[at + i] = t, out.mass[at + i] = s, out.base[at + i] = base, out.grid[at + i] = on_grid ? grid : 0.0;
    }
    if (full) range_of_product(a, at_a, b, at_b, node, mass, n, k, m, at, out);
  }
}

}  // namespace ampcheck::reference
