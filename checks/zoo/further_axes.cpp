// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
// Sums, means, extremes and running sums: blocks, counts and places that are not the ones that are due.
#include <algorithm>
#include <bit>
#include <cstdint>
#include <numeric>

#include "checks/zoo/kit.h"

namespace ampcheck::checks::zoo {

namespace {

using V = Verdict;

using OfLine = float (*)(const Values& line);
using Share = float (*)(float g, float length);

/// y = value(line), dx = share(g, length) for each element of the line.
Kernel along(OfLine value, Share share, Slip slip = {}) {
  return kernel_of(
      [value](const Call& call) {
        const Values x = call.in("x");
        const AxisLines lines(call);
        Values y;
        for (std::int64_t r = 0; r < lines.count; ++r) y.push_back(value(lines.line(x, r)));
        call.out("y", y);
      },
      [share](const Call& call) {
        const Values g = call.in("dy");
        const AxisLines lines(call);
        Values dx(index_of(call.shape("x").count()));
        for (std::int64_t r = 0; r < lines.count; ++r)
          for (std::int64_t i = 0; i < lines.length; ++i)
            dx[lines.at(r, i)] = share(g[index_of(r)], static_cast<float>(lines.length));
        call.out("dx", dx);
      },
      std::move(slip));
}

float sum_of(const Values& line) { return std::accumulate(line.begin(), line.end(), 0.0f); }
float mean_of(const Values& line) { return sum_of(line) / static_cast<float>(line.size()); }
float whole(float g, float) { return g; }
float part(float g, float n) { return g / n; }

/// Every other block of 32, as of a stride of two blocks with one block of threads.
float every_other_block(const Values& line) {
  float s = 0;
  for (std::size_t i = 0; i < line.size(); ++i)
    if (i / 32 % 2 == 0) s += line[i];
  return s;
}
float of_numbers(const Values& line) {
  float s = 0;
  for (const float v : line) s += v != v ? 0.0f : v;
  return s;
}
/// Lanes of 32 in fp16, added up in fp32.
float lanes_in_fp16(const Values& line) {
  float lane[32] = {}, s = 0;
  for (std::size_t i = 0; i < line.size(); ++i) lane[i % 32] = fp16(lane[i % 32] + line[i]);
  for (const float v : lane) s += v;
  return s;
}
/// Two warps of 32 and no loop: what stands beyond 64 is lost.
float first_two_warps(const Values& line) {
  return std::accumulate(line.begin(), line.begin() + std::min<std::ptrdiff_t>(std::ssize(line), 64), 0.0f);
}
float size_of(const Values& line) {
  float s = 0;
  for (const float v : line) s += std::fabs(v);
  return s;
}
/// The count as a shift: the power of two below it.
float mean_by_shift(const Values& line) {
  return line.empty() ? mean_of(line) : sum_of(line) / static_cast<float>(std::bit_floor(line.size()));
}
float mean_of_count_and_one(const Values& line) { return sum_of(line) / static_cast<float>(line.size() + 1); }
float root_mean(const Values& line) { return sum_of(line) / std::sqrt(static_cast<float>(line.size())); }

void add_sums(std::vector<Specimen>& out) {
  add(out, "sum",
      {{"every_other_block", 40, "blocks of 32 in steps of 64: every other one is lost", "more than 32 numbers", V::bug,
        "lost|leaves out|left out|block|half|only|missing", along(every_other_block, whole), kAllTypes, V::structural},
       {"beyond_64_lost", 40, "two warps alone are added up", "more than 64 numbers", V::bug,
        "tail|last|lost|leaves out|left out|block|only the first|missing", along(first_two_warps, whole), kAllTypes,
        V::structural},
       {"skips_nan", 29, "NaN counts as 0", "NaN", V::bug, "nan|finite where|hides|skip|zero",
        along(of_numbers, whole)},
       {"gradient_over_count", 42, "dx = g / n", "n above 1", V::bug, "factor|count|mean|divid", along(sum_of, part)},
       {"cotangent_of_first", 9, "every line takes the cotangent of the first", "more than one line", V::bug,
        "another|first|cotangent|broadcast|same|scalar", along(sum_of, whole, {Io::first_for_all, "dy"}), kAllTypes,
        V::structural},
       {"lanes_in_fp16", 24, "32 lanes accumulate in fp16", "any", V::precision_contract, "accumulates in fp16|partial",
        along(lanes_in_fp16, whole), kAllTypes, V::bug},
       {"of_sizes", 2, "the sum of |x|", "negative x", V::bug, "sign|absolute|another|size", along(size_of, whole)}},
      {});
  add(out, "mean",
      {{"count_by_shift", 5, "the count is cut to a power of two", "n no power of two", V::bug,
        "count|factor|power of two|divid|n is", along(mean_by_shift, part)},
       {"count_and_one", 5, "divides by n + 1", "any", V::bug, "count|factor|divid|n + 1|off by one|one more",
        along(mean_of_count_and_one, part)},
       {"over_root", 42, "divides by sqrt(n)", "n above 1", V::bug, "count|factor|divid|root|sqrt",
        along(root_mean, part)},
       {"gradient_over_square", 40, "dx = g / n^2: divided twice", "n above 1", V::bug,
        "count|factor|divid|twice|square", along(mean_of, [](float g, float n) { return g / n / n; })},
       {"count_in_bf16", 26, "n is rounded to bf16", "n above 256", V::precision_contract,
        "count|factor|rounded|stored|bf16|keeps|takes|constant",
        along([](const Values& line) { return sum_of(line) / bf16(static_cast<float>(line.size())); }, part), kAllTypes,
        V::bug}},
      {});
}

// ---- Extremes ----

enum class Pick {
  plain,
  of_sizes,
  to_last_of_line,
  from_half_limit,
  row_of_place_forgotten,
  tail_of_4,
  last_not_seen,
  halved
};

/// `sign`: 1 for max, -1 for min. A NaN wins, and so does the first among equals.
Kernel extreme(float sign, Pick pick) {
  const auto best = [=](const Values& line) {
    std::size_t seen = line.size(), at = 0;
    if (pick == Pick::tail_of_4 && seen >= 4) seen = seen / 4 * 4;
    if (pick == Pick::last_not_seen && seen > 1) --seen;
    const auto key = [&](float v) { return pick == Pick::of_sizes ? std::fabs(v) : sign * v; };
    for (std::size_t i = 1; i < seen; ++i)
      if (line[at] == line[at] && (line[i] != line[i] || key(line[i]) > key(line[at]))) at = i;
    return at;
  };
  return kernel_of(
      [=](const Call& call) {
        const Values x = call.in("x");
        const AxisLines lines(call);
        Values y;
        for (std::int64_t r = 0; r < lines.count; ++r) {
          const Values line = lines.line(x, r);
          float v = line[best(line)];
          if (pick == Pick::from_half_limit && sign * v < -65504) v = -sign * 65504;
          y.push_back(v);
        }
        call.out("y", y);
      },
      [=](const Call& call) {
        const Values x = call.in("x"), g = call.in("dy");
        const AxisLines lines(call);
        Values dx(x.size());
        for (std::int64_t r = 0; r < lines.count; ++r) {
          std::int64_t at = static_cast<std::int64_t>(best(lines.line(x, r)));
          if (pick == Pick::to_last_of_line) at = lines.length - 1;
          const std::int64_t line = pick == Pick::row_of_place_forgotten ? 0 : r;
          dx[lines.at(line, at)] += pick == Pick::halved ? 0.5f * g[index_of(r)] : g[index_of(r)];
        }
        call.out("dx", dx);
      });
}

void add_extremes(std::vector<Specimen>& out) {
  add(out, "max",
      {{"of_sizes", 30, "the largest |x|", "negative x", V::bug, "absolute|sign|another|size",
        extreme(1, Pick::of_sizes)},
       {"gradient_to_last", 14, "the gradient goes to the last of the line", "any", V::bug,
        "another|last|place|off by one|shift|zero", extreme(1, Pick::to_last_of_line), kAllTypes, V::non_smooth},
       {"last_not_seen", 14, "the search ends before the last of the line", "any", V::bug,
        "tail|last|off by one|leaves out|left out|lost", extreme(1, Pick::last_not_seen)},
       {"gradient_halved", 1, "dx = g/2 at the largest", "any", V::bug, "factor|half|0.5|twice",
        extreme(1, Pick::halved)}},
      {});
  add(out, "min",
      {{"from_half_limit",
        28,
        "the search begins at 65504",
        "lines above 65504",
        V::bug,
        "clamp|clip|satur|constant|limit|start|65504|above|only where|finite where",
        extreme(-1, Pick::from_half_limit),
        {Dtype::fp32, Dtype::bf16}},
       {"offset_forgotten", 22, "the place in the line is written without the line's offset", "more than one line",
        V::structural, "another|lost|index|offset|first line|first row", extreme(-1, Pick::row_of_place_forgotten),
        kAllTypes, V::bug},
       {"tail_of_4_lost", 13, "what follows the last full vector of 4 is not looked at", "lengths no multiple of 4",
        V::bug, "tail|last|leaves out|left out|lost", extreme(-1, Pick::tail_of_4), kAllTypes, V::structural}},
      {});
}

// ---- cumsum and its like ----

enum class Run { none, one_ahead, carry_to_first, mean_so_far };

Values running(std::span<const float> x, Run twist) {
  Values y;
  float s = 0, carry = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (i % 32 == 0) {
      carry += s;
      s = 0;
    }
    s += x[i];
    float v = carry + s;
    if (twist == Run::carry_to_first && i % 32 != 0) v = s;
    if (twist == Run::one_ahead && i + 1 < x.size()) v += x[i + 1];
    if (twist == Run::mean_so_far) v /= static_cast<float>(i + 1);
    y.push_back(v);
  }
  return y;
}

Kernel cumsum(Run forward, Run backward) {
  return kernel_of(
      [forward](const Call& call) {
        const Values x = call.in("x");
        Values y;
        for (std::int64_t r = 0; r < call.rows("x"); ++r)
          for (const float v : running(row_of(x, r, call.columns("x")), forward)) y.push_back(v);
        call.out("y", y);
      },
      [backward](const Call& call) {
        const Values g = call.in("dy");
        Values dx;
        for (std::int64_t r = 0; r < call.rows("dy"); ++r) {
          const auto row = row_of(g, r, call.columns("dy"));
          Values turned = running(Values(row.rbegin(), row.rend()), backward);
          dx.insert(dx.end(), turned.rbegin(), turned.rend());
        }
        call.out("dx", dx);
      });
}

}  // namespace

std::vector<Specimen> further_axis_specimens() {
  std::vector<Specimen> out;
  add_sums(out);
  add_extremes(out);
  add(out, "cumsum",
      {{"one_ahead", 14, "y[i] counts x[i + 1] too", "any", V::bug, "shift|off by one|next|term|ahead|one more",
        cumsum(Run::one_ahead, Run::none)},
       {"carry_to_first", 40, "the carry is added to the first of a block of 32 alone", "more than 32 numbers", V::bug,
        "carr|block|lost|missing|leaves out|left out|tail", cumsum(Run::carry_to_first, Run::none), kAllTypes,
        V::structural},
       {"gradient_carry_to_first", 40, "backward adds the carry to the first of a block of 32 alone",
        "more than 32 numbers", V::bug, "carr|block|lost|missing|leaves out|left out|tail",
        cumsum(Run::none, Run::carry_to_first), kAllTypes, V::structural},
       {"mean_so_far", 42, "y[i] is divided by i + 1", "any", V::bug, "factor|count|mean|divid",
        cumsum(Run::mean_so_far, Run::none)}},
      {});
  return out;
}

}  // namespace ampcheck::checks::zoo
