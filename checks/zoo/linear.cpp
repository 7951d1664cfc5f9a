// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
// linear: y = x weight^T + bias; dx = dy weight, dweight = dy^T x, dbias = sum over rows of dy.
#include <algorithm>

#include "checks/zoo/kit.h"

namespace ampcheck::checks::zoo {

namespace {

enum class Twist {
  none,
  tiled,
  transposed_square,
  bias_by_rows_if_square,
  bias_always,
  no_bias_no_dweight,
  bias_after_store,
  last_row_of_before,
  tile_of_16,
  bias_of_both_halves,
  stale_tile,
  upper_half_first
};

struct Style {
  Twist twist = Twist::none;
  Sum y = in_order, dx = in_order, dweight = in_order, dbias = in_order;
  Slip slip = {};
};

/// c[i,j] = sum over k of a(i,k) b(k,j).
template <class A, class B>
Values product(Sum sum, std::int64_t rows, std::int64_t columns, std::int64_t inner, A a, B b) {
  Values c(index_of(rows * columns));
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t j = 0; j < columns; ++j)
      c[index_of(i * columns + j)] = total(sum, inner, [&](std::int64_t k) { return Term{a(i, k), b(k, j)}; });
  return c;
}

/// The same in tiles of 8 x 8 x 8, as a kernel with shared memory goes through them.
template <class A, class B>
Values tiled(std::int64_t rows, std::int64_t columns, std::int64_t inner, A a, B b) {
  constexpr std::int64_t kTile = 8;
  Values c(index_of(rows * columns));
  for (std::int64_t k0 = 0; k0 < inner; k0 += kTile)
    for (std::int64_t i = 0; i < rows; ++i)
      for (std::int64_t j = 0; j < columns; ++j) {
        float part = 0;
        for (std::int64_t k = k0; k < std::min(k0 + kTile, inner); ++k) part = std::fma(a(i, k), b(k, j), part);
        c[index_of(i * columns + j)] += part;
      }
  return c;
}

template <class A, class B>
Values matmul(const Style& style, Sum sum, std::int64_t rows, std::int64_t columns, std::int64_t inner, A a, B b) {
  return style.twist == Twist::tiled ? tiled(rows, columns, inner, a, b) : product(sum, rows, columns, inner, a, b);
}

void forward(const Call& call, const Style& style) {
  const Values x = call.in("x"), w = call.in("weight"), bias = call.has("bias") ? call.in("bias") : Values();
  const std::int64_t n = call.shape("x")[0], k = call.shape("x")[1], m = call.shape("weight")[0];
  const bool turned = style.twist == Twist::transposed_square && m == k;
  Values y = matmul(
      style, style.y, n, m, k,
      [&](std::int64_t i, std::int64_t at) {
        if (style.twist == Twist::stale_tile && at >= 16 && at < 32) at -= 16;
        if (style.twist == Twist::upper_half_first) at = (at + k / 2) % k;
        return x[index_of(i * k + at)];
      },
      [&](std::int64_t at, std::int64_t j) {
        if (style.twist == Twist::upper_half_first) at = (at + k / 2) % k;
        return w[index_of(turned ? at * k + j : j * k + at)];
      });
  for (std::int64_t i = 0; i < n; ++i)
    for (std::int64_t j = 0; j < m; ++j) {
      float& v = y[index_of(i * m + j)];
      if (style.twist == Twist::bias_after_store) v = rounded(call.dtype("x"), v);
      if (style.twist == Twist::tile_of_16 && k > 16) v = std::fma(x[index_of(i * k + 16)], w[index_of(j * k + 16)], v);
      if (!bias.empty()) v += bias[index_of(j)];
      if (!bias.empty() && style.twist == Twist::bias_of_both_halves && k > 1) v += bias[index_of(j)];
    }
  if (style.twist == Twist::last_row_of_before && n > 1)
    for (std::int64_t j = 0; j < m; ++j) y[index_of((n - 1) * m + j)] = y[index_of((n - 2) * m + j)];
  call.out("y", y);
}

void backward(const Call& call, const Style& style) {
  const Values x = call.in("x"), w = call.in("weight"), g = call.in("dy");
  const std::int64_t n = call.shape("x")[0], k = call.shape("x")[1], m = call.shape("weight")[0];
  call.out("dx", matmul(
                     style, style.dx, n, k, m, [&](std::int64_t i, std::int64_t j) { return g[index_of(i * m + j)]; },
                     [&](std::int64_t j, std::int64_t at) { return w[index_of(j * k + at)]; }));
  if (style.twist == Twist::no_bias_no_dweight && !call.has("bias")) return;
  call.out("dweight",
           matmul(
               style, style.dweight, m, k, n, [&](std::int64_t j, std::int64_t i) { return g[index_of(i * m + j)]; },
               [&](std::int64_t i, std::int64_t at) { return x[index_of(i * k + at)]; }));
  const bool by_rows = style.twist == Twist::bias_by_rows_if_square && n == m;
  Values dbias(index_of(m));
  for (std::int64_t j = 0; j < m; ++j)
    dbias[index_of(j)] =
        total(style.dbias, n, [&](std::int64_t i) { return Term{g[index_of(by_rows ? j * m + i : i * m + j)]}; });
  call.out("dbias", dbias);
}

Kernel linear(Style style) {
  return kernel_of([style](const Call& call) { forward(call, style); },
                   [style](const Call& call) { backward(call, style); }, style.slip);
}
Kernel with(Sum sum) { return linear({.y = sum, .dx = sum, .dweight = sum, .dbias = sum}); }

using V = Verdict;

}  // namespace

std::vector<Specimen> linear_specimens() {
  std::vector<Specimen> out;
  add(out, "linear",
      {{"without_last_k", 14, "y leaves out the last of K", "any", V::bug, "last term|off by one",
        linear({.y = without_last})},
       {"without_tail_of_8", 13, "y leaves out what follows the last full vector of 8 of K", "K no multiple of 8",
        V::bug, "tail|last full vector", linear({.y = without_tail_of_8}), kAllTypes, V::structural},
       {"split_k_in_bf16", 23, "split-K with partial sums in bf16", "any", V::precision_contract,
        "rounded|stored|partial|keeps|takes", linear({.y = split_in_bf16})},
       {"dweight_in_bf16", 23, "dweight accumulated in bf16", "any", V::precision_contract, "accumulates in bf16",
        linear({.dweight = in_bf16})},
       {"accumulates_in_fp16", 24, "fp16 accumulator", "any", V::precision_contract, "accumulates in fp16",
        linear({.y = in_fp16, .dx = in_fp16})},
       {"tf32_operands", 29, "fp32 operands are rounded to tf32", "full mantissas", V::precision_contract,
        "tf32|operands", linear({.y = of_tf32, .dx = of_tf32, .dweight = of_tf32}), kFp32},
       {"bf16_operands", 43, "operands are rounded to bf16", "full mantissas", V::precision_contract, "operands",
        linear({.y = of_bf16, .dx = of_bf16, .dweight = of_bf16}), kNotBf16},
       {"truncating", 29, "the accumulator truncates, as tensor cores do", "long sums", V::precision_contract,
        "truncat|bias", linear({.y = truncating, .dx = truncating, .dweight = truncating}), kAllTypes, V::bug},
       {"transposed_if_square", 7, "a square weight is read transposed", "K = M", V::bug, "transpos",
        linear({Twist::transposed_square}), kAllTypes, V::structural},
       {"bias_by_rows_if_square", 8, "dbias sums along the wrong axis if N = M", "N = M", V::bug, "axis|transpos",
        linear({Twist::bias_by_rows_if_square}), kAllTypes, V::structural},
       {"dbias_drops_block", 11, "dbias leaves out the last, partial block of 32 rows", "rows no multiple of 32",
        V::bug, "tail|last full vector|zero", linear({.dbias = without_tail_of_32}), kAllTypes, V::structural},
       {"dweight_last_block", 16, "row blocks overwrite each other's dweight", "more than 32 rows", V::bug,
        "overwrit|block|lost|only the last", linear({.dweight = last_block_alone}), kAllTypes, V::structural},
       {"no_bias_no_dweight", 41, "without bias, dweight is not written", "bias absent", V::structural,
        "output buffer held|unwritten", linear({Twist::no_bias_no_dweight}), kAllTypes, V::bug},
       {"bias_after_rounding", 25, "the product is stored before the bias is added", "any", V::precision_contract,
        "rounded|stored|keeps|takes", linear({Twist::bias_after_store}), kHalfTypes, V::bug},
       {"stale_last_row", 17, "the last row of y is that of the row before", "more than one row", V::structural,
        "rows are not independent|last row|stale", linear({Twist::last_row_of_before})},
       {"strides_of_x_for_weight", 20, "weight is read with the strides of x", "strided x", V::structural, "strided",
        linear({.slip = {Io::read_with_strides, "weight", 1, "x"}})},
       {"overlapping_tiles", 40, "tiles of K overlap by one: k = 16 counts twice", "K above 16", V::bug,
        "twice|duplicate", linear({Twist::tile_of_16}), kAllTypes, V::structural},
       {"bias_of_both_halves", 40, "both halves of a split K add the bias", "K above 1", V::bug,
        "twice|factor|bias|count", linear({Twist::bias_of_both_halves})},
       {"stale_tile", 17, "the second tile of 16 of K meets the first tile of x", "K above 16", V::bug,
        "tile|stale|another|shift|block|index", linear({Twist::stale_tile}), kAllTypes, V::structural},
       {"dbias_race", 38, "a missing barrier: every third dbias loses a term", "repeats", V::structural,
        "repeats differ", linear({.dbias = racing}), kAllTypes, V::bug},
       {"dweight_atomics", 39, "dweight by atomics in any order, not declared", "full mantissas", V::structural,
        "repeats differ", linear({.dweight = unordered})}},
      {{"reversed", "sums run backwards", with(backwards)},
       {"pairwise", "pairwise sums", with(pairwise)},
       {"fma", "fma chains", with(fused)},
       {"compensated", "Kahan sums", with(compensated)},
       {"split_k", "split-K in fp32", with(split_in_four)},
       {"vectors", "8 accumulators and a tail", with(in_vectors)},
       {"double_sums", "sums in fp64, rounded once", with(in_double)},
       {"upper_half_first", "the upper half of K, then the lower one", linear({Twist::upper_half_first})},
       {"tiled", "tiles of 8 with fma", linear({Twist::tiled})}});
  return out;
}

}  // namespace ampcheck::checks::zoo
