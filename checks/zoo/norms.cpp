// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
// layer_norm and rms_norm along the last axis. With n = (x - mean) inv_std and g = dy weight: dx = inv_std (g - mean g
// - n mean(g n)), dweight = sum dy n, dbias = sum dy; rms_norm is the same without mean and bias.
#include <algorithm>

#include "checks/zoo/kit.h"

namespace ampcheck::checks::zoo {

namespace {

enum class Twist {
  none,
  // How a correct kernel computes.
  welford,
  recomputed,
  cubic,
  reciprocal,
  // Wrong.
  unbiased,
  eps_missing,
  eps_outside,
  eps_missing_in_backward,
  one_pass,
  padded_count,
  squares_in_fp16,
  variance_about_stored_mean,
  mean_term_missing,
  normal_term_missing,
  weight_not_applied,
  stats_in_bf16,
  normal_from_stored,
  power_two,
  normal_in_storage,
  width_one,
  parameter_in_storage,
  no_weight_no_dx,
  gradient_of_n_minus_1,
  rounded_inverse,
};

struct Style {
  Twist twist = Twist::none;
  Sum sum = in_order;      ///< along rows
  Sum columns = in_order;  ///< of the parameter gradients, over rows
  Slip slip = {};
};

struct Stats {
  float mean = 0, inv = 0;
};

float variance_of(std::span<const float> x, float mean, const Style& style) {
  const auto n = static_cast<std::int64_t>(x.size());
  const auto size = static_cast<float>(n);
  const auto squares = [&](auto centred) {
    return total(style.sum, n, [&](std::int64_t i) {
      const float d = centred(x[index_of(i)]);
      return Term{d, d};
    });
  };
  switch (style.twist) {
    case Twist::one_pass: return squares([](float v) { return v; }) / size - mean * mean;
    case Twist::unbiased: return squares([&](float v) { return v - mean; }) / std::max(size - 1, 1.0f);
    case Twist::padded_count: return squares([&](float v) { return v - mean; }) / static_cast<float>((n + 7) / 8 * 8);
    case Twist::squares_in_fp16: {
      float s = 0;
      for (const float v : x) s += fp16((v - mean) * (v - mean));
      return s / size;
    }
    case Twist::variance_about_stored_mean: return squares([m = bf16(mean)](float v) { return v - m; }) / size;
    case Twist::welford: {  // Welford 1962
      float m = 0, m2 = 0;
      for (std::size_t i = 0; i < x.size(); ++i) {
        const float d = x[i] - m;
        m += d / static_cast<float>(i + 1);
        m2 += d * (x[i] - m);
      }
      return m2 / size;
    }
    default: return squares([&](float v) { return v - mean; }) / size;
  }
}

float mean_of(std::span<const float> x, const Style& style) {
  const auto n = static_cast<std::int64_t>(x.size());
  if (style.twist == Twist::welford) {
    float m = 0;
    for (std::size_t i = 0; i < x.size(); ++i) m += (x[i] - m) / static_cast<float>(i + 1);
    return x.empty() ? NAN : m;
  }
  const float sum = total(style.sum, n, [&](std::int64_t i) { return Term{x[index_of(i)]}; });
  if (style.twist == Twist::padded_count) return sum / static_cast<float>((n + 7) / 8 * 8);
  return style.twist == Twist::reciprocal ? sum * (1 / static_cast<float>(n)) : sum / static_cast<float>(n);
}

Stats stats_of(std::span<const float> x, const Style& style, bool centred, float eps) {
  Stats stats{centred ? mean_of(x, style) : 0.0f, 0};
  const float variance = variance_of(x, stats.mean, style);
  if (style.twist == Twist::eps_missing) eps = 0;
  stats.inv = style.twist == Twist::eps_outside ? 1 / (std::sqrt(variance) + eps) : 1 / std::sqrt(variance + eps);
  if (style.twist == Twist::rounded_inverse) stats.inv = bf16(stats.inv);
  return stats;
}

Values parameter(const Call& call, const char* name, const Style& style) {
  if (!call.has(name)) return {};
  Values values = call.in(name);
  if (style.twist == Twist::parameter_in_storage)
    for (float& v : values) v = rounded(call.dtype("x"), v);
  return values;
}

/// The two ops differ in the centring, in the names of what they save, and in the bias.
struct Norm {
  bool centred;
  const char* saved_inv;

  void forward(const Call& call, const Style& style) const {
    const Values x = call.in("x");
    const std::int64_t rows = call.shape("x").rank == 0 ? 0 : call.shape("x")[0], n = call.columns("x");
    const Values weight = parameter(call, "weight", style), bias = parameter(call, "bias", style);
    Values y(x.size()), means, invs;
    for (std::int64_t r = 0; r < rows; ++r) {
      const Stats stats = stats_of(row_of(x, r, n), style, centred, call.number("eps"));
      for (std::int64_t i = 0; i < n; ++i) {
        const std::size_t at = index_of(r * n + i);
        float normal = (centred ? x[at] - stats.mean : x[at]) * stats.inv;
        if (style.twist == Twist::normal_in_storage) normal = rounded(call.dtype("x"), normal);
        if (!weight.empty()) normal *= weight[index_of(i)];
        y[at] = bias.empty() ? normal : normal + bias[index_of(i)];
      }
      means.push_back(style.twist == Twist::stats_in_bf16 ? bf16(stats.mean) : stats.mean);
      invs.push_back(style.twist == Twist::stats_in_bf16 ? bf16(stats.inv) : stats.inv);
    }
    call.out("y", y);
    if (centred) call.out("mean", means);
    call.out(saved_inv, invs);
  }

  void backward(const Call& call, const Style& style) const {
    const Values x = call.in("x"), dy = call.in("dy"), invs = call.in(saved_inv),
                 means = centred ? call.in("mean") : Values(invs.size());
    const std::int64_t rows = static_cast<std::int64_t>(invs.size()), n = call.columns("x");
    const Values weight = parameter(call, "weight", style);
    Values dx(x.size()), normal(x.size());
    for (std::int64_t r = 0; r < rows; ++r) {
      Stats stats{means[index_of(r)], invs[index_of(r)]};
      if (style.twist == Twist::recomputed) stats = stats_of(row_of(x, r, n), style, centred, call.number("eps"));
      if (style.twist == Twist::eps_missing_in_backward) stats.inv = stats_of(row_of(x, r, n), style, centred, 0).inv;
      for (std::int64_t i = r * n; i < (r + 1) * n; ++i) {
        float v = (centred ? x[index_of(i)] - stats.mean : x[index_of(i)]) * stats.inv;
        if (style.twist == Twist::normal_from_stored) v = rounded(call.dtype("x"), v);
        normal[index_of(i)] = v;
      }
      row_gradient(r, n, stats, weight, x, dy, normal, style, dx);
    }
    if (style.twist != Twist::no_weight_no_dx || !weight.empty()) call.out("dx", dx);
    const auto over_rows = [&](auto term) {
      Values out(index_of(n));
      for (std::int64_t i = 0; i < n; ++i)
        out[index_of(i)] = total(style.columns, rows, [&](std::int64_t r) { return term(index_of(r * n + i)); });
      return out;
    };
    call.out("dweight", over_rows([&](std::size_t at) { return Term{dy[at], normal[at]}; }));
    call.out("dbias", over_rows([&](std::size_t at) { return Term{dy[at]}; }));
  }

  void row_gradient(std::int64_t r, std::int64_t n, Stats stats, const Values& weight, const Values& x,
                    const Values& dy, const Values& normal, const Style& style, Values& dx) const {
    const auto g = [&](std::int64_t i) {
      const float v = dy[index_of(r * n + i)];
      return weight.empty() || style.twist == Twist::weight_not_applied ? v : v * weight[index_of(i)];
    };
    const auto nn = [&](std::int64_t i) { return normal[index_of(r * n + i)]; };
    const float size =
        style.twist == Twist::gradient_of_n_minus_1 ? std::max(1.0f, static_cast<float>(n - 1)) : static_cast<float>(n);
    const float mean_g = style.twist == Twist::mean_term_missing || !centred
                             ? 0.0f
                             : total(style.sum, n, [&](std::int64_t i) { return Term{g(i)}; }) / size;
    const float mean_gn = style.twist == Twist::normal_term_missing ? 0.0f : total(style.sum, n, [&](std::int64_t i) {
                                                                               return Term{g(i), nn(i)};
                                                                             }) / size;
    const bool with_x = style.twist == Twist::cubic || style.twist == Twist::power_two;
    const float mean_gx = with_x ? total(style.sum, n,
                                         [&](std::int64_t i) {
                                           return Term{g(i), x[index_of(r * n + i)]};
                                         }) /
                                       size
                                 : 0.0f;
    for (std::int64_t i = 0; i < n; ++i) {
      float v = stats.inv * ((centred ? g(i) - mean_g : g(i)) - nn(i) * mean_gn);
      if (style.twist == Twist::cubic)
        v = stats.inv * g(i) - x[index_of(r * n + i)] * (stats.inv * stats.inv * stats.inv * mean_gx);
      if (style.twist == Twist::power_two)
        v = stats.inv * g(i) - x[index_of(r * n + i)] * (stats.inv * stats.inv * mean_gx);
      if (style.twist == Twist::width_one && n == 1) v = stats.inv * g(i);
      dx[index_of(r * n + i)] = v;
    }
  }
};

Kernel norm(Norm op, Style style) {
  return kernel_of([op, style](const Call& call) { op.forward(call, style); },
                   [op, style](const Call& call) { op.backward(call, style); }, style.slip);
}
Kernel layer(Style style) { return norm({true, "inv_std"}, std::move(style)); }
Kernel rms(Style style) { return norm({false, "inv_rms"}, std::move(style)); }

using V = Verdict;

}  // namespace

std::vector<Specimen> norm_specimens() {
  std::vector<Specimen> out;
  add(out, "layer_norm",
      {{"mean_term_missing", 4, "dx without - mean g", "any", V::bug, "term missing|missing term|mean|without the term",
        layer({Twist::mean_term_missing})},
       {"normal_term_missing", 4, "dx without - n mean(g n)", "any", V::bug,
        "term missing|missing term|proportional|without the term", layer({Twist::normal_term_missing})},
       {"unbiased", 5, "variance over N-1", "any", V::bug, "factor|N-1|count", layer({Twist::unbiased})},
       {"gradient_of_n_minus_1", 5, "the means of backward divide by N-1", "any", V::bug, "factor|N-1|count",
        layer({Twist::gradient_of_n_minus_1})},
       {"eps_missing", 6, "1/sqrt(variance)", "small variance or large eps", V::bug, "eps", layer({Twist::eps_missing}),
        kAllTypes, V::range_declared},
       {"eps_outside", 6, "1/(sqrt(variance) + eps)", "small variance or large eps", V::bug, "eps",
        layer({Twist::eps_outside})},
       {"one_pass_variance", 31, "E[x^2] - mean^2", "mean much larger than the spread", V::bug,
        "variance|cancel|one pass", layer({Twist::one_pass}), kAllTypes, V::precision_contract},
       {"weight_not_applied", 7, "dx from dy, not from dy weight", "any weight", V::bug, "weight|factor",
        layer({Twist::weight_not_applied})},
       {"stats_in_bf16", 27, "mean and inv_std saved in bf16", "any", V::precision_contract,
        "saved|stored|rounded|keeps|takes", layer({Twist::stats_in_bf16})},
       {"normal_from_stored", 27, "backward takes n rounded to the storage type", "any", V::precision_contract,
        "stored|saved|rounded|keeps|takes", layer({Twist::normal_from_stored}), kHalfTypes},
       {"dweight_in_bf16", 23, "parameter gradients accumulated in bf16", "many rows", V::precision_contract,
        "accumulates in bf16", layer({.columns = in_bf16})},
       {"dweight_in_storage_blocks", 23, "row blocks of parameter gradients added up in a bf16 buffer",
        "more than 32 rows", V::precision_contract, "accumulates in bf16", layer({.columns = blocks_in_storage_bf16})},
       {"dweight_drops_block", 11, "parameter gradients leave out the last, partial block of 32 rows",
        "rows no multiple of 32", V::bug, "tail|last full vector|zero", layer({.columns = without_tail_of_32}),
        kAllTypes, V::structural},
       {"dweight_last_block", 16, "row blocks overwrite each other's parameter gradients", "more than 32 rows", V::bug,
        "overwrit|block|lost|only the last", layer({.columns = last_block_alone}), kAllTypes, V::structural},
       {"row_counted_twice", 40, "the last row counts twice in parameter gradients", "any", V::bug, "twice|duplicate",
        layer({.columns = last_twice})},
       {"no_weight_no_dx", 41, "without weight, dx is not written", "weight absent", V::structural,
        "output buffer held|unwritten", layer({Twist::no_weight_no_dx}), kAllTypes, V::bug},
       {"parameters_in_storage", 43, "fp32 parameters are rounded to the storage type of x",
        "fp32 parameters beside 16-bit data", V::precision_contract, "rounded|stored|keeps|takes",
        layer({Twist::parameter_in_storage}), kHalfTypes, V::bug},
       {"width_one", 47, "dx of rows of one element is not zero", "D = 1", V::bug, "zero|does not depend",
        layer({Twist::width_one}), kAllTypes, V::structural},
       {"dense_cotangent", 18, "dy is read as if row-major", "strided dy", V::structural, "strided",
        layer({.slip = {Io::read_dense, "dy"}})},
       {"grid_of_16_bits", 12, "elements beyond 65535 of y are not written", "large tensors", V::structural,
        "output buffer held|unwritten", layer({.slip = {Io::drop_beyond_16_bits, "y"}}), kFp32},
       {"padded_count", 13, "means divide by the width rounded up to 8", "rows that are no multiple of 8", V::bug,
        "factor|count", layer({Twist::padded_count}), kAllTypes, V::structural},
       {"variance_about_bf16_mean", 25, "the mean is rounded to bf16 before it is subtracted in the variance",
        "mean away from zero", V::precision_contract, "rounded|stored|partial|keeps|takes",
        layer({Twist::variance_about_stored_mean}), kAllTypes, V::bug}},
      {{"pairwise", "pairwise sums", layer({.sum = pairwise, .columns = pairwise})},
       {"reversed", "sums run backwards", layer({.sum = backwards, .columns = backwards})},
       {"blocked", "sums in blocks of 32", layer({.sum = in_blocks, .columns = in_blocks})},
       {"compensated", "Kahan sums", layer({.sum = compensated, .columns = compensated})},
       {"welford", "one pass by Welford", layer({Twist::welford}), "one pass"},
       {"recomputed", "backward computes its own statistics", layer({Twist::recomputed})},
       {"reciprocal", "mean by multiplication with 1/N", layer({Twist::reciprocal})},
       {"fma", "fma chains", layer({.sum = fused, .columns = fused})},
       {"split", "row sums and parameter gradients in four fp32 parts",
        layer({.sum = split_in_four, .columns = split_in_four})}});
  add(out, "rms_norm",
      {{"normal_term_missing", 4, "dx without - n mean(g n)", "any", V::bug,
        "term missing|missing term|proportional|without the term", rms({Twist::normal_term_missing})},
       {"eps_outside", 6, "1/(sqrt(mean x^2) + eps)", "small x or large eps", V::bug, "eps", rms({Twist::eps_outside})},
       {"eps_missing_in_backward", 6, "eps guards the value, not the gradient", "small x or large eps", V::bug, "eps",
        rms({Twist::eps_missing_in_backward}), kAllTypes, V::range_declared},
       {"inv_rms_squared", 1, "dx has inv_rms^2 where inv_rms^3 is due", "any", V::bug, "factor|inv_rms",
        rms({Twist::power_two})},
       {"normal_in_storage", 25, "n is rounded to the storage type before the weight", "any", V::precision_contract,
        "rounded|stored|keeps|takes", rms({Twist::normal_in_storage}), kHalfTypes, V::bug},
       {"squares_in_fp16", 28, "squares computed in fp16", "x above 256 or below 2^-8", V::bug,
        "overflow|underflow|infinite|accumulates in fp16|zero|keeps square(x) in fp16", rms({Twist::squares_in_fp16}),
        kAllTypes, V::precision_contract},
       {"inverse_in_bf16", 27, "inv_rms is rounded to bf16", "any", V::precision_contract,
        "rounded|stored|partial|keeps|takes", rms({Twist::rounded_inverse}), kAllTypes, V::bug},
       {"dweight_drops_block", 11, "dweight leaves out the last, partial block of 32 rows", "rows no multiple of 32",
        V::bug, "tail|last full vector|zero", rms({.columns = without_tail_of_32}), kAllTypes, V::structural},
       {"dweight_split_in_bf16", 23, "partial sums of dweight are stored in bf16", "many rows", V::precision_contract,
        "rounded|stored|partial|keeps|takes", rms({.columns = split_in_bf16})},
       {"dx_truncated", 29, "dx is stored toward zero instead of to nearest", "any", V::precision_contract,
        "truncat|toward zero", rms({.slip = {Io::truncate, "dx"}}), kHalfTypes, V::bug},
       {"clobbers_cotangent", 21, "backward writes into dy", "any", V::structural, "changes its inputs",
        rms({.slip = {Io::clobber, "dy"}})},
       {"padded_count", 13, "the mean divides by the width rounded up to 8", "rows that are no multiple of 8", V::bug,
        "factor|count", rms({Twist::padded_count}), kAllTypes, V::structural},
       {"dense_x", 19, "x is read as if row-major", "strided x", V::structural, "strided",
        rms({.slip = {Io::read_dense, "x"}})},
       {"no_weight_no_dx", 41, "without weight, dx is not written", "weight absent", V::structural,
        "output buffer held|unwritten", rms({Twist::no_weight_no_dx}), kAllTypes, V::bug},
       {"unwritten_saved", 15, "the last inv_rms is not written", "any", V::structural, "output buffer held|unwritten",
        rms({.slip = {Io::drop_last, "inv_rms"}}), kAllTypes, V::bug},
       {"throws_on_empty", 45, "an empty tensor is an invalid launch", "no rows", V::crash, "threw or crashed",
        rms({.slip = {Io::throw_on_empty, "x"}})}},
      {{"pairwise", "pairwise sums", rms({.sum = pairwise, .columns = pairwise})},
       {"cubic", "dx = inv g - x inv^3 mean(g x)", rms({Twist::cubic}), "inv_rms g - x inv_rms^3 mean(g x)"},
       {"recomputed", "backward computes its own inv_rms", rms({Twist::recomputed})},
       {"lanes", "32 lanes and a butterfly", rms({.sum = in_lanes, .columns = in_lanes})},
       {"double_sums", "sums in fp64, rounded once", rms({.sum = in_double, .columns = in_double})}});
  return out;
}

}  // namespace ampcheck::checks::zoo
