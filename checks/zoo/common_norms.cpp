// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
// layer_norm and rms_norm of the zoo that were its unseen part once; rules have followed from them since.
#include "checks/zoo/kit.h"

namespace ampcheck::checks::zoo {

namespace {

using V = Verdict;

enum class Twist {
  none,
  // Correct.
  corrected,
  by_division,
  // Wrong.
  dbias_weighted,
  mean_before_weight,
  spread_about_first,
  statistics_in_fp16,
  norm_after_weight,
  dweight_of_output,
  eps_divided,
  first_warps,
};

struct Stats {
  float mean = 0, squares = 0, inverse = 0;
};

struct Norm {
  bool centred;
  Twist twist;

  const char* saved() const { return centred ? "inv_std" : "inv_rms"; }
  Values weight(const Call& call) const {
    return call.has("weight") ? call.in("weight") : Values(index_of(call.columns("x")), 1.0f);
  }

  Stats stats(std::span<const float> x, std::span<const float> weight, float eps) const {
    const auto n = static_cast<std::int64_t>(x.size());
    const auto size = static_cast<float>(n);
    const Sum sum = twist == Twist::statistics_in_fp16 ? in_fp16 : in_order;
    Stats s;
    if (centred) s.mean = total(sum, n, [&](std::int64_t i) { return Term{x[index_of(i)]}; }) / size;
    const float centre = twist == Twist::spread_about_first && n > 0 ? x[0] : s.mean;
    const std::int64_t used = twist == Twist::first_warps && n > 128 ? 128 : n;
    s.squares = total(in_order, used, [&](std::int64_t i) {
      float d = x[index_of(i)] - centre;
      if (twist == Twist::norm_after_weight) d *= weight[index_of(i)];
      return Term{d, d};
    });
    if (twist == Twist::corrected) {  // by what rounding left in the mean: Chan, Golub and LeVeque 1983
      const float left = total(in_order, n, [&](std::int64_t i) { return Term{x[index_of(i)] - s.mean}; });
      s.squares -= left * (left / size);
    }
    const float variance = twist == Twist::eps_divided ? (s.squares + eps) / size : s.squares / size + eps;
    s.inverse = 1 / std::sqrt(variance);
    return s;
  }

  void forward(const Call& call) const {
    const Values x = call.in("x"), w = weight(call), bias = call.has("bias") ? call.in("bias") : Values();
    const std::int64_t n = call.columns("x");
    Values y, means, inverses;
    for (std::int64_t r = 0; r < call.shape("x")[0]; ++r) {
      const Stats s = stats(row_of(x, r, n), w, call.number("eps"));
      const float rms = std::sqrt(s.squares / static_cast<float>(n) + call.number("eps"));
      for (std::int64_t i = 0; i < n; ++i) {
        const float d = x[index_of(r * n + i)] - s.mean;
        const float v = (twist == Twist::by_division ? d / rms : d * s.inverse) * w[index_of(i)];
        y.push_back(bias.empty() ? v : v + bias[index_of(i)]);
      }
      means.push_back(s.mean);
      inverses.push_back(s.inverse);
    }
    call.out("y", y);
    if (centred) call.out("mean", means);
    call.out(saved(), inverses);
  }

  void backward(const Call& call) const {
    const Values x = call.in("x"), dy = call.in("dy"), inverses = call.in(saved()), w = weight(call);
    const std::int64_t n = call.columns("x"), rows = call.shape("x")[0];
    const Values means = centred ? call.in("mean") : Values(index_of(rows));
    Values dx, dweight(index_of(n)), dbias(index_of(n));
    for (std::int64_t r = 0; r < rows; ++r) {
      const float inverse = inverses[index_of(r)];
      const auto normal = [&](std::int64_t i) { return (x[index_of(r * n + i)] - means[index_of(r)]) * inverse; };
      const auto g = [&](std::int64_t i) { return dy[index_of(r * n + i)] * w[index_of(i)]; };
      const auto mean_of = [&](auto term) { return total(in_order, n, term) / static_cast<float>(n); };
      const float mean_gn = mean_of([&](std::int64_t i) { return Term{g(i), normal(i)}; });
      float mean_g = mean_of([&](std::int64_t i) { return Term{g(i)}; });
      if (twist == Twist::mean_before_weight)
        mean_g = mean_of([&](std::int64_t i) { return Term{dy[index_of(r * n + i)]}; });
      for (std::int64_t i = 0; i < n; ++i) {
        dx.push_back(inverse * ((centred ? g(i) - mean_g : g(i)) - normal(i) * mean_gn));
        const float d = dy[index_of(r * n + i)];
        dweight[index_of(i)] += twist == Twist::dweight_of_output ? d * (normal(i) * w[index_of(i)]) : d * normal(i);
        dbias[index_of(i)] += twist == Twist::dbias_weighted ? g(i) : d;
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

std::vector<Specimen> common_norm_specimens() {
  std::vector<Specimen> out;
  add(out, "layer_norm",
      {{"dbias_weighted", 7, "dbias adds up dy weight, not dy", "any weight", V::bug, "weight|factor",
        layer(Twist::dbias_weighted)},
       {"mean_before_weight", 7, "the mean that dx subtracts is that of dy, not of dy weight", "any weight", V::bug,
        "weight|factor", layer(Twist::mean_before_weight)},
       {"spread_about_first", 31, "squares about the first number of the row, the shift not taken out again", "any",
        V::bug,
        "variance|about the first|first element|first number|term missing|missing term|without the term|another",
        layer(Twist::spread_about_first)},
       {"mean_in_fp16", 24, "the mean is added up in fp16", "any", V::precision_contract, "accumulates in fp16",
        layer(Twist::statistics_in_fp16)}},
      {{"corrected_two_pass", "the variance less the square of what rounding left in the mean",
        layer(Twist::corrected)}});
  add(out, "rms_norm",
      {{"norm_after_weight", 7, "the mean square of x weight, not of x", "any weight", V::bug, "weight|factor|another",
        rms(Twist::norm_after_weight)},
       {"dweight_of_output", 7, "dweight takes the output for the normalised input", "any weight", V::bug,
        "weight|factor|output", rms(Twist::dweight_of_output)},
       {"eps_divided", 6, "sqrt((sum x^2 + eps) / D)", "small x or large eps", V::bug, "eps", rms(Twist::eps_divided)},
       {"first_warps", 40, "the square sums of the first four warps of 32 alone", "rows above 128", V::bug,
        "tail|last full vector|block|lost|leaves out|left out|only the first|last term", rms(Twist::first_warps),
        kAllTypes, V::structural}},
      {{"by_division", "x / sqrt(mean square + eps)", rms(Twist::by_division)}});
  return out;
}

}  // namespace ampcheck::checks::zoo
