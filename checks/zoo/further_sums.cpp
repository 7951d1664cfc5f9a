// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
// Further sums and extremes of the zoo. They were its unseen part once; rules have followed from them since.
#include <algorithm>
#include <numeric>
#include <utility>

#include "checks/zoo/kit.h"

namespace ampcheck::checks::zoo {

namespace {

using V = Verdict;

/// Value of a line, given the value of the line before.
using LineSum = float (*)(const Values& line, float before, std::int64_t r);

float even_then_odd(const Values& line, float, std::int64_t) {
  float s = 0;
  for (std::size_t start : {0, 1})
    for (std::size_t i = start; i < line.size(); i += 2) s += line[i];
  return s;
}
float smallest_first(const Values& line, float, std::int64_t) {
  Values sorted = line;
  std::ranges::stable_sort(sorted, {}, [](float v) { return v == v ? std::fabs(v) : INFINITY; });
  return std::accumulate(sorted.begin(), sorted.end(), 0.0f);
}
/// The accumulator is cleared at every fourth line alone.
float not_cleared(const Values& line, float before, std::int64_t r) {
  return std::accumulate(line.begin(), line.end(), r % 4 == 0 ? 0.0f : before);
}

/// The mean of the means of blocks of 32, of which the last may be shorter.
float mean_of_means(const Values& line, float, std::int64_t) {
  constexpr std::size_t kBlock = 32;
  float s = 0, blocks = 0;
  for (std::size_t begin = 0; begin < line.size(); begin += kBlock, ++blocks) {
    const std::size_t end = std::min(begin + kBlock, line.size());
    float part = 0;
    for (std::size_t i = begin; i < end; ++i) part += line[i];
    s += part / static_cast<float>(end - begin);
  }
  return s / blocks;
}

/// `mean`: each element's gradient is its share of the line.
Kernel sum_by(LineSum sum, bool mean = false) {
  return kernel_of(
      [sum](const Call& call) {
        const Values x = call.in("x");
        const AxisLines lines(call);
        Values y, line(index_of(lines.length));
        for (std::int64_t r = 0; r < lines.count; ++r) {
          for (std::int64_t i = 0; i < lines.length; ++i) line[index_of(i)] = x[lines.at(r, i)];
          y.push_back(sum(line, r == 0 ? 0.0f : y.back(), r));
        }
        call.out("y", y);
      },
      [mean](const Call& call) {
        const Values g = call.in("dy");
        const AxisLines lines(call);
        const float count = mean ? static_cast<float>(lines.length) : 1.0f;
        Values dx(index_of(call.shape("x").count()));
        for (std::int64_t r = 0; r < lines.count; ++r)
          for (std::int64_t i = 0; i < lines.length; ++i) dx[lines.at(r, i)] = g[index_of(r)] / count;
        call.out("dx", dx);
      });
}

/// Running sums, of which the gradient leaves out the own term.
Kernel cumsum() {
  return kernel_of(
      [](const Call& call) {
        Values y = call.in("x");
        const std::size_t n = index_of(call.columns("x"));
        for (std::size_t at = 0; at < y.size(); ++at)
          if (at % n != 0) y[at] = y[at - 1] + y[at];
        call.out("y", y);
      },
      [](const Call& call) {
        Values dx = call.in("dy");
        const std::size_t n = index_of(call.columns("x"));
        float sum = 0;
        for (std::size_t at = dx.size(); at-- > 0;) {
          if (at % n == n - 1) sum = 0;
          const float own = dx[at];
          dx[at] = sum;
          sum += own;
        }
        call.out("dx", dx);
      });
}

enum class Loss { half, absolute, reversed };

Kernel mse_loss(Loss loss) {
  const auto forward = [loss](const Call& call) {
    const Values x = call.in("x"), target = call.in("target");
    float s = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      const float d = loss == Loss::reversed ? target[i] - x[i] : x[i] - target[i];
      s += loss == Loss::absolute ? std::fabs(d) : d * d;
    }
    call.out("loss", {(loss == Loss::half ? 0.5f * s : s) / static_cast<float>(x.size())});
  };
  const auto backward = [loss](const Call& call) {
    const Values x = call.in("x"), target = call.in("target");
    const auto size = static_cast<float>(x.size());
    const float g = call.in("dloss").at(0), factor = (loss == Loss::half ? 1.0f : 2.0f) / size;
    Values dx(x.size()), dtarget(x.size());
    for (std::size_t i = 0; i < x.size(); ++i) {
      const float d = x[i] - target[i], sign = d > 0 ? 1.0f : d < 0 ? -1.0f : d;
      dx[i] = loss == Loss::absolute ? g * (sign / size) : g * factor * d;
      dtarget[i] = -dx[i];
    }
    call.out("dx", dx);
    call.out("dtarget", dtarget);
  };
  return kernel_of(forward, backward);
}

/// max by a tournament of neighbours; `off`: the gradient goes that many places further.
Kernel max_by_rounds(std::int64_t off) {
  const auto winner = [](const Values& x, const AxisLines& lines, std::int64_t r) {
    std::vector<std::int64_t> left(index_of(lines.length));
    std::iota(left.begin(), left.end(), 0);
    const auto wins = [&](std::int64_t a, std::int64_t b) {  // a stands before b
      const float u = x[lines.at(r, a)], v = x[lines.at(r, b)];
      return u != u || (v == v && u >= v);
    };
    while (left.size() > 1) {
      std::vector<std::int64_t> next;
      for (std::size_t i = 0; i + 1 < left.size(); i += 2)
        next.push_back(wins(left[i], left[i + 1]) ? left[i] : left[i + 1]);
      if (left.size() % 2 == 1) next.push_back(left.back());
      left = std::move(next);
    }
    return left.front();
  };
  return kernel_of(
      [winner](const Call& call) {
        const Values x = call.in("x");
        const AxisLines lines(call);
        Values y;
        for (std::int64_t r = 0; r < lines.count; ++r) y.push_back(x[lines.at(r, winner(x, lines, r))]);
        call.out("y", y);
      },
      [winner, off](const Call& call) {
        const Values x = call.in("x"), g = call.in("dy");
        const AxisLines lines(call);
        Values dx(x.size());
        for (std::int64_t r = 0; r < lines.count; ++r)
          dx[lines.at(r, (winner(x, lines, r) + off) % lines.length)] = g[index_of(r)];
        call.out("dx", dx);
      });
}

}  // namespace

std::vector<Specimen> further_sum_specimens() {
  std::vector<Specimen> out;
  add(out, "sum",
      {{"not_cleared", 17, "the accumulator is cleared at every fourth line alone", "more than one line", V::structural,
        "rows are not independent|changes with other rows|stale|row before|another row", sum_by(not_cleared), kAllTypes,
        V::bug}},
      {{"even_then_odd", "even places, then odd ones", sum_by(even_then_odd)},
       {"smallest_first", "from the smallest to the largest", sum_by(smallest_first)}});
  add(out, "mean",
      {{"mean_of_means", 42, "blocks of 32 count alike, a shorter last one too", "lengths that are no multiple of 32",
        V::bug, "count|factor|tail|block|weigh", sum_by(mean_of_means, true), kAllTypes, V::structural}},
      {});
  add(out, "cumsum",
      {{"gradient_exclusive", 14, "dx[i] leaves out dy[i]", "any", V::bug,
        "own term|last term|first term|off by one|first|shift|without", cumsum()}},
      {});
  add(out, "mse_loss",
      {{"half", 1, "half the mean square, value and gradient", "any", V::bug, "factor", mse_loss(Loss::half)},
       {"absolute", 30, "the mean of |x - target|", "any", V::bug, "square|absolute|another|power|factor",
        mse_loss(Loss::absolute)}},
      {{"reversed_difference", "(target - x)^2", mse_loss(Loss::reversed)}});
  add(out, "max",
      {{"gradient_to_next", 14, "the gradient goes to the place after the largest", "any", V::bug,
        "another|off by one|shift|next|place", max_by_rounds(1), kAllTypes, V::non_smooth}},
      {{"tournament", "in rounds of neighbours", max_by_rounds(0)}});
  return out;
}

}  // namespace ampcheck::checks::zoo
