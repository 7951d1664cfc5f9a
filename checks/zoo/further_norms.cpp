// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
// layer_norm and rms_norm: factors, counts and rows that are not the ones in the paper.
#include <bit>
#include <cstdint>

#include "checks/zoo/kit.h"

namespace ampcheck::checks::zoo {

namespace {

using V = Verdict;

enum class Twist {
  none,
  // Statistics.
  eps_twice,
  inverse_of_12_bits,
  root_missing,
  squares_in_bf16,
  odd_element_lost,
  centred_too,
  mean_over_root,
  // y
  weight_of_row,
  mean_of_row_before,
  bias_scaled,
  // Gradients.
  dx_without_inverse,
  mean_g_not_divided,
  weight_twice,
  dot_without_weight,
  normal_added,
  dweight_without_first_row,
  dweight_without_inverse,
  dweight_of_absolute,
  stale_dot,
  dbias_of_dx,
};

struct Stats {
  float mean = 0, inverse = 0;
};

/// 1/sqrt as an instruction gives it that has 12 bits.
float short_root(float x) {
  const float exact = 1 / std::sqrt(x);
  if (!std::isfinite(exact)) return exact;
  return std::bit_cast<float>((std::bit_cast<std::uint32_t>(exact) + 0x800u) & ~0xfffu);
}

struct Norm {
  bool centred;
  Twist twist;

  const char* saved() const { return centred ? "inv_std" : "inv_rms"; }

  Stats stats(std::span<const float> x, float eps) const {
    const auto size = static_cast<float>(x.size());
    Stats out;
    if (centred || twist == Twist::centred_too) {
      for (const float v : x) out.mean += v;
      out.mean /= twist == Twist::mean_over_root ? std::sqrt(size) : size;
    }
    float squares = 0;
    const std::size_t seen = twist == Twist::odd_element_lost && x.size() > 1 ? x.size() / 2 * 2 : x.size();
    for (const float v : x.first(seen)) {
      const float d = v - out.mean;
      squares += twist == Twist::squares_in_bf16 ? bf16(d * d) : d * d;
    }
    const float inner = squares / size + (twist == Twist::eps_twice ? 2 * eps : eps);
    out.inverse = twist == Twist::inverse_of_12_bits ? short_root(inner)
                  : twist == Twist::root_missing     ? 1 / inner
                                                     : 1 / std::sqrt(inner);
    return out;
  }

  void forward(const Call& call) const {
    const Values x = call.in("x"), weight = call.has("weight") ? call.in("weight") : Values(),
                 bias = call.has("bias") ? call.in("bias") : Values();
    const std::int64_t n = call.columns("x"), rows = call.shape("x")[0];
    Values y, means, inverses;
    for (std::int64_t r = 0; r < rows; ++r) {
      const Stats s = stats(row_of(x, r, n), call.number("eps"));
      const float mean = twist == Twist::mean_of_row_before && r > 0 ? means.back() : s.mean;
      for (std::int64_t i = 0; i < n; ++i) {
        float v = (x[index_of(r * n + i)] - mean) * s.inverse;
        if (!weight.empty()) v *= weight[index_of(twist == Twist::weight_of_row ? r % n : i)];
        const float shift = bias.empty() ? 0.0f : bias[index_of(i)];
        y.push_back(bias.empty() ? v : v + (twist == Twist::bias_scaled ? shift * s.inverse : shift));
      }
      means.push_back(s.mean);
      inverses.push_back(s.inverse);
    }
    call.out("y", y);
    if (centred) call.out("mean", means);
    call.out(saved(), inverses);
  }

  /// dx of one row; `before` is mean(g n) of the row before and becomes that of this one.
  void row_gradient(std::span<const float> dy, std::span<const float> normal, const Values& weight, float inverse,
                    float& before, Values& dx) const {
    const auto n = static_cast<std::int64_t>(dy.size());
    const auto size = static_cast<float>(n);
    const auto g = [&](std::int64_t i) {
      const float w = weight.empty() ? 1.0f : weight[index_of(i)];
      return twist == Twist::weight_twice ? dy[index_of(i)] * w * w : dy[index_of(i)] * w;
    };
    const auto mean = [&](auto term) { return total(in_order, n, term) / size; };
    const float own = mean([&](std::int64_t i) {
      return Term{twist == Twist::dot_without_weight ? dy[index_of(i)] : g(i), normal[index_of(i)]};
    });
    float mean_g = mean([&](std::int64_t i) { return Term{g(i)}; });
    if (twist == Twist::mean_g_not_divided) mean_g *= size;
    float mean_gn = twist == Twist::stale_dot ? before : own;
    before = own;
    if (twist == Twist::normal_added) mean_gn = -mean_gn;
    for (std::int64_t i = 0; i < n; ++i) {
      const float v = (centred ? g(i) - mean_g : g(i)) - normal[index_of(i)] * mean_gn;
      dx.push_back(twist == Twist::dx_without_inverse ? v : inverse * v);
    }
  }

  void backward(const Call& call) const {
    const Values x = call.in("x"), dy = call.in("dy"), inverses = call.in(saved()),
                 weight = call.has("weight") ? call.in("weight") : Values();
    const std::int64_t n = call.columns("x"), rows = call.shape("x")[0];
    const Values means = centred ? call.in("mean") : Values(index_of(rows));
    Values dx, dweight(index_of(n)), dbias(index_of(n));
    float before = 0;
    for (std::int64_t r = 0; r < rows; ++r) {
      const float inverse = inverses[index_of(r)];
      Values normal;
      for (const float v : row_of(x, r, n)) normal.push_back((v - means[index_of(r)]) * inverse);
      row_gradient(row_of(dy, r, n), normal, weight, inverse, before, dx);
      for (std::int64_t i = 0; i < n; ++i) {
        const float g = dy[index_of(r * n + i)];
        dbias[index_of(i)] += twist == Twist::dbias_of_dx ? dx[index_of(r * n + i)] : g;
        if (twist == Twist::dweight_without_first_row && r == 0) continue;
        float v =
            twist == Twist::dweight_without_inverse ? x[index_of(r * n + i)] - means[index_of(r)] : normal[index_of(i)];
        if (twist == Twist::dweight_of_absolute) v = std::fabs(v);
        dweight[index_of(i)] += g * v;
      }
    }
    call.out("dx", dx);
    call.out("dweight", dweight);
    if (centred) call.out("dbias", dbias);
  }
};

Kernel layer(Twist twist) { return kernel_of_op(Norm{true, twist}); }
Kernel rms(Twist twist) { return kernel_of_op(Norm{false, twist}); }

}  // namespace

std::vector<Specimen> further_norm_specimens() {
  std::vector<Specimen> out;
  add(out, "layer_norm",
      {{"dx_without_inverse", 1, "dx = g - mean g - n mean(g n), without inv_std", "any", V::bug,
        "factor|inv_std|missing|without|inverse", layer(Twist::dx_without_inverse)},
       {"sum_for_mean_of_gradient", 42, "dx takes off sum g, where mean g is due", "D above 1", V::bug,
        "factor|count|mean|divid|sum|times", layer(Twist::mean_g_not_divided)},
       {"weight_twice_in_dx", 40, "dx of dy weight^2", "any weight", V::bug, "weight|factor|twice|square",
        layer(Twist::weight_twice)},
       {"eps_added_again", 40, "eps is added twice", "small variance or large eps", V::bug, "eps|twice|attribute",
        layer(Twist::eps_twice)},
       {"weight_of_row", 8, "row r is scaled by weight[r]", "any weight", V::bug,
        "weight|wrong axis|other axis|broadcast|another|transpos", layer(Twist::weight_of_row), kAllTypes,
        V::structural},
       {"mean_of_row_before", 17, "y takes off the mean of the row before", "more than one row", V::structural,
        "another row|row before|stale|rows are not independent|changes with other rows|shift",
        layer(Twist::mean_of_row_before), kAllTypes, V::bug},
       {"dweight_without_first_row", 14, "dweight begins at the second row", "any", V::bug,
        "first|lost|leaves out|left out|off by one|missing|without", layer(Twist::dweight_without_first_row)},
       {"mean_over_root", 42, "the mean is the sum over sqrt(D)", "D above 1", V::bug,
        "factor|count|mean|root|sqrt|another", layer(Twist::mean_over_root)},
       {"dbias_of_dx", 7, "dbias adds up dx, where dy is due", "any", V::bug,
        "another|other input|other output|dx|swap|cotangent", layer(Twist::dbias_of_dx)},
       {"bias_scaled", 1, "y = (n weight) + bias inv_std", "any bias", V::bug, "bias|factor|inv_std|scale",
        layer(Twist::bias_scaled)},
       {"root_of_12_bits", 29, "1/sqrt by an instruction of 12 bits, not refined", "any", V::precision_contract,
        "fast|approximat|root|rsqrt|keeps inv_std|inv_std is", layer(Twist::inverse_of_12_bits), kAllTypes, V::bug}},
      {});
  add(out, "rms_norm",
      {{"centred_too", 30, "the mean is taken off first, in y and in its squares, as layer_norm does", "any", V::bug,
        "mean|centred|another|term|layer_norm|variance", rms(Twist::centred_too)},
       {"dot_without_weight", 7, "mean(dy n), where mean(dy weight n) is due", "any weight", V::bug, "weight|factor",
        rms(Twist::dot_without_weight)},
       {"normal_added", 2, "dx = inv_rms (g + n mean(g n))", "any", V::bug, "sign|plus|added",
        rms(Twist::normal_added)},
       {"root_missing", 48, "x / (mean square + eps)", "any", V::bug, "root|sqrt|factor|power|square|another|inv_rms",
        rms(Twist::root_missing)},
       {"dweight_of_raw", 1, "dweight = sum dy x", "any", V::bug, "factor|inv_rms|normal|x for|missing|without",
        rms(Twist::dweight_without_inverse)},
       {"squares_in_bf16", 25, "squares are rounded to bf16 before they are added", "any", V::precision_contract,
        "keeps|rounded|stored", rms(Twist::squares_in_bf16), kAllTypes, V::bug},
       {"odd_element_lost", 13, "squares are read in pairs: the last of an odd row is lost", "odd D", V::bug,
        "tail|last|leaves out|left out|lost|off by one", rms(Twist::odd_element_lost), kAllTypes, V::structural},
       {"stale_dot", 17, "dx takes mean(g n) of the row before", "more than one row", V::structural,
        "another row|row before|stale|rows are not independent|changes with other rows|shift", rms(Twist::stale_dot),
        kAllTypes, V::bug},
       {"dweight_of_absolute", 2, "dweight = sum dy |n|", "any", V::bug, "absolute|sign|size",
        rms(Twist::dweight_of_absolute)}},
      {});
  return out;
}

}  // namespace ampcheck::checks::zoo
