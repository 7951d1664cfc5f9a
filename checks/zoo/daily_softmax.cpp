// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
// softmax and log_softmax as they go wrong in daily work: rescaling of a running sum, lanes, and what backward reads.
#include <algorithm>
#include <array>
#include <numeric>

#include "checks/zoo/kit.h"

namespace ampcheck::checks::zoo {

namespace {

using V = Verdict;

enum class Twist {
  none,
  rescaled_wrong_way,
  numerators_keep_maximum,
  dot_of_pair,
  sum_of_lanes_behind,
  small_as_zero,
  // log_softmax
  unnormalised_probability,
  maximum_lost,
  log_sum_in_fp16,
};

struct Row {
  Values e;  ///< numerators
  float shift = 0, total = 0;
};

/// The sum as it goes on, with the old one multiplied by exp(new maximum - old one).
float rescaled_wrong_way(std::span<const float> x) {
  float most = x.empty() ? 0.0f : x[0], sum = 0;
  for (const float v : x) {
    const float next = v > most || v != v ? v : most;
    sum = sum * std::exp(next - most) + std::exp(v - next);
    most = next;
  }
  return sum;
}

/// What each lane holds after a sum by shfl_down, which is whole in lane 0 alone.
std::array<float, 32> sums_of_lanes(const Values& e) {
  std::array<float, 32> lane = {};
  for (std::size_t i = 0; i < e.size(); ++i) lane[i % 32] += e[i];
  for (std::size_t step = 16; step > 0; step /= 2) {
    const std::array<float, 32> before = lane;
    for (std::size_t i = 0; i < 32; ++i) lane[i] += before[i + step < 32 ? i + step : i];
  }
  return lane;
}

Row exponentials(std::span<const float> x, Twist twist) {
  Row row{{}, largest(x), 0};
  for (const float v : x) {
    const float d = v - row.shift;
    row.e.push_back(twist == Twist::small_as_zero && d < -10 ? 0.0f : std::exp(d));
    row.total += row.e.back();
  }
  if (twist == Twist::rescaled_wrong_way) row.total = rescaled_wrong_way(x);
  if (twist == Twist::numerators_keep_maximum)
    for (std::size_t i = 0; i < x.size(); ++i)
      row.e[i] = std::exp(x[i] - largest(x.first(std::min(x.size(), (i / 32 + 1) * 32))));
  return row;
}

void softmax_value(Twist twist, std::span<const float> x, Values& y) {
  const Row row = exponentials(x, twist);
  const std::array<float, 32> lane = sums_of_lanes(row.e);
  for (std::size_t i = 0; i < row.e.size(); ++i)
    y.push_back(row.e[i] / (twist == Twist::sum_of_lanes_behind ? lane[i % 32] : row.total));
}

float dot_of(Twist twist, std::span<const float> x, std::span<const float> g) {
  const Row row = exponentials(x, twist);
  float dot = 0;
  for (std::size_t i = 0; i < x.size(); ++i) dot += g[i] * (row.e[i] / row.total);
  return dot;
}

Kernel softmax(Twist twist) {
  const Twist in_backward = twist == Twist::small_as_zero ? twist : Twist::none;
  return kernel_of(
      [=](const Call& call) {
        const Values x = call.in("x");
        Values y;
        for (std::int64_t r = 0; r < call.rows("x"); ++r) softmax_value(twist, row_of(x, r, call.columns("x")), y);
        call.out("y", y);
      },
      [=](const Call& call) {
        const Values x = call.in("x"), g = call.in("dy");
        const std::int64_t n = call.columns("x"), rows = call.rows("x");
        Values dx;
        for (std::int64_t r = 0; r < rows; ++r) {
          const Row row = exponentials(row_of(x, r, n), in_backward);
          float dot = dot_of(in_backward, row_of(x, r, n), row_of(g, r, n));
          if (twist == Twist::dot_of_pair && (r ^ 1) < rows)
            dot += dot_of(in_backward, row_of(x, r ^ 1, n), row_of(g, r ^ 1, n));
          for (std::int64_t i = 0; i < n; ++i)
            dx.push_back(row.e[index_of(i)] / row.total * (g[index_of(r * n + i)] - dot));
        }
        call.out("dx", dx);
      });
}

Kernel log_softmax(Twist twist) {
  return kernel_of(
      [=](const Call& call) {
        const Values x = call.in("x");
        Values y;
        for (std::int64_t r = 0; r < call.rows("x"); ++r) {
          const auto own = row_of(x, r, call.columns("x"));
          const Row row = exponentials(own, Twist::none);
          float log_l = std::log(row.total);
          if (twist == Twist::log_sum_in_fp16) log_l = fp16(log_l);
          for (const float v : own) y.push_back((twist == Twist::maximum_lost ? v : v - row.shift) - log_l);
        }
        call.out("y", y);
      },
      [=](const Call& call) {
        const Values x = call.in("x"), dy = call.in("dy");
        const std::int64_t n = call.columns("x");
        Values dx;
        for (std::int64_t r = 0; r < call.rows("x"); ++r) {
          const Row row = exponentials(row_of(x, r, n), Twist::none);
          const auto g = row_of(dy, r, n);
          const float sum = std::accumulate(g.begin(), g.end(), 0.0f);
          const float divisor = twist == Twist::unnormalised_probability ? 1.0f : row.total;
          for (std::size_t i = 0; i < g.size(); ++i) dx.push_back(g[i] - row.e[i] / divisor * sum);
        }
        call.out("dx", dx);
      });
}

}  // namespace

std::vector<Specimen> daily_softmax_specimens() {
  std::vector<Specimen> out;
  add(out, "softmax",
      {{"rescaled_wrong_way", 2, "the running sum is rescaled by exp(new - old), where exp(old - new) is due",
        "a maximum that is not the first number", V::bug,
        "rescal|sign|invers|recipro|correction|overflow|infinite|maximum", softmax(Twist::rescaled_wrong_way),
        kAllTypes, V::range_declared},
       {"numerators_keep_maximum", 40,
        "numerators keep the maximum of the blocks so far, the sum is rescaled to the last one", "more than 32 columns",
        V::bug, "rescal|maximum|block|shift|only where", softmax(Twist::numerators_keep_maximum)},
       {"dot_of_pair", 17, "two rows in one warp share the sum of their dot products", "more than one row",
        V::structural, "another row|other rows|independent|next row|row before|pair", softmax(Twist::dot_of_pair),
        kAllTypes, V::bug},
       {"sum_of_lanes_behind", 40, "every lane divides by its own sum after shfl_down, which lane 0 alone has whole",
        "more than one column", V::bug, "lane|fewer terms|lost|shuffle|counted|denominator|sum of|part of",
        softmax(Twist::sum_of_lanes_behind)},
       {"small_as_zero", 28, "terms more than 10 below the maximum are 0", "rows of wide spread", V::bug,
        "underflow|only where|zero|small|flush|clip|cut|threshold|below", softmax(Twist::small_as_zero), kAllTypes,
        V::range_declared}},
      {});
  add(out, "log_softmax",
      {{"unnormalised_probability", 1, "dx = g - exp(x - m) sum g, not divided by the sum of exponentials", "any",
        V::bug, "normalis|divid|factor|denominator|unnormal|exp(x - m", log_softmax(Twist::unnormalised_probability)},
       {"maximum_lost", 3, "x - log(sum exp(x - m)): the maximum is not taken off", "any", V::bug,
        "maximum|shift|term |missing|without|max(", log_softmax(Twist::maximum_lost)},
       {"log_sum_in_fp16", 25, "the logarithm of the sum is rounded to fp16", "any", V::precision_contract,
        "keeps|rounded|stored", log_softmax(Twist::log_sum_in_fp16), kFp32, V::bug}},
      {});
  return out;
}

}  // namespace ampcheck::checks::zoo
