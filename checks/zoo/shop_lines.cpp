// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
// sum, mean, max and min along an axis: pitches, tails, counts and the last step of a reduction.
#include <algorithm>

#include "checks/zoo/kit.h"

namespace ampcheck::checks::zoo {

namespace {

using V = Verdict;

enum class Twist {
  none,
  // sum
  pitch_one_short,
  two_lines_at_once,
  last_repeated,
  cotangent_across,
  butterfly_in_bf16,
  // mean
  over_all,
  parts_in_storage,
  running_mean_in_storage,
  count_of_nonzero,
  integer_reciprocal,
};

/// Line r as the kernel reads it.
Values read_line(const Call& call, const AxisLines& lines, const Values& x, std::int64_t r, Twist twist) {
  Values line = lines.line(x, r);
  const bool last_axis = call.integer("axis") != 0;
  if (twist == Twist::pitch_one_short)
    for (std::int64_t i = 0; i < lines.length; ++i) line[index_of(i)] = x[lines.at(r, i) - index_of(last_axis ? r : i)];
  if (twist == Twist::last_repeated && !line.empty()) line.resize((line.size() + 7) / 8 * 8, line.back());
  return line;
}

float sum_of(const Values& line, Twist twist) {
  if (twist != Twist::butterfly_in_bf16)
    return total(in_order, std::ssize(line), [&](std::int64_t i) { return Term{line[index_of(i)]}; });
  float lane[32] = {};
  for (std::size_t i = 0; i < line.size(); ++i) lane[i % 32] += line[i];
  for (std::size_t step = 16; step > 0; step /= 2)
    for (std::size_t i = 0; i < step; ++i) lane[i] += bf16(lane[i + step]);
  return lane[0];
}

float mean_of(const Values& line, std::int64_t all, Dtype dtype, Twist twist) {
  const auto n = static_cast<float>(line.size());
  float s = 0;
  if (twist == Twist::parts_in_storage) {
    for (const float v : line) s += rounded(dtype, v / n);
    return s;
  }
  if (twist == Twist::running_mean_in_storage) {
    for (std::size_t i = 0; i < line.size(); ++i) s = rounded(dtype, s + (line[i] - s) / static_cast<float>(i + 1));
    return s;
  }
  if (twist == Twist::over_all) return sum_of(line, twist) / static_cast<float>(all);
  if (twist == Twist::count_of_nonzero)
    return sum_of(line, twist) / std::max(static_cast<float>(std::ssize(line) - std::ranges::count(line, 0.0f)), 1.0f);
  return sum_of(line, twist) / n;
}

Kernel added(Twist twist, bool mean) {
  const auto forward = [=](const Call& call) {
    const Values x = call.in("x");
    const AxisLines lines(call);
    Values y;
    for (std::int64_t r = 0; r < lines.count; ++r) {
      const Values line = read_line(call, lines, x, r, twist);
      y.push_back(mean ? mean_of(line, std::ssize(x), call.dtype("x"), twist) : sum_of(line, twist));
    }
    if (twist == Twist::two_lines_at_once && y.size() % 2 == 1) y.back() = 0;
    call.out("y", y);
  };
  const auto backward = [=](const Call& call) {
    const Values g = call.in("dy");
    const AxisLines lines(call);
    Values dx(index_of(call.shape("x").count()));
    float part = mean ? 1 / static_cast<float>(lines.length) : 1;
    if (twist == Twist::over_all) part = 1 / static_cast<float>(dx.size());
    if (twist == Twist::integer_reciprocal) part = lines.length == 1 ? 1.0f : 0.0f;
    for (std::int64_t r = 0; r < lines.count; ++r)
      for (std::int64_t i = 0; i < lines.length; ++i)
        dx[lines.at(r, i)] = part * g[index_of(twist == Twist::cotangent_across ? i % lines.count : r)];
    call.out("dx", dx);
  };
  return kernel_of(forward, backward);
}
Kernel sum(Twist twist) { return added(twist, false); }
Kernel mean(Twist twist) { return added(twist, true); }

enum class Extreme {
  none,
  place_in_bf16,
  from_first_of_all,
  last_line_again,
  negated,
  zeros_are_missing,
  lanes_by_the_other,
  gradient_of_value,
};

/// Whether v is to be taken in place of `best`: a NaN is taken, and stays.
bool wins(float v, float best, float sign) { return best == best && (v != v || sign * v > sign * best); }

struct Winner {
  std::int64_t at = -1;
  float value = 0;
  void meet(std::int64_t i, float v, float sign) {
    if (at < 0 || wins(v, value, sign)) *this = {i, v};
  }
};

Winner winner_of(const Values& line, float sign, Extreme twist) {
  Winner best;
  if (twist == Extreme::lanes_by_the_other && line.size() >= 4) {
    Winner lane[4];
    for (std::size_t i = 0; i < line.size(); ++i) lane[i % 4].meet(static_cast<std::int64_t>(i), line[i], sign);
    for (const Winner& of_lane : lane) best.meet(of_lane.at, of_lane.value, -sign);
    return best;
  }
  for (std::size_t i = 0; i < line.size(); ++i)
    if (twist != Extreme::zeros_are_missing || line[i] != 0) best.meet(static_cast<std::int64_t>(i), line[i], sign);
  return best.at < 0 ? Winner{0, line.empty() ? 0 : line[0]} : best;
}

Kernel extreme(float sign, Extreme of_forward, Extreme of_backward) {
  const auto forward = [=](const Call& call) {
    const Values x = call.in("x");
    const AxisLines lines(call);
    Values y;
    for (std::int64_t r = 0; r < lines.count; ++r) {
      Winner best = winner_of(lines.line(x, r), sign, of_forward);
      if (of_forward == Extreme::from_first_of_all) best.meet(0, x[0], sign);
      if (of_forward == Extreme::last_line_again && r > 0) best.meet(0, y.back(), sign);
      y.push_back(best.value);
    }
    call.out("y", y);
  };
  const auto backward = [=](const Call& call) {
    const Values x = call.in("x"), g = call.in("dy");
    const AxisLines lines(call);
    Values dx(x.size());
    for (std::int64_t r = 0; r < lines.count; ++r) {
      const Winner best = winner_of(lines.line(x, r), sign, of_backward);
      std::int64_t at = best.at;
      if (of_backward == Extreme::place_in_bf16)
        at = std::min(static_cast<std::int64_t>(bf16(static_cast<float>(at))), lines.length - 1);
      float v = g[index_of(r)];
      if (of_backward == Extreme::negated) v = -v;
      if (of_backward == Extreme::gradient_of_value) v *= best.value;
      dx[lines.at(r, at)] = v;
    }
    call.out("dx", dx);
  };
  return kernel_of(forward, backward);
}

void add_sums(std::vector<Specimen>& out) {
  add(out, "sum",
      {{"pitch_one_short", 20, "lines are taken to be one element closer to each other", "more than one line", V::bug,
        "stride|pitch|shift|another row|another place|offset|index|row length|off by one", sum(Twist::pitch_one_short),
        kAllTypes, V::structural},
       {"odd_line_lost", 13, "lines are taken two at once, of an odd number the last is 0", "an odd number of lines",
        V::bug, "last|tail|zero|lost|leaves out|left out|odd", sum(Twist::two_lines_at_once), kAllTypes, V::structural},
       {"last_repeated", 40, "lanes beyond a line read its last element again, up to a multiple of 8",
        "lengths that are no multiple of 8", V::bug, "last|twice|more than once|repeat|tail|weigh|multiple of 8",
        sum(Twist::last_repeated), kAllTypes, V::structural},
       {"cotangent_across", 8, "dx[r, i] takes the cotangent of line i mod N", "more than one line", V::bug,
        "axis|broadcast|another row|cotangent|transpos|index|another place", sum(Twist::cotangent_across), kAllTypes,
        V::structural},
       {"butterfly_in_bf16", 23, "lanes send each other their sums as bf16", "more than one number",
        V::precision_contract, "partial|rounded|stored|keeps|takes|accumulates in", sum(Twist::butterfly_in_bf16),
        kAllTypes, V::bug}},
      {});
  add(out, "mean",
      {{"over_all", 42, "divides by the number of all elements, value and gradient", "more than one line", V::bug,
        "factor|count|extent|divid|rows", mean(Twist::over_all)},
       {"parts_in_storage", 25, "each x / n is rounded to the storage type before the sum", "any",
        V::precision_contract, "rounded|stored|keeps|takes", mean(Twist::parts_in_storage), kHalfTypes, V::bug},
       {"running_mean_in_storage", 23, "m += (x - m) / i with m in the storage type", "any", V::precision_contract,
        "accumulates in|rounded|stored|keeps|takes", mean(Twist::running_mean_in_storage), kHalfTypes, V::bug},
       {"divided_by_nonzeros", 42, "divides by the number of elements that are not 0, as of a mask", "zeros", V::bug,
        "zero|count|factor|divid|mask", mean(Twist::count_of_nonzero)},
       {"integer_reciprocal", 46, "1 / n is taken of integers in backward: dx is 0", "n above 1", V::bug,
        "zero|dead|missing|integer|no gradient", mean(Twist::integer_reciprocal), kAllTypes, V::structural}},
      {});
}

}  // namespace

std::vector<Specimen> shop_line_specimens() {
  std::vector<Specimen> out;
  add_sums(out);
  using E = Extreme;
  add(out, "max",
      {{"place_in_bf16", 22, "the place of the largest is kept as bf16", "lines longer than 256", V::bug,
        "another place|index|place|rounded|shift|neighbour|argmax", extreme(1, E::none, E::place_in_bf16), kAllTypes,
        V::structural},
       {"from_first_of_all", 44, "each line's search begins at the first element of the tensor", "more than one line",
        V::bug, "another row|first|rows are not independent|changes with other rows|begins|starts|border",
        extreme(1, E::from_first_of_all, E::none), kAllTypes, V::structural},
       {"best_of_line_before", 17, "the search goes on from the largest of the line before", "more than one line",
        V::bug, "another row|before|stale|carr|rows are not independent|changes with other rows|running",
        extreme(1, E::last_line_again, E::none), kAllTypes, V::structural},
       {"gradient_times_value", 7, "dx = g y at the largest", "any", V::bug,
        "factor|times|square|another function|multipl", extreme(1, E::none, E::gradient_of_value)}},
      {});
  add(out, "min",
      {{"gradient_negated", 2, "dx = -g at the smallest, as of -max(-x) with one sign forgotten", "any", V::bug,
        "sign|negat|minus|factor -1", extreme(-1, E::none, E::negated)},
       {"zeros_are_missing", 44, "zeros are passed over, as of a mask", "zeros", V::bug,
        "skip|passed over|missing|mask|leaves out|left out", extreme(-1, E::zeros_are_missing, E::zeros_are_missing)},
       {"lanes_by_the_other", 30, "the smallest of four lanes are put together by max", "four numbers or more", V::bug,
        "max|largest|lane|block|partial", extreme(-1, E::lanes_by_the_other, E::none), kAllTypes, V::structural}},
      {});
  return out;
}

}  // namespace ampcheck::checks::zoo
