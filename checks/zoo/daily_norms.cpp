// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
// layer_norm and rms_norm as they go wrong in daily work: moments merged by hand, what is saved, what backward reads.
#include <algorithm>
#include <numeric>

#include "checks/zoo/kit.h"

namespace ampcheck::checks::zoo {

namespace {

using V = Verdict;

enum class Twist {
  // layer_norm
  bias_twice,
  variance_about_zero,
  normal_is_output,
  weight_of_128,
  saved_without_root,
  welford_by_old_mean,
  merged_as_equals,
  merged_without_distance,
  residual_added,
  // rms_norm
  dweight_by_first_inverse,
  fixed_eps,
  in_heads_of_128,
  dweight_over_rows,
};

struct Moments {
  float mean = 0, variance = 0;
};

Moments moments_of(std::span<const float> x) {
  const auto n = static_cast<float>(x.size());
  Moments m{std::accumulate(x.begin(), x.end(), 0.0f) / n, 0};
  for (const float v : x) m.variance += (v - m.mean) * (v - m.mean);
  m.variance /= n;
  return m;
}

/// Welford 1962, but for the second distance, which is the one to the old mean too.
Moments by_old_mean(std::span<const float> x) {
  Moments m;
  float count = 0, squares = 0;
  for (const float v : x) {
    const float apart = v - m.mean;
    m.mean += apart / ++count;
    squares += apart * apart;
  }
  m.variance = squares / count;
  return m;
}

/// Moments of four parts, merged: all parts counting alike, or without the distances of their means.
Moments merged(std::span<const float> x, bool alike) {
  const std::size_t size = std::max<std::size_t>(1, (x.size() + 3) / 4);
  std::vector<Moments> parts;
  Values counts;
  for (std::size_t begin = 0; begin < x.size(); begin += size) {
    const auto own = x.subspan(begin, std::min(size, x.size() - begin));
    parts.push_back(moments_of(own));
    counts.push_back(alike ? 1.0f : static_cast<float>(own.size()));
  }
  const float all = std::accumulate(counts.begin(), counts.end(), 0.0f);
  Moments m;
  for (std::size_t k = 0; k < parts.size(); ++k) m.mean += parts[k].mean * (counts[k] / all);
  for (std::size_t k = 0; k < parts.size(); ++k) {
    const float apart = alike ? parts[k].mean - m.mean : 0.0f;
    m.variance += (parts[k].variance + apart * apart) * (counts[k] / all);
  }
  return m;
}

Moments row_moments(std::span<const float> x, Twist twist) {
  if (twist == Twist::welford_by_old_mean) return by_old_mean(x);
  if (twist == Twist::merged_as_equals) return merged(x, true);
  if (twist == Twist::merged_without_distance) return merged(x, false);
  Moments m = moments_of(x);
  if (twist == Twist::variance_about_zero)
    m.variance = std::inner_product(x.begin(), x.end(), x.begin(), 0.0f) / static_cast<float>(x.size());
  return m;
}

Values weight_of(const Call& call, Twist twist) {
  const std::int64_t n = call.columns("x");
  const Values given = call.has("weight") ? call.in("weight") : Values(index_of(n), 1.0f);
  Values weight = given;
  for (std::size_t i = 0; i < weight.size() && twist == Twist::weight_of_128; ++i) weight[i] = given[i % 128];
  return weight;
}

Kernel layer_norm(Twist twist) {
  const auto forward = [=](const Call& call) {
    const Values x = call.in("x"), weight = weight_of(call, twist);
    const auto n = call.columns("x");
    const Values bias = call.has("bias") ? call.in("bias") : Values(index_of(n));
    Values y, means, inverses;
    for (std::int64_t r = 0; r < call.shape("x")[0]; ++r) {
      const Moments m = row_moments(row_of(x, r, n), twist);
      const float inverse = 1 / std::sqrt(m.variance + call.number("eps"));
      for (std::int64_t i = 0; i < n; ++i) {
        const float b = (twist == Twist::bias_twice ? 2.0f : 1.0f) * bias[index_of(i)];
        y.push_back((x[index_of(r * n + i)] - m.mean) * inverse * weight[index_of(i)] + b);
      }
      means.push_back(m.mean);
      inverses.push_back(twist == Twist::saved_without_root ? 1 / (m.variance + call.number("eps")) : inverse);
    }
    call.out("y", y);
    call.out("mean", means);
    call.out("inv_std", inverses);
  };
  const auto backward = [=](const Call& call) {
    const Values x = call.in("x"), dy = call.in("dy"), means = call.in("mean"), inverses = call.in("inv_std");
    const std::int64_t n = call.columns("x");
    const Values weight = weight_of(call, Twist::bias_twice);
    const Values bias = call.has("bias") ? call.in("bias") : Values(index_of(n));
    Values dx(x.size()), dweight(index_of(n)), dbias(index_of(n));
    for (std::int64_t r = 0; r < call.shape("x")[0]; ++r) {
      const auto normal = [&](std::int64_t i) {
        return (x[index_of(r * n + i)] - means[index_of(r)]) * inverses[index_of(r)];
      };
      const auto read = [&](std::int64_t i) {
        return twist == Twist::normal_is_output ? normal(i) * weight[index_of(i)] + bias[index_of(i)] : normal(i);
      };
      const auto g = [&](std::int64_t i) { return dy[index_of(r * n + i)] * weight[index_of(i)]; };
      const auto size = static_cast<float>(n);
      const float mean_g = total(in_order, n, [&](std::int64_t i) { return Term{g(i)}; }) / size;
      const float mean_gn = total(in_order, n, [&](std::int64_t i) { return Term{g(i), read(i)}; }) / size;
      for (std::int64_t i = 0; i < n; ++i) {
        const std::size_t at = index_of(r * n + i);
        dx[at] = inverses[index_of(r)] * (g(i) - mean_g - read(i) * mean_gn);
        if (twist == Twist::residual_added) dx[at] += dy[at];
        dweight[index_of(i)] += dy[at] * normal(i);
        dbias[index_of(i)] += dy[at];
      }
    }
    call.out("dx", dx);
    call.out("dweight", dweight);
    call.out("dbias", dbias);
  };
  return kernel_of(forward, backward);
}

/// x and what it is divided by, from one row of rms_norm. Heads of 128 are normalised each by itself.
struct RmsRow {
  std::int64_t head;  ///< numbers that have one inverse
  Values inverse;     ///< of each number

  RmsRow(std::span<const float> x, float eps, Twist twist)
      : head(twist == Twist::in_heads_of_128 ? 128 : std::max<std::int64_t>(1, std::ssize(x))) {
    for (std::size_t begin = 0; begin < x.size(); begin += index_of(head)) {
      const auto own = x.subspan(begin, std::min(index_of(head), x.size() - begin));
      const float mean = std::inner_product(own.begin(), own.end(), own.begin(), 0.0f) / static_cast<float>(own.size());
      inverse.insert(inverse.end(), own.size(), 1 / std::sqrt(mean + eps));
    }
  }
};

Kernel rms_norm(Twist twist) {
  const auto eps_of = [twist](const Call& call) { return twist == Twist::fixed_eps ? 1e-6f : call.number("eps"); };
  const auto forward = [=](const Call& call) {
    const Values x = call.in("x"), weight = weight_of(call, twist);
    const std::int64_t n = call.columns("x");
    Values y, inverses;
    for (std::int64_t r = 0; r < call.shape("x")[0]; ++r) {
      const RmsRow row(row_of(x, r, n), eps_of(call), twist);
      for (std::int64_t i = 0; i < n; ++i)
        y.push_back(x[index_of(r * n + i)] * row.inverse[index_of(i)] * weight[index_of(i)]);
      inverses.push_back(row.inverse.empty() ? NAN : row.inverse[0]);
    }
    call.out("y", y);
    call.out("inv_rms", inverses);
  };
  const auto backward = [=](const Call& call) {
    const Values x = call.in("x"), dy = call.in("dy"), weight = weight_of(call, twist), saved = call.in("inv_rms");
    const std::int64_t n = call.columns("x"), rows = call.shape("x")[0];
    Values dx(x.size()), dweight(index_of(n));
    for (std::int64_t r = 0; r < rows; ++r) {
      RmsRow row(row_of(x, r, n), eps_of(call), twist);
      if (twist != Twist::in_heads_of_128) std::fill(row.inverse.begin(), row.inverse.end(), saved[index_of(r)]);
      const auto normal = [&](std::int64_t i) { return x[index_of(r * n + i)] * row.inverse[index_of(i)]; };
      const auto g = [&](std::int64_t i) { return dy[index_of(r * n + i)] * weight[index_of(i)]; };
      float mean_gn = 0;  // of the head of i
      for (std::int64_t i = 0; i < n; ++i) {
        if (i % row.head == 0) {
          const std::int64_t size = std::min(row.head, n - i);
          mean_gn = total(in_order, size,
                          [&](std::int64_t k) {
                            return Term{g(i + k), normal(i + k)};
                          }) /
                    static_cast<float>(size);
        }
        const std::size_t at = index_of(r * n + i);
        dx[at] = row.inverse[index_of(i)] * (g(i) - normal(i) * mean_gn);
        dweight[index_of(i)] += dy[at] * (twist == Twist::dweight_by_first_inverse ? x[at] * saved[0] : normal(i));
      }
    }
    for (float& v : dweight)
      if (twist == Twist::dweight_over_rows) v /= static_cast<float>(rows);
    call.out("dx", dx);
    call.out("dweight", dweight);
  };
  return kernel_of(forward, backward);
}

}  // namespace

std::vector<Specimen> daily_norm_specimens() {
  std::vector<Specimen> out;
  add(out, "layer_norm",
      {{"bias_twice", 40, "the bias is added twice", "bias", V::bug, "bias|factor|twice",
        layer_norm(Twist::bias_twice)},
       {"variance_about_zero", 4, "y takes the mean off, its inv_std is that of x, not of x - mean", "a mean", V::bug,
        "about zero|about 0|variance|mean square|centred|rms|mean of x^2|not subtracted|taken off",
        layer_norm(Twist::variance_about_zero)},
       {"normal_is_output", 7, "dx takes the output for the normalised input", "weight or bias", V::bug,
        "output|y for|for y|weight|bias", layer_norm(Twist::normal_is_output)},
       {"weight_of_128", 22, "the weight is read at i % 128", "more than 128 columns", V::bug,
        "weight|index|modul|wrap|another element|repeat", layer_norm(Twist::weight_of_128)},
       {"saved_without_root", 27, "inv_std is saved as 1 / (variance + eps)", "any", V::bug,
        "inv_std|root|square|power|saved", layer_norm(Twist::saved_without_root)},
       {"welford_by_old_mean", 31, "Welford's squares are (x - old mean)^2, where (x - old) (x - new) is due", "any",
        V::bug, "variance|welford|square|moment|mean|inv_std", layer_norm(Twist::welford_by_old_mean)},
       {"merged_as_equals", 42, "moments of four parts are merged as if they had the same size",
        "parts of unequal size", V::bug, "count|unequal|alike|block|mean of means|tail|divisor|weighs|part of",
        layer_norm(Twist::merged_as_equals)},
       {"merged_without_distance", 3, "variances of four parts are merged without the distances of their means", "any",
        V::bug, "variance|term |missing|block|without|spread|between|inv_std",
        layer_norm(Twist::merged_without_distance)},
       {"residual_added", 44, "dy is added to dx, as of a residual that the op has not", "any", V::bug,
        "added|residual|term |plus|+ dy|cotangent|skip", layer_norm(Twist::residual_added)}},
      {});
  add(out, "rms_norm",
      {{"dweight_by_first_inverse", 17, "dweight takes inv_rms of the first row for all", "more than one row", V::bug,
        "inv_rms|first row|another row|of row|row 0|first for", rms_norm(Twist::dweight_by_first_inverse)},
       {"fixed_eps", 45, "eps is 1e-6 whatever it is set to", "eps other than 1e-6", V::bug, "eps|attribute",
        rms_norm(Twist::fixed_eps)},
       {"in_heads_of_128", 45, "heads of 128 columns are normalised each by itself", "more than 128 columns", V::bug,
        "group|block|part of|head|128|fewer terms|some elements|columns", rms_norm(Twist::in_heads_of_128)},
       {"dweight_over_rows", 42, "dweight is the mean over rows", "more than one row", V::bug,
        "factor|count|rows|mean|divid", rms_norm(Twist::dweight_over_rows)}},
      {});
  return out;
}

}  // namespace ampcheck::checks::zoo
