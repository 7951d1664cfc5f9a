// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
// softmax and log_softmax along the last axis. Backward: dx = y (g - sum g y), dx = g - exp(y) sum g.
#include <algorithm>

#include "checks/zoo/kit.h"

namespace ampcheck::checks::zoo {

namespace {

enum class Twist {
  none,
  // How a correct row is computed.
  online,
  by_lse,
  two_blocks,
  // Wrong.
  no_shift,
  short_shift,
  one_shift_for_all,
  no_rescaling,
  blocks_without_merge,
  exp_off,
  square_by_columns,
  half_exp,
  dot_missing,
  dot_added,
  dot_of_first_row,
  dot_of_row_before,
  y_in_bf16,
  y_in_storage,
  dot_times_n,
  sum_missing,
  log_of_y,
  exp_of_stored,
  masked_row_is_zero,
};

struct Style {
  Twist twist = Twist::none;
  Sum sum = in_order;  ///< of the exponentials
  Sum dot = in_order;  ///< of backward
  Slip slip = {};
};

struct Row {
  Values e;                ///< exponentials of x - shift
  float shift = 0, l = 0;  ///< and their sum
};

Row exponentials(std::span<const float> x, const Style& style, float shift) {
  Row row{Values(x.size()), shift, 0};
  for (std::size_t i = 0; i < x.size(); ++i) {
    const float z = x[i] - shift;
    row.e[i] = std::exp(z);
    if (style.twist == Twist::exp_off) row.e[i] *= 1 + 2e-3f * std::sin(37 * z);  // a table of too few entries
    if (style.twist == Twist::half_exp) row.e[i] = std::exp(bf16(z));
  }
  row.l =
      total(style.sum, static_cast<std::int64_t>(x.size()), [&](std::int64_t i) { return Term{row.e[index_of(i)]}; });
  return row;
}

/// Milakov and Gimelshein 2018.
Row online(std::span<const float> x, bool rescales) {
  Row row{Values(x.size()), -INFINITY, 0};
  for (const float v : x) {
    const float next = v > row.shift || v != v ? v : row.shift;
    row.l = row.l * (row.shift == next || !rescales ? 1.0f : std::exp(row.shift - next)) + std::exp(v - next);
    row.shift = next;
  }
  for (std::size_t i = 0; i < x.size(); ++i) row.e[i] = std::exp(x[i] - row.shift);
  return row;
}

/// Two halves with their own maxima, merged.
Row two_halves(std::span<const float> x, const Style& style) {
  if (x.size() < 2) return exponentials(x, style, largest(x));
  const auto first = x.first(x.size() / 2), second = x.subspan(x.size() / 2);
  const Row a = exponentials(first, style, largest(first)), b = exponentials(second, style, largest(second));
  Row row = exponentials(x, style, largest(x));
  const auto weight = [&](float shift) {
    return shift == row.shift || style.twist == Twist::blocks_without_merge ? 1.0f : std::exp(shift - row.shift);
  };
  row.l = a.l * weight(a.shift) + b.l * weight(b.shift);
  return row;
}

Row row_with(std::span<const float> x, const Style& style, float shift_of_all) {
  switch (style.twist) {
    case Twist::online: return online(x, true);
    case Twist::no_rescaling: return online(x, false);
    case Twist::two_blocks:
    case Twist::blocks_without_merge: return two_halves(x, style);
    case Twist::no_shift: return exponentials(x, style, 0);
    case Twist::short_shift: return exponentials(x, style, largest(x.first(std::min<std::size_t>(128, x.size()))));
    case Twist::one_shift_for_all: return exponentials(x, style, shift_of_all);
    default: return exponentials(x, style, largest(x));
  }
}

Values softmax_row(const Row& row, std::span<const float> x, const Style& style) {
  Values y(x.size());
  const float lse = row.shift + std::log(row.l);
  for (std::size_t i = 0; i < x.size(); ++i)
    y[i] = style.twist == Twist::by_lse ? std::exp(x[i] - lse) : row.e[i] / row.l;
  if (style.twist == Twist::masked_row_is_zero && row.shift == -INFINITY) std::fill(y.begin(), y.end(), 0.0f);
  return y;
}

/// Rows of y for all of x; with square_by_columns, a square x is taken column by column.
Values softmax_of(const Values& x, std::int64_t rows, std::int64_t columns, const Style& style) {
  Values out(x.size());
  const bool by_columns = style.twist == Twist::square_by_columns && rows == columns;
  const float largest_of_all = largest(x);
  for (std::int64_t r = 0; r < rows; ++r) {
    Values row(index_of(columns));
    const auto at = [&](std::int64_t i) { return index_of(by_columns ? i * columns + r : r * columns + i); };
    for (std::int64_t i = 0; i < columns; ++i) row[index_of(i)] = x[at(i)];
    const Values y = softmax_row(row_with(row, style, largest_of_all), row, style);
    for (std::int64_t i = 0; i < columns; ++i) out[at(i)] = y[index_of(i)];
  }
  return out;
}

void softmax_forward(const Call& call, const Style& style) {
  call.out("y", softmax_of(call.in("x"), call.rows("x"), call.columns("x"), style));
}

void softmax_backward(const Call& call, const Style& style) {
  const std::int64_t rows = call.rows("x"), n = call.columns("x");
  Values y = softmax_of(call.in("x"), rows, n, style), dx(y.size());
  const Values g = call.in("dy");
  for (float& v : y) {
    if (style.twist == Twist::y_in_bf16) v = bf16(v);
    if (style.twist == Twist::y_in_storage) v = rounded(call.dtype("x"), v);
  }
  float before = 0;
  for (std::int64_t r = 0; r < rows; ++r) {
    const auto of_row = [&](std::int64_t row) {
      return total(style.dot, n, [&](std::int64_t i) {
        return Term{g[index_of(row * n + i)], y[index_of(row * n + i)]};
      });
    };
    float dot = of_row(style.twist == Twist::dot_of_first_row ? 0 : r);
    const float own = dot;
    if (style.twist == Twist::dot_of_row_before && r + 1 == rows && r > 0) dot = before;
    if (style.twist == Twist::dot_missing) dot = 0;
    if (style.twist == Twist::dot_added) dot = -dot;
    if (style.twist == Twist::dot_times_n && n > 1) dot *= static_cast<float>(n) / static_cast<float>(n - 1);
    before = own;
    for (std::int64_t i = r * n; i < (r + 1) * n; ++i) dx[index_of(i)] = y[index_of(i)] * (g[index_of(i)] - dot);
  }
  call.out("dx", dx);
}

Kernel softmax(Style style) {
  return kernel_of([style](const Call& call) { softmax_forward(call, style); },
                   [style](const Call& call) { softmax_backward(call, style); }, style.slip);
}

Values log_softmax_of(const Values& x, std::int64_t rows, std::int64_t n, const Style& style) {
  Values out(x.size());
  const float largest_of_all = largest(x);
  for (std::int64_t r = 0; r < rows; ++r) {
    const auto row_x = row_of(x, r, n);
    const Row row = row_with(row_x, style, largest_of_all);
    const float log_l = std::log(row.l), lse = row.shift + log_l;
    for (std::int64_t i = 0; i < n; ++i) {
      const float v = row_x[index_of(i)];
      float y = style.twist == Twist::by_lse ? v - lse : (v - row.shift) - log_l;
      if (style.twist == Twist::log_of_y) y = std::log(row.e[index_of(i)] / row.l);
      out[index_of(r * n + i)] = y;
    }
  }
  return out;
}

void log_softmax_backward(const Call& call, const Style& style) {
  const std::int64_t rows = call.rows("x"), n = call.columns("x");
  const Values y = log_softmax_of(call.in("x"), rows, n, style), g = call.in("dy");
  Values dx(y.size());
  for (std::int64_t r = 0; r < rows; ++r) {
    const float sum = total(style.dot, n, [&](std::int64_t i) { return Term{g[index_of(r * n + i)]}; });
    for (std::int64_t i = r * n; i < (r + 1) * n; ++i) {
      float p = y[index_of(i)];
      if (style.twist == Twist::exp_of_stored) p = rounded(call.dtype("x"), p);
      const float own = style.twist == Twist::sum_missing ? g[index_of(i)] : sum;
      dx[index_of(i)] = g[index_of(i)] - std::exp(p) * own;
    }
  }
  call.out("dx", dx);
}

Kernel log_softmax(Style style) {
  return kernel_of(
      [style](const Call& call) {
        call.out("y", log_softmax_of(call.in("x"), call.rows("x"), call.columns("x"), style));
      },
      [style](const Call& call) { log_softmax_backward(call, style); }, style.slip);
}

using V = Verdict;

}  // namespace

std::vector<Specimen> softmax_specimens() {
  std::vector<Specimen> out;
  add(out, "softmax",
      {{"dot_missing", 3, "backward is y g, without the dot product", "any", V::bug,
        "term missing|missing term|dot product|without the term", softmax({Twist::dot_missing})},
       {"dot_added", 2, "backward adds the dot product", "any", V::bug, "sign", softmax({Twist::dot_added})},
       {"dot_without_tail", 13, "the dot product stops at the last full vector of 8", "rows that are no multiple of 8",
        V::bug, "tail|last full vector", softmax({.dot = without_tail_of_8}), kAllTypes, V::structural},
       {"dot_without_last", 14, "the dot product leaves out the last element", "any", V::bug, "last term|off by one",
        softmax({.dot = without_last})},
       {"dot_in_bf16", 23, "the dot product is accumulated in bf16", "any", V::precision_contract,
        "accumulates in bf16", softmax({.dot = in_bf16})},
       {"sum_in_fp16", 24, "exponentials are added up in fp16", "any", V::precision_contract, "accumulates in fp16",
        softmax({.sum = in_fp16})},
       {"y_saved_in_bf16", 27, "backward works from y saved in bf16", "any", V::precision_contract,
        "saved|stored|rounded|keeps|takes", softmax({Twist::y_in_bf16})},
       {"y_saved_in_storage", 27, "backward works from y as stored", "any", V::precision_contract,
        "saved|stored|rounded|keeps|takes", softmax({Twist::y_in_storage}), kHalfTypes},
       {"stale_dot", 17, "the last row takes the dot product of the row before", "more than one row", V::structural,
        "rows are not independent|last row|stale", softmax({Twist::dot_of_row_before})},
       {"first_rows_dot", 9, "every row takes the dot product of the first", "more than one row", V::structural,
        "rows are not independent|every row but the first|another row", softmax({Twist::dot_of_first_row})},
       {"first_rows_cotangent", 9, "the cotangent of row 0 serves every row", "more than one row", V::structural,
        "rows are not independent|every row but the first|another row",
        softmax({.slip = {Io::first_row_for_all, "dy"}})},
       {"last_unwritten", 15, "the last element of dx is never written", "any", V::structural,
        "output buffer held|unwritten", softmax({.slip = {Io::drop_last, "dx"}})},
       {"exp_table", 29, "exp with errors of up to 0.2 %, as from a short table", "any", V::precision_contract,
        "exp|fast", softmax({Twist::exp_off}), kAllTypes, V::bug},
       {"exp_of_bf16", 26, "x - max is rounded to bf16 before exp", "rows that spread", V::precision_contract,
        "rounded|stored|partial|keeps|takes", softmax({Twist::half_exp}), kNotBf16, V::bug},
       {"no_shift", 28, "exp(x) without subtracting the maximum", "x above 88", V::range_declared,
        "overflow|inf-inf|infinite", softmax({Twist::no_shift}), kAllTypes, V::bug},
       {"short_maximum", 13, "the maximum of the first 128 numbers of a row", "longer rows that spread over 88",
        V::range_declared, "overflow|inf-inf|infinite|maximum", softmax({Twist::short_shift}), kAllTypes, V::bug},
       {"one_shift", 8, "one maximum for the whole tensor", "rows of different size", V::structural,
        "rows are not independent|wrong axis", softmax({Twist::one_shift_for_all}), kAllTypes, V::bug},
       {"no_rescaling", 25, "online softmax that does not rescale when the maximum grows", "any", V::bug,
        "factor|rescal", softmax({Twist::no_rescaling})},
       {"halves_not_merged", 40, "the sums of two half rows are added without their shifts", "any", V::bug,
        "factor|rescal", softmax({Twist::blocks_without_merge})},
       {"square_by_columns", 8, "a square tensor is reduced along the first axis", "N = D", V::structural,
        "axis|transpos|rows are not independent", softmax({Twist::square_by_columns}), kAllTypes, V::bug},
       {"dense_cotangent", 18, "dy is read as if row-major", "strided dy", V::structural, "strided",
        softmax({.slip = {Io::read_dense, "dy"}})},
       {"dot_of_n_minus_1", 5, "the dot product is scaled by N/(N-1)", "any", V::bug, "factor|N-1|count",
        softmax({Twist::dot_times_n})},
       {"masked_row_is_zero", 33, "a row of -inf gives zeros, not the NaN of the formula", "rows of -inf", V::bug,
        "finite where|hides", softmax({Twist::masked_row_is_zero})},
       {"race", 38, "a missing barrier: every third sum loses a term", "repeats", V::structural, "repeats differ",
        softmax({.dot = racing}), kAllTypes, V::bug}},
      {{"reversed", "sums run backwards", softmax({.sum = backwards, .dot = backwards})},
       {"pairwise", "pairwise sums", softmax({.sum = pairwise, .dot = pairwise})},
       {"blocked", "sums in blocks of 32", softmax({.sum = in_blocks, .dot = in_blocks})},
       {"lanes", "32 lanes and a butterfly", softmax({.sum = in_lanes, .dot = in_lanes})},
       {"vectors", "8 accumulators and a tail", softmax({.sum = in_vectors, .dot = in_vectors})},
       {"compensated", "Kahan sums", softmax({.sum = compensated, .dot = compensated})},
       {"fma", "dot product by fma", softmax({.dot = fused})},
       {"double_sums", "sums in fp64, rounded once", softmax({.sum = in_double, .dot = in_double})},
       {"one_pass", "running maximum and sum", softmax({Twist::online}), "one pass"},
       {"lse", "exp(x - lse)", softmax({Twist::by_lse}), "exp(x - lse)"},
       {"two_blocks", "two half rows, merged", softmax({Twist::two_blocks}), "one pass"}});
  add(out, "log_softmax",
      {{"sum_missing", 3, "backward takes g in place of sum g", "any", V::bug,
        "term missing|missing term|without the term", log_softmax({Twist::sum_missing})},
       {"log_of_softmax", 28, "log(e/l): -inf where e/l underflows", "rows that spread over 104", V::range_declared,
        "overflow|inf-inf|infinite|underflow", log_softmax({Twist::log_of_y}), kAllTypes, V::bug},
       {"no_shift", 28, "log(sum exp(x)) without subtracting the maximum", "x above 88", V::bug,
        "overflow|inf-inf|infinite", log_softmax({Twist::no_shift}), kAllTypes, V::range_declared},
       {"sum_g_in_bf16", 23, "sum g is accumulated in bf16", "any", V::precision_contract, "accumulates in bf16",
        log_softmax({.dot = in_bf16})},
       {"exp_of_stored", 25, "backward takes exp of y as stored", "any", V::precision_contract,
        "stored|saved|rounded|keeps|takes", log_softmax({Twist::exp_of_stored}), kHalfTypes, V::bug},
       {"sum_without_tail", 13, "sum of exponentials stops at the last full vector of 8",
        "rows that are no multiple of 8", V::bug, "tail|last full vector", log_softmax({.sum = without_tail_of_8}),
        kAllTypes, V::structural},
       {"sum_twice_last", 40, "the last exponential is counted twice", "any", V::bug, "twice|duplicate",
        log_softmax({.sum = last_twice})},
       {"dead_gradient", 46, "dx is all zero", "any", V::bug, "zero", log_softmax({.slip = {Io::zero, "dx"}})},
       {"g_squared", 10, "g^2 in place of g", "cotangents of either sign", V::structural,
        "linear in the cotangent|sign", log_softmax({.slip = {Io::squared, "dy"}}), kAllTypes, V::bug},
       {"overrun", 13, "one element past the end of y is written", "any", V::structural, "writes outside",
        log_softmax({.slip = {Io::overrun, "y"}})}},
      {{"pairwise", "pairwise sums", log_softmax({.sum = pairwise, .dot = pairwise})},
       {"one_pass", "running maximum and sum", log_softmax({Twist::online}), "one pass"},
       {"lse", "x - lse", log_softmax({Twist::by_lse}), "x - lse"},
       {"compensated", "Kahan sums", log_softmax({.sum = compensated, .dot = compensated})},
       {"vectors", "8 accumulators and a tail", log_softmax({.sum = in_vectors, .dot = in_vectors})}});
  return out;
}

}  // namespace ampcheck::checks::zoo
