// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
// Kernels along rows that were written when the rules stood, and looked at later.
#include <algorithm>
#include <numeric>

#include "checks/zoo/kit.h"

namespace ampcheck::checks::zoo {

namespace {

using V = Verdict;

// ---- softmax and log_softmax ----

enum class Shift { own, of_pair, mean };

struct Exponents {
  Shift shift = Shift::own;
  std::int64_t padded_to = 1;  ///< the row is padded with zeros to a multiple of that
  bool in_double = false;
  bool logarithm = false;
};

/// One row of a softmax: exponentials of x - shift, and their sum.
struct ExpRow {
  std::vector<double> e;  // floats, unless the row is computed in double
  double shift = 0, total = 0;

  ExpRow(const Values& x, std::int64_t r, std::int64_t n, std::int64_t rows, const Exponents& how) {
    const std::span<const float> row = row_of(x, r, n);
    float chosen = largest(row);
    if (how.shift == Shift::of_pair && (r ^ 1) < rows) chosen = std::fmax(chosen, largest(row_of(x, r ^ 1, n)));
    if (how.shift == Shift::mean) chosen = std::accumulate(row.begin(), row.end(), 0.0f) / static_cast<float>(n);
    shift = static_cast<double>(chosen);
    for (const float v : row)
      e.push_back(how.in_double ? std::exp(static_cast<double>(v) - shift) : static_cast<double>(std::exp(v - chosen)));
    float single = 0;
    for (const double v : e) {
      total += v;
      single += static_cast<float>(v);
    }
    for (std::int64_t i = n; i % how.padded_to != 0; ++i) single += std::exp(-chosen);
    if (!how.in_double) total = static_cast<double>(single);
  }
};

Kernel softmax(Exponents how) {
  const auto rounds = [how](double v) { return how.in_double ? v : static_cast<double>(static_cast<float>(v)); };
  const auto forward = [=](const Call& call) {
    const Values x = call.in("x");
    const std::int64_t n = call.columns("x"), rows = call.rows("x");
    Values y;
    for (std::int64_t r = 0; r < rows; ++r) {
      const ExpRow row(x, r, n, rows, how);
      const double log_total = rounds(std::log(row.total));
      for (std::int64_t i = 0; i < n; ++i)
        y.push_back(static_cast<float>(how.logarithm
                                           ? rounds(static_cast<double>(x[index_of(r * n + i)]) - row.shift) - log_total
                                           : row.e[index_of(i)] / row.total));
    }
    call.out("y", y);
  };
  const auto backward = [=](const Call& call) {
    const Values x = call.in("x"), g = call.in("dy");
    const std::int64_t n = call.columns("x"), rows = call.rows("x");
    Values dx;
    for (std::int64_t r = 0; r < rows; ++r) {
      const ExpRow row(x, r, n, rows, how);
      const auto y = [&](std::int64_t i) { return rounds(row.e[index_of(i)] / row.total); };
      const auto of_g = [&](std::int64_t i) { return static_cast<double>(g[index_of(r * n + i)]); };
      double inner = 0;
      for (std::int64_t i = 0; i < n; ++i) inner = rounds(inner + rounds(how.logarithm ? of_g(i) : of_g(i) * y(i)));
      for (std::int64_t i = 0; i < n; ++i)
        dx.push_back(
            static_cast<float>(how.logarithm ? of_g(i) - rounds(y(i) * inner) : y(i) * rounds(of_g(i) - inner)));
    }
    call.out("dx", dx);
  };
  return kernel_of(forward, backward);
}

void add_exponentials(std::vector<Specimen>& out) {
  add(out, "softmax",
      {{"maximum_of_pair", 17, "two rows share one maximum", "rows of different size", V::structural,
        "rows are not independent|changes with other rows|underflow|0/0|maximum|another row",
        softmax({.shift = Shift::of_pair}), kAllTypes, V::bug},
       {"padded_with_zeros", 44, "rows are padded with zeros to a multiple of 8", "D no multiple of 8", V::bug,
        "padding|border|zero|tail|term|count", softmax({.padded_to = 8}), kAllTypes, V::structural}},
      {{"all_in_double", "in fp64, rounded once", softmax({.in_double = true})}});
  add(out, "log_softmax",
      {{"shift_by_mean", 28, "the mean is subtracted in place of the maximum", "a logit 88 above the mean", V::bug,
        "overflow|infinite|leaves the range", softmax({.shift = Shift::mean, .logarithm = true}), kAllTypes,
        V::range_declared}},
      {{"all_in_double", "in fp64, rounded once", softmax({.in_double = true, .logarithm = true})}});
}

// ---- cross_entropy ----

/// In double throughout; `ahead`: the target of the row that many further on.
Kernel cross_entropy(std::int64_t ahead) {
  struct Row {
    double lse, certain, uniform;
    std::int64_t target;
    bool ignored;
  };
  const auto rows_of = [ahead](const Call& call) {
    const Values x = call.in("x");
    const auto target = call.whole("target");
    const std::int64_t classes = call.columns("x");
    const double smoothing = static_cast<double>(call.number("label_smoothing"));
    std::vector<Row> rows;
    for (std::size_t r = 0; r < target.size(); ++r) {
      const std::span<const float> logits = row_of(x, static_cast<std::int64_t>(r), classes);
      const auto shift = static_cast<double>(largest(logits));
      double total = 0;
      for (const float v : logits) total += std::exp(static_cast<double>(v) - shift);
      const std::size_t at = r + index_of(ahead) < target.size() ? r + index_of(ahead) : r;
      rows.push_back({shift + std::log(total), 1 - smoothing, smoothing / static_cast<double>(classes), target[at],
                      target[at] == call.integer("ignore_index")});
    }
    return rows;
  };
  const auto forward = [=](const Call& call) {
    const Values x = call.in("x");
    const std::int64_t classes = call.columns("x");
    Values loss;
    for (const Row& row : rows_of(call)) {
      const auto r = static_cast<std::int64_t>(loss.size());
      double out = 0;
      if (!row.ignored) {
        for (const float v : row_of(x, r, classes))
          if (row.uniform != 0) out += row.uniform * (row.lse - static_cast<double>(v));
        out += row.certain * (row.lse - static_cast<double>(x[index_of(r * classes + row.target)]));
      }
      loss.push_back(static_cast<float>(out));
    }
    call.out("loss", loss);
  };
  const auto backward = [=](const Call& call) {
    const Values x = call.in("x"), g = call.in("dloss");
    const std::int64_t classes = call.columns("x");
    Values dx(x.size());
    std::int64_t r = 0;
    for (const Row& row : rows_of(call)) {
      for (std::int64_t i = 0; i < classes && !row.ignored; ++i) {
        const double q = row.uniform + (i == row.target ? row.certain : 0.0);
        dx[index_of(r * classes + i)] =
            static_cast<float>(static_cast<double>(g[index_of(r)]) *
                               (std::exp(static_cast<double>(x[index_of(r * classes + i)]) - row.lse) - q));
      }
      ++r;
    }
    call.out("dx", dx);
  };
  return kernel_of(forward, backward);
}

// ---- layer_norm and rms_norm ----

enum class NormTwist { none, one_plus_weight, bias_first, eps_as_floor, mean_of_sizes, merged, scaled };

struct Moments {
  float mean = 0, squares = 0;  ///< the mean, and the sum of squares about it
};

/// Four parts and their moments, merged: Chan, Golub and LeVeque 1979.
Moments merged(std::span<const float> x) {
  Moments all;
  float count = 0;
  const std::size_t part = std::max<std::size_t>(1, (x.size() + 3) / 4);
  for (std::size_t begin = 0; begin < x.size(); begin += part) {
    const std::span<const float> own = x.subspan(begin, std::min(part, x.size() - begin));
    const auto size = static_cast<float>(own.size());
    Moments m{std::accumulate(own.begin(), own.end(), 0.0f) / size, 0};
    for (const float v : own) m.squares += (v - m.mean) * (v - m.mean);
    const float apart = m.mean - all.mean, both = count + size;
    all.squares += m.squares + (count == 0 ? 0.0f : apart * apart * (count * size / both));
    all.mean = count == 0 ? m.mean : all.mean + apart * (size / both);
    count = both;
  }
  return all;
}

/// The sum of squares of numbers scaled by a power of two, so that none overflows on the way.
float mean_square_scaled(std::span<const float> x, int& exponent) {
  float most = 0;
  for (const float v : x) most = std::fmax(most, std::fabs(v));
  exponent = most == 0 || !std::isfinite(most) ? 0 : std::ilogb(most);
  float s = 0;
  for (const float v : x) s += std::ldexp(v, -exponent) * std::ldexp(v, -exponent);
  return s / static_cast<float>(x.size());
}

Moments moments_of(std::span<const float> x, bool centred, NormTwist twist, float eps, float& inverse) {
  const auto n = static_cast<float>(x.size());
  Moments m;
  if (twist == NormTwist::merged)
    m = merged(x);
  else {
    if (centred) m.mean = std::accumulate(x.begin(), x.end(), 0.0f) / n;
    for (const float v : x) m.squares += (v - m.mean) * (v - m.mean);
  }
  inverse = 1 / std::sqrt(m.squares / n + eps);
  if (twist == NormTwist::eps_as_floor) inverse = 1 / std::sqrt(std::fmax(m.squares / n, eps));
  if (twist == NormTwist::mean_of_sizes) {
    float sizes = 0;
    for (const float v : x) sizes += std::fabs(v);
    inverse = 1 / (sizes / n + eps);
  }
  if (twist == NormTwist::scaled) {
    int exponent = 0;
    const float mean = mean_square_scaled(x, exponent);
    if (exponent > 50) inverse = std::ldexp(1 / std::sqrt(mean), -exponent);  // eps is below the last bit there
  }
  return m;
}

Kernel norm(bool centred, NormTwist twist) {
  const char* const saved = centred ? "inv_std" : "inv_rms";
  const auto weight_of = [twist](const Call& call, std::int64_t n) {
    Values weight = call.has("weight") ? call.in("weight") : Values(index_of(n), 1.0f);
    if (twist == NormTwist::one_plus_weight && call.has("weight"))
      for (float& w : weight) w += 1;
    return weight;
  };
  const auto forward = [=](const Call& call) {
    const Values x = call.in("x");
    const std::int64_t n = call.columns("x"), rows = call.shape("x")[0];
    const Values weight = weight_of(call, n), bias = call.has("bias") ? call.in("bias") : Values();
    Values y, means, inverses;
    for (std::int64_t r = 0; r < rows; ++r) {
      float inverse = 0;
      const Moments m = moments_of(row_of(x, r, n), centred, twist, call.number("eps"), inverse);
      for (std::int64_t i = 0; i < n; ++i) {
        float v = (x[index_of(r * n + i)] - m.mean) * inverse;
        if (twist == NormTwist::bias_first && !bias.empty()) v += bias[index_of(i)];
        v *= weight[index_of(i)];
        if (twist != NormTwist::bias_first && !bias.empty()) v += bias[index_of(i)];
        y.push_back(v);
      }
      means.push_back(m.mean);
      inverses.push_back(inverse);
    }
    call.out("y", y);
    if (centred) call.out("mean", means);
    call.out(saved, inverses);
  };
  const auto backward = [=](const Call& call) {
    const Values x = call.in("x"), dy = call.in("dy"), inverses = call.in(saved);
    const std::int64_t n = call.columns("x"), rows = call.shape("x")[0];
    const Values weight = weight_of(call, n), means = centred ? call.in("mean") : Values(index_of(rows));
    Values dx(x.size()), dweight(index_of(n)), dbias(index_of(n));
    for (std::int64_t r = 0; r < rows; ++r) {
      const auto normal = [&](std::int64_t i) {
        return (x[index_of(r * n + i)] - means[index_of(r)]) * inverses[index_of(r)];
      };
      const auto g = [&](std::int64_t i) { return dy[index_of(r * n + i)] * weight[index_of(i)]; };
      const auto size = static_cast<float>(n);
      const float mean_g = centred ? total(in_order, n, [&](std::int64_t i) { return Term{g(i)}; }) / size : 0.0f;
      const float mean_gn = total(in_order, n, [&](std::int64_t i) { return Term{g(i), normal(i)}; }) / size;
      for (std::int64_t i = 0; i < n; ++i) {
        const std::size_t at = index_of(r * n + i);
        dx[at] = centred ? inverses[index_of(r)] * (g(i) - mean_g - normal(i) * mean_gn)
                         : inverses[index_of(r)] * (g(i) - normal(i) * mean_gn);
        dweight[index_of(i)] += dy[at] * normal(i);
        dbias[index_of(i)] += dy[at];
      }
    }
    call.out("dx", dx);
    call.out("dweight", dweight);
    if (centred) call.out("dbias", dbias);
  };
  return kernel_of(forward, backward);
}

void add_norms(std::vector<Specimen>& out) {
  add(out, "layer_norm",
      {{"one_plus_weight", 7, "scales by 1 + weight", "any weight", V::bug, "weight|factor|term|added|+ 1|1 +",
        norm(true, NormTwist::one_plus_weight)},
       {"bias_before_weight", 7, "(n + bias) weight", "weight and bias", V::bug, "bias|weight|factor",
        norm(true, NormTwist::bias_first)}},
      {{"merged_moments", "moments of four parts, merged", norm(true, NormTwist::merged)}});
  add(out, "rms_norm",
      {{"eps_as_floor", 6, "1/sqrt(max(mean square, eps))", "small x or large eps", V::bug, "eps",
        norm(false, NormTwist::eps_as_floor), kAllTypes, V::range_declared},
       {"mean_of_sizes", 4, "x / mean |x|", "any", V::bug, "another|square|absolute|factor|mean",
        norm(false, NormTwist::mean_of_sizes)}},
      {{"scaled_squares", "squares of large numbers are scaled by a power of two", norm(false, NormTwist::scaled)}});
}

}  // namespace

std::vector<Specimen> further_row_specimens() {
  std::vector<Specimen> out;
  add_exponentials(out);
  add(out, "cross_entropy",
      {{"next_target", 34, "the target of the next row, as of shifted labels", "more than one row", V::bug,
        "another row|shift|index|target|rows are not independent", cross_entropy(1), kAllTypes, V::structural}},
      {{"all_in_double", "in fp64, rounded once", cross_entropy(0)}});
  add_norms(out);
  return out;
}

}  // namespace ampcheck::checks::zoo
