// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
// sum and mean along one axis, and mse_loss over all elements.
#include <algorithm>

#include "checks/zoo/kit.h"

namespace ampcheck::checks::zoo {

namespace {

enum class Twist {
  none,
  reciprocal,
  square_by_rows,
  padded_count,
  n_minus_one,
  fp16_total,
  gradient_without_n,
  rows_not_elements,
  factor_missing,
  target_like_x,
  halves
};

struct Style {
  Twist twist = Twist::none;
  Sum sum = in_order;
  Slip slip = {};
};

AxisLines lines_of(const Call& call, const Style& style) {
  return AxisLines(call, style.twist == Twist::square_by_rows);
}

float count_of(std::int64_t n, const Style& style) {
  if (style.twist == Twist::padded_count) return static_cast<float>((n + 31) / 32 * 32);
  if (style.twist == Twist::n_minus_one) return static_cast<float>(std::max<std::int64_t>(n - 1, 1));
  return static_cast<float>(n);
}

Kernel reduction(bool mean, Style style) {
  const auto forward = [=](const Call& call) {
    const Values x = call.in("x");
    const AxisLines lines = lines_of(call, style);
    Values y(index_of(lines.count));
    for (std::int64_t r = 0; r < lines.count; ++r) {
      float s = total(style.sum, lines.length, [&](std::int64_t i) { return Term{x[lines.at(r, i)]}; });
      if (style.twist == Twist::fp16_total) s = fp16(s);
      const float n = count_of(lines.length, style);
      y[index_of(r)] = !mean ? s : style.twist == Twist::reciprocal ? s * (1 / n) : s / n;
    }
    call.out("y", y);
  };
  const auto backward = [=](const Call& call) {
    const Values g = call.in("dy");
    const AxisLines lines = lines_of(call, style);
    Values dx(index_of(call.shape("x").count()));
    const float n = count_of(lines.length, style);
    for (std::int64_t r = 0; r < lines.count; ++r)
      for (std::int64_t i = 0; i < lines.length; ++i)
        dx[lines.at(r, i)] = !mean || style.twist == Twist::gradient_without_n ? g[index_of(r)]
                             : style.twist == Twist::reciprocal                ? g[index_of(r)] * (1 / n)
                                                                               : g[index_of(r)] / n;
    call.out("dx", dx);
  };
  return kernel_of(forward, backward, style.slip);
}
Kernel sums(Style style) { return reduction(false, std::move(style)); }
Kernel means(Style style) { return reduction(true, std::move(style)); }

Kernel mse(Style style) {
  const auto size = [style](const Call& call) {
    return static_cast<float>(style.twist == Twist::rows_not_elements ? call.shape("x")[0] : call.shape("x").count());
  };
  const auto forward = [=](const Call& call) {
    const Values x = call.in("x"), target = call.in("target");
    const float s = total(style.sum, call.shape("x").count(), [&](std::int64_t i) {
      const float d = x[index_of(i)] - target[index_of(i)];
      return Term{d, d};
    });
    call.out("loss", {style.twist == Twist::fp16_total ? fp16(s) / size(call) : s / size(call)});
  };
  const auto backward = [=](const Call& call) {
    const Values x = call.in("x"), target = call.in("target");
    const float g = call.in("dloss").at(0), factor = (style.twist == Twist::factor_missing ? 1.0f : 2.0f) / size(call);
    Values dx(x.size()), dtarget(x.size());
    for (std::size_t i = 0; i < dx.size(); ++i) {
      dx[i] = style.twist == Twist::halves ? g * ((x[i] - target[i]) * factor) : g * factor * (x[i] - target[i]);
      dtarget[i] = style.twist == Twist::target_like_x ? dx[i] : -dx[i];
    }
    call.out("dx", dx);
    call.out("dtarget", dtarget);
  };
  return kernel_of(forward, backward, style.slip);
}

using V = Verdict;

}  // namespace

std::vector<Specimen> reduction_specimens() {
  std::vector<Specimen> out;
  add(out, "sum",
      {{"in_bf16", 23, "accumulated in bf16", "any", V::precision_contract, "accumulates in bf16",
        sums({.sum = in_bf16})},
       {"in_fp16", 24, "accumulated in fp16", "any", V::precision_contract, "accumulates in fp16",
        sums({.sum = in_fp16})},
       {"wrong_axis_if_square", 8, "a square tensor is reduced along the other axis", "N = D", V::bug, "axis|transpos",
        sums({Twist::square_by_rows}), kAllTypes, V::structural},
       {"without_tail", 13, "stops at the last full vector of 8", "lengths that are no multiple of 8", V::bug,
        "tail|last full vector|zero", sums({.sum = without_tail_of_8}), kAllTypes, V::structural},
       {"without_last", 14, "leaves out the last element", "any", V::bug, "last term|off by one",
        sums({.sum = without_last})},
       {"without_first", 14, "leaves out the first element", "any", V::bug, "first term|off by one",
        sums({.sum = without_first})},
       {"expanded_cotangent", 18, "dy is read as if row-major", "strided or expanded dy", V::structural, "strided",
        sums({.slip = {Io::read_dense, "dy"}})},
       {"split_in_bf16", 23, "split sums stored in bf16", "any", V::precision_contract,
        "rounded|stored|partial|keeps|takes", sums({.sum = split_in_bf16})},
       {"overlapping_blocks", 40, "blocks of 32 share their borders", "more than 32 elements", V::bug,
        "twice|duplicate|counted", sums({.sum = twice_in_overlap}), kAllTypes, V::structural},
       {"last_block_alone", 16, "blocks of 32 overwrite each other", "more than 32 elements", V::bug,
        "overwrit|block|lost|only the last", sums({.sum = last_block_alone}), kAllTypes, V::structural},
       {"atomics", 39, "atomics in any order, not declared", "full mantissas", V::structural, "repeats differ",
        sums({.sum = unordered})}},
      {{"pairwise", "pairwise", sums({.sum = pairwise})},
       {"reversed", "backwards", sums({.sum = backwards})},
       {"compensated", "Kahan", sums({.sum = compensated})},
       {"lanes", "32 lanes and a butterfly", sums({.sum = in_lanes})},
       {"vectors", "8 accumulators and a tail", sums({.sum = in_vectors})},
       {"split", "split in four", sums({.sum = split_in_four})},
       {"double", "in fp64, rounded once", sums({.sum = in_double})}});
  add(out, "mean",
      {{"padded_count", 5, "divides by the length rounded up to 32", "any", V::bug, "factor",
        means({Twist::padded_count})},
       {"n_minus_one", 5, "divides by N-1", "any", V::bug, "factor", means({Twist::n_minus_one})},
       {"gradient_without_n", 1, "dx = g", "any", V::bug, "factor", means({Twist::gradient_without_n})},
       {"total_in_fp16", 28, "the sum is stored in fp16 before the division", "large sums", V::precision_contract,
        "overflow|infinite|rounded|stored|keeps|takes", means({Twist::fp16_total}), kAllTypes, V::bug},
       {"in_bf16", 23, "accumulated in bf16", "any", V::precision_contract, "accumulates in bf16",
        means({.sum = in_bf16})},
       {"last_twice", 40, "the last element counts twice", "any", V::bug, "twice|duplicate",
        means({.sum = last_twice})},
       {"wrong_axis_if_square", 8, "a square tensor is reduced along the other axis", "N = D", V::bug, "axis|transpos",
        means({Twist::square_by_rows}), kAllTypes, V::structural},
       {"truncating", 29, "the accumulator truncates", "long sums", V::precision_contract, "truncat|bias",
        means({.sum = truncating}), kAllTypes, V::bug},
       {"race", 38, "a missing barrier: every third sum loses a term", "repeats", V::structural, "repeats differ",
        means({.sum = racing}), kAllTypes, V::bug}},
      {{"reciprocal", "times 1/N", means({Twist::reciprocal})},
       {"pairwise", "pairwise", means({.sum = pairwise})},
       {"blocked", "blocks of 32", means({.sum = in_blocks})},
       {"compensated", "Kahan", means({.sum = compensated})}});
  add(out, "mse_loss",
      {{"factor_missing", 1, "the gradient without its 2", "any", V::bug, "factor", mse({Twist::factor_missing})},
       {"target_like_x", 2, "dtarget with the sign of dx", "any", V::bug, "sign", mse({Twist::target_like_x})},
       {"dead_target", 46, "dtarget is all zero", "any", V::bug, "zero", mse({.slip = {Io::zero, "dtarget"}})},
       {"rows_not_elements", 42, "divides by rows, not by elements", "D other than 1", V::bug, "factor",
        mse({Twist::rows_not_elements})},
       {"in_bf16", 23, "squares accumulated in bf16", "any", V::precision_contract, "accumulates in bf16",
        mse({.sum = in_bf16})},
       {"cotangent_of_one", 10, "dloss is taken for 1", "cotangents other than 1", V::structural,
        "linear in the cotangent", mse({.slip = {Io::ones, "dloss"}}), kAllTypes, V::bug},
       {"last_block_lost", 11, "the last, partial block of 32 is left out", "counts that are no multiple of 32", V::bug,
        "tail|last full vector|zero", mse({.sum = without_tail_of_32}), kAllTypes, V::structural},
       {"dense_target", 19, "target is read as if row-major", "strided target", V::structural, "strided",
        mse({.slip = {Io::read_dense, "target"}})},
       {"total_in_fp16", 28, "the sum of squares is stored in fp16", "large sums", V::precision_contract,
        "overflow|infinite|rounded|stored|keeps|takes", mse({Twist::fp16_total}), kAllTypes, V::bug}},
      {{"pairwise", "pairwise", mse({.sum = pairwise})},
       {"fma", "fma chain", mse({.sum = fused})},
       {"split", "split in four", mse({.sum = split_in_four})},
       {"regrouped", "g (2/n d)", mse({Twist::halves})}});
  return out;
}

}  // namespace ampcheck::checks::zoo
