// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
// Sums and extremes of the unseen part of the zoo: written after public fixes of kernels, without a look at the rules.
#include <algorithm>

#include "checks/zoo/kit.h"

namespace ampcheck::checks::zoo {

namespace {

using V = Verdict;

// ---- sum and mean ----

float one_by_one(const Values& x) {
  float s = 0;
  for (const float v : x) s += v;
  return s;
}
/// 32 threads load a chunk each time; those without an element in the last one still hold that of the chunk before.
float stale_in_last_chunk(const Values& x) {
  float s = one_by_one(x);
  const std::size_t used = x.size() % 32;
  if (x.size() > 32 && used > 0)
    for (std::size_t i = x.size() - 32; i < x.size() - used; ++i) s += x[i];
  return s;
}
/// A butterfly, behind which lane 1, which holds the sums of the odd lanes, is added once more.
float last_step_twice(const Values& x) {
  float lane[32] = {};
  for (std::size_t i = 0; i < x.size(); ++i) lane[i % 32] += x[i];
  for (std::size_t step = 16; step > 0; step /= 2)
    for (std::size_t i = 0; i < step; ++i) lane[i] += lane[i + step];
  return x.size() > 1 ? lane[0] + lane[1] : lane[0];
}
/// The accumulator is an e4m3 number that is held between -448 and 448.
float in_e4m3(const Values& x) {
  float s = 0;
  for (const float v : x) {
    const float next = s + v;
    s = rounded(Dtype::e4m3fn, next > 448 ? 448.0f : next < -448 ? -448.0f : next);
  }
  return s;
}
/// Chunks of 100, each one by one, and their sums from the last to the first.
float in_hundreds(const Values& x) {
  Values parts;
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (i % 100 == 0) parts.push_back(0);
    parts.back() += x[i];
  }
  std::reverse(parts.begin(), parts.end());
  return one_by_one(parts);
}

enum class Count { none, length, other_axis, whole_tensor };

float count_of(const AxisLines& lines, Count by) {
  switch (by) {
    case Count::length: return static_cast<float>(lines.length);
    case Count::other_axis: return static_cast<float>(lines.count);
    case Count::whole_tensor: return static_cast<float>(lines.count * lines.length);
    default: return 1;
  }
}

Kernel sums(float (*sum)(const Values&), Count by, Count backward_by, Slip slip = {}) {
  return kernel_of(
      [=](const Call& call) {
        const Values x = call.in("x");
        const AxisLines lines(call);
        Values y;
        for (std::int64_t k = 0; k < lines.count; ++k) y.push_back(sum(lines.line(x, k)) / count_of(lines, by));
        call.out("y", y);
      },
      [=](const Call& call) {
        const Values g = call.in("dy");
        const AxisLines lines(call);
        Values dx(index_of(call.shape("x").count()));
        for (std::int64_t k = 0; k < lines.count; ++k)
          for (std::int64_t i = 0; i < lines.length; ++i)
            dx[lines.at(k, i)] = g[index_of(k)] / count_of(lines, backward_by);
        call.out("dx", dx);
      },
      std::move(slip));
}

void add_sums(std::vector<Specimen>& out) {
  add(out, "sum",
      {{"stale_last_chunk", 17, "threads without an element in the last chunk of 32 add that of the chunk before again",
        "above 32 numbers, no multiple of 32", V::bug, "twice|duplicate|stale|counted|tail|chunk|block|overlap",
        sums(stale_in_last_chunk, Count::none, Count::none), kAllTypes, V::structural},
       {"gradient_of_mean", 42, "dx = g / n, the gradient of the mean", "lengths above 1", V::bug,
        "factor|count|mean|divid", sums(one_by_one, Count::none, Count::length)},
       {"last_step_twice", 40, "the sums of the odd lanes are added once more behind the butterfly", "above one number",
        V::bug, "twice|duplicate|counted|lane|stride|half|overlap|every other|odd",
        sums(last_step_twice, Count::none, Count::none), kAllTypes, V::structural},
       {"accumulator_of_8_bits",
        24,
        "the accumulator is of the storage type, e4m3",
        "any",
        V::precision_contract,
        "accumulates|satur|rounded|stored|keeps|clip|clamp|overflow",
        sums(in_e4m3, Count::none, Count::none),
        {Dtype::e4m3fn},
        V::bug}},
      {{"in_hundreds", "chunks of 100, their sums from the last to the first",
        sums(in_hundreds, Count::none, Count::none)},
       {"fp32_for_8_bits",
        "8-bit numbers added up in fp32",
        sums(one_by_one, Count::none, Count::none),
        "",
        {Dtype::e4m3fn, Dtype::e5m2}}});
  add(out, "mean",
      {{"whole_tensor_count", 42, "divides by the elements of the tensor, not by those of the axis",
        "more than one line", V::bug, "count|factor|mean|divid", sums(one_by_one, Count::whole_tensor, Count::length)},
       {"gradient_by_other_axis", 42, "dx = g over the extent of the other axis", "N other than D", V::bug,
        "count|factor|mean|divid|axis", sums(one_by_one, Count::length, Count::other_axis)}},
      {{"in_hundreds", "chunks of 100, their sums from the last to the first",
        sums(in_hundreds, Count::length, Count::length)}});
}

// ---- cumsum ----

enum class Scan { plain, up_and_down, from_the_end, doubling_in_place, gradient_without_last, gradient_of_block };

/// Blelloch 1990: sums up a tree, then prefixes down it, exclusive; each with its own number added.
void up_and_down(std::span<float> x) {
  std::size_t size = 1;
  while (size < x.size()) size *= 2;
  Values tree(x.begin(), x.end());
  tree.resize(size);
  for (std::size_t step = 1; step < size; step *= 2)
    for (std::size_t i = 2 * step - 1; i < size; i += 2 * step) tree[i] += tree[i - step];
  tree[size - 1] = 0;
  for (std::size_t step = size / 2; step > 0; step /= 2)
    for (std::size_t i = 2 * step - 1; i < size; i += 2 * step) {
      const float left = tree[i - step];
      tree[i - step] = tree[i];
      tree[i] += left;
    }
  for (std::size_t i = 0; i < x.size(); ++i) x[i] += tree[i];
}

void scan(std::span<float> x, Scan twist) {
  switch (twist) {
    case Scan::up_and_down: return up_and_down(x);
    case Scan::from_the_end:
      for (std::size_t i = x.size(); i-- > 1;) x[i - 1] += x[i];
      return;
    case Scan::doubling_in_place:  // one buffer: a step reads what it has just written
      for (std::size_t step = 1; step < x.size(); step *= 2)
        for (std::size_t i = step; i < x.size(); ++i) x[i] += x[i - step];
      return;
    default:
      for (std::size_t i = 1; i < x.size(); ++i) x[i] += x[i - 1];
  }
}

Kernel cumsum(Scan twist) {
  return kernel_of(
      [twist](const Call& call) {
        Values y = call.in("x");
        const std::size_t n = index_of(call.columns("x"));
        for (std::size_t begin = 0; begin < y.size(); begin += n) scan(std::span(y).subspan(begin, n), twist);
        call.out("y", y);
      },
      [twist](const Call& call) {
        Values dx = call.in("dy");
        const std::size_t n = index_of(call.columns("x"));
        for (std::size_t begin = 0; begin < dx.size(); begin += n) {
          const auto row = std::span(dx).subspan(begin, n);
          if (twist == Scan::gradient_without_last && n > 1) row[n - 1] = 0;
          if (twist == Scan::gradient_of_block) {  // each block of 16 from its own end
            for (std::size_t i = n; i-- > 1;)
              if (i % 16 != 0) row[i - 1] += row[i];
            continue;
          }
          std::reverse(row.begin(), row.end());
          scan(row, twist == Scan::up_and_down ? twist : Scan::plain);
          std::reverse(row.begin(), row.end());
        }
        call.out("dx", dx);
      });
}

void add_cumsum(std::vector<Specimen>& out) {
  add(out, "cumsum",
      {{"from_the_end", 8, "y[i] = x[i] + ... + x[n-1]", "any", V::bug,
        "revers|direction|from the last|from the end|transpos|another|backward", cumsum(Scan::from_the_end)},
       {"doubling_in_place", 38, "a doubling scan with one buffer, whose steps read what they have just written",
        "above two numbers", V::bug, "twice|duplicate|counted|another|factor|race|more than once|too often",
        cumsum(Scan::doubling_in_place)},
       {"gradient_without_last", 14, "no dx holds dy[n-1]", "any", V::bug,
        "last|off by one|term missing|missing term|without the term|lost|tail|leaves out|left out|zero",
        cumsum(Scan::gradient_without_last)},
       {"gradient_of_block", 40, "backward starts again at each block of 16", "above 16 numbers", V::bug,
        "carr|block|lost|leaves out|left out|starts again", cumsum(Scan::gradient_of_block), kAllTypes, V::structural}},
      {{"up_and_down", "Blelloch's scan: sums up a tree, prefixes down it", cumsum(Scan::up_and_down)}});
}

// ---- max and min ----

enum class Extreme { plain, lanes, place_of_8_bits, gradient_negated, lanes_without_last };

/// Place of the winner; sign -1: of the smallest.
std::size_t winner(const Values& x, float sign, Extreme twist) {
  const auto wins = [&](std::size_t a, std::size_t b) {
    return x[a] == x[a] && (x[b] != x[b] || sign * x[b] > sign * x[a]);
  };
  const std::size_t lanes = twist == Extreme::lanes || twist == Extreme::lanes_without_last ? 32 : 1;
  std::size_t best = 0;
  const std::size_t used = twist == Extreme::lanes_without_last && x.size() > 31 ? 31 : lanes;
  for (std::size_t lane = 0; lane < std::min(used, x.size()); ++lane) {
    std::size_t own = lane;
    for (std::size_t i = lane; i < x.size(); i += lanes)
      if (wins(own, i)) own = i;
    if (lane == 0 || wins(best, own)) best = own;
  }
  return best;
}

Kernel extreme(float sign, Extreme twist) {
  return kernel_of(
      [=](const Call& call) {
        const Values x = call.in("x");
        const AxisLines lines(call);
        Values y;
        for (std::int64_t k = 0; k < lines.count; ++k) {
          const Values line = lines.line(x, k);
          y.push_back(line[winner(line, sign, twist)]);
        }
        call.out("y", y);
      },
      [=](const Call& call) {
        const Values x = call.in("x"), g = call.in("dy");
        const AxisLines lines(call);
        Values dx(x.size());
        for (std::int64_t k = 0; k < lines.count; ++k) {
          std::size_t at = winner(lines.line(x, k), sign, twist);
          if (twist == Extreme::place_of_8_bits) at &= 0xff;
          dx[lines.at(k, static_cast<std::int64_t>(at))] =
              twist == Extreme::gradient_negated ? -g[index_of(k)] : g[index_of(k)];
        }
        call.out("dx", dx);
      });
}

void add_extremes(std::vector<Specimen>& out) {
  add(out, "max",
      {{"place_of_8_bits", 22, "the place of the largest is saved in 8 bits", "lines above 256", V::bug,
        "index|another|wrap|place|position|shift|zero|bits", extreme(1, Extreme::place_of_8_bits), kAllTypes,
        V::non_smooth},
       {"lane_31_lost", 40, "of 32 lanes that share a line the last one's winner is not asked for",
        "above 31 numbers, the largest in that lane", V::bug,
        "lost|lane|leaves out|left out|stride|another|last|tail|not the NaN|finite where|hides|block",
        extreme(1, Extreme::lanes_without_last), kAllTypes, V::structural}},
      {{"lanes", "32 lanes, then their winners", extreme(1, Extreme::lanes)}});
  add(out, "min",
      {{"gradient_of_negated", 2, "dx = -g at the smallest, as of -max(-x) without the chain rule", "any", V::bug,
        "sign|negat|factor", extreme(-1, Extreme::gradient_negated), kAllTypes, V::non_smooth}},
      {{"lanes", "32 lanes, then their winners", extreme(-1, Extreme::lanes)}});
}

}  // namespace

std::vector<Specimen> unseen_sum_specimens() {
  std::vector<Specimen> out;
  add_sums(out);
  add_cumsum(out);
  add_extremes(out);
  return out;
}

}  // namespace ampcheck::checks::zoo
