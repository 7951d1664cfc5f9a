// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
// Sums, losses, extremes and embedding of the zoo that were its unseen part once; rules have followed from them since.
#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdint>
#include <memory>

#include "checks/zoo/kit.h"

namespace ampcheck::checks::zoo {

namespace {

using V = Verdict;

// ---- sum and mean ----

using LineSum = float (*)(const Values&);

float one_by_one(const Values& x) {
  float s = 0;
  for (const float v : x) s += v;
  return s;
}
/// 32 strided lanes, of which the butterfly misses its first step.
float without_upper_lanes(const Values& x) {
  float lane[32] = {};
  for (std::size_t i = 0; i < x.size(); ++i) lane[i % 32] += x[i];
  for (std::size_t step = 8; step > 0; step /= 2)
    for (std::size_t i = 0; i < step; ++i) lane[i] += lane[i + step];
  return lane[0];
}
/// The upper half is added to the lower one until one number is left.
float folded(const Values& x) {
  Values left = x;
  while (left.size() > 1) {
    const std::size_t kept = (left.size() + 1) / 2;
    for (std::size_t i = kept; i < left.size(); ++i) left[i - kept] += left[i];
    left.resize(kept);
  }
  return left.empty() ? 0.0f : left[0];
}
/// The sum and the sum of its rounding errors: Neumaier 1974.
float with_errors(const Values& x) {
  float s = 0, lost = 0;
  for (const float v : x) {
    const float next = s + v;
    if (std::isfinite(next)) lost += std::fabs(s) >= std::fabs(v) ? (s - next) + v : (v - next) + s;
    s = next;
  }
  return std::isfinite(s) ? s + lost : s;
}

enum class Count { none, division, reciprocal_in_bf16 };

Kernel sums(LineSum sum, Count by, bool keeps_workspace = false) {
  const auto workspace = std::make_shared<std::atomic<float>>(0.0f);
  return kernel_of(
      [=](const Call& call) {
        const Values x = call.in("x");
        const AxisLines lines(call);
        const auto n = static_cast<float>(lines.length);
        Values y;
        for (std::int64_t k = 0; k < lines.count; ++k) {
          float s = sum(lines.line(x, k));
          if (keeps_workspace && k == 0) s += workspace->load();
          if (keeps_workspace && k + 1 == lines.count) workspace->store(s);
          if (by == Count::division) s /= n;
          if (by == Count::reciprocal_in_bf16) s *= bf16(1 / n);
          y.push_back(s);
        }
        call.out("y", y);
      },
      [=](const Call& call) {
        const Values g = call.in("dy");
        const AxisLines lines(call);
        Values dx(index_of(call.shape("x").count()));
        for (std::int64_t k = 0; k < lines.count; ++k)
          for (std::int64_t i = 0; i < lines.length; ++i)
            dx[lines.at(k, i)] = by == Count::none ? g[index_of(k)] : g[index_of(k)] / static_cast<float>(lines.length);
        call.out("dx", dx);
      });
}

void add_sums(std::vector<Specimen>& out) {
  add(out, "sum",
      {{"upper_lanes_lost", 40, "the butterfly misses its first step: lanes 16 to 31 are lost", "more than 16 numbers",
        V::bug, "lost|lanes|leaves out|left out|half|stride", sums(without_upper_lanes, Count::none)}},
      {{"folded", "the upper half on the lower, until one is left", sums(folded, Count::none)},
       {"with_errors", "Neumaier's sum", sums(with_errors, Count::none)}});
  add(out, "mean",
      {{"reciprocal_in_bf16", 26, "times 1/n, which is rounded to bf16", "n no power of two", V::precision_contract,
        "rounded|stored|factor|count|keeps|takes", sums(one_by_one, Count::reciprocal_in_bf16), kAllTypes, V::bug},
       {"workspace_kept", 17, "the first sum begins with what the launch before left", "the second call", V::structural,
        "repeats differ|earlier calls|stale", sums(one_by_one, Count::division, true), kAllTypes, V::bug}},
      {{"folded", "the upper half on the lower, until one is left", sums(folded, Count::division)}});
}

// ---- cumsum and mse_loss ----

/// Blocks of 32; of the carry into a block, the sum of the block before counts twice from the third block on.
Kernel cumsum() {
  return kernel_of(
      [](const Call& call) {
        const Values x = call.in("x");
        const std::int64_t n = call.columns("x");
        Values y;
        for (std::int64_t r = 0; r < call.rows("x"); ++r) {
          float carry = 0, before = 0, own = 0;
          for (std::int64_t i = 0; i < n; ++i) {
            if (i > 0 && i % 32 == 0) {
              carry += own;
              before = i > 32 ? own : 0.0f;
              own = 0;
            }
            own += x[index_of(r * n + i)];
            y.push_back(carry + before + own);
          }
        }
        call.out("y", y);
      },
      [](const Call& call) {
        Values dx = call.in("dy");
        const std::size_t n = index_of(call.columns("x"));
        for (std::size_t at = dx.size(); at-- > 0;)
          if (at % n != n - 1) dx[at] += dx[at + 1];
        call.out("dx", dx);
      });
}

enum class Loss { plain, summed, difference_in_storage };

Kernel mse_loss(Loss loss) {
  return kernel_of(
      [loss](const Call& call) {
        const Values x = call.in("x"), target = call.in("target");
        const std::size_t n = index_of(call.columns("x"));
        float whole = 0, row = 0;
        for (std::size_t i = 0; i < x.size(); ++i) {
          float d = x[i] - target[i];
          if (loss == Loss::difference_in_storage) d = rounded(call.dtype("x"), d);
          row += d * d;
          if (i % n != n - 1) continue;
          whole += row;
          row = 0;
        }
        call.out("loss", {loss == Loss::summed ? whole : whole / static_cast<float>(x.size())});
      },
      [](const Call& call) {
        const Values x = call.in("x"), target = call.in("target");
        const float g = call.in("dloss").at(0), factor = 2 / static_cast<float>(x.size());
        Values dx, dtarget;
        for (std::size_t i = 0; i < x.size(); ++i) {
          dx.push_back(g * factor * (x[i] - target[i]));
          dtarget.push_back(-dx.back());
        }
        call.out("dx", dx);
        call.out("dtarget", dtarget);
      });
}

void add_losses(std::vector<Specimen>& out) {
  add(out, "cumsum",
      {{"carry_twice", 40, "of the carry into a block, the block before counts twice", "more than 64 numbers", V::bug,
        "twice|carr|duplicate|counted|block", cumsum()}},
      {});
  add(out, "mse_loss",
      {{"summed", 42, "the loss is the sum, its gradient that of the mean", "any", V::bug, "factor|count|mean",
        mse_loss(Loss::summed)},
       {"difference_in_storage", 25, "x - target is rounded to the storage type before it is squared", "any",
        V::precision_contract, "rounded|stored|keeps|takes", mse_loss(Loss::difference_in_storage), kHalfTypes,
        V::bug}},
      {{"rows_first", "the sums of rows, then their sum", mse_loss(Loss::plain)}});
}

// ---- max and min: `wins(a, b)` says whether b, which stands behind a, takes its place. ----

using Wins = bool (*)(float a, float b);

/// As integers: what is meant for positive floats. Zeros and NaN are taken care of.
bool larger_as_integer(float a, float b) {
  const auto key = [](float v) { return v == 0 ? 0 : std::bit_cast<std::int32_t>(v); };
  return a == a && (b != b || key(b) > key(a));
}
bool smaller(float a, float b) { return a == a && (b != b || b < a); }

struct Search {
  Wins wins;
  std::int64_t block = 0;  ///< 0: in order, else blocks of so many, and then their winners
  bool has_start = false;
  float start = 0;  ///< where the search begins, if it does not begin at the first element

  /// Index of the winner, -1 if it is `start`.
  std::int64_t winner(const Values& x) const {
    const auto n = static_cast<std::int64_t>(x.size());
    const auto better = [&](std::int64_t a, std::int64_t b) {
      return a < 0 ? !has_start || wins(start, x[index_of(b)]) : wins(x[index_of(a)], x[index_of(b)]);
    };
    std::int64_t best = -1;
    for (std::int64_t begin = 0, step = block > 0 ? block : n; begin < n; begin += step) {
      std::int64_t own = block > 0 ? begin : best;
      for (std::int64_t i = begin; i < std::min(begin + step, n); ++i)
        if (i != own && better(own, i)) own = i;
      if (block == 0 || better(best, own)) best = own;
    }
    return best;
  }
};

Kernel extreme(Search search) {
  return kernel_of(
      [search](const Call& call) {
        const Values x = call.in("x");
        const AxisLines lines(call);
        Values y;
        for (std::int64_t k = 0; k < lines.count; ++k) {
          const std::int64_t at = search.winner(lines.line(x, k));
          y.push_back(at < 0 ? search.start : x[lines.at(k, at)]);
        }
        call.out("y", y);
      },
      [search](const Call& call) {
        const Values x = call.in("x"), g = call.in("dy");
        const AxisLines lines(call);
        Values dx(x.size());
        for (std::int64_t k = 0; k < lines.count; ++k) {
          const std::int64_t at = search.winner(lines.line(x, k));
          if (at >= 0) dx[lines.at(k, at)] = g[index_of(k)];
        }
        call.out("dx", dx);
      });
}

void add_extremes(std::vector<Specimen>& out) {
  add(out, "max",
      {{"by_bits", 2, "the bits are compared as integers, which turns the order of negative numbers",
        "lines of negative numbers", V::bug, "sign|negative|integer|smallest|least|another",
        extreme({larger_as_integer}), kAllTypes, V::structural}},
      {});
  add(out, "min",
      {{"starts_from_65504",
        44,
        "the search begins at 65504",
        "lines above that",
        V::bug,
        "constant|satur|clip|clamp|border|padding|65504|sentinel|limit|finite where|not the NaN",
        extreme({smaller, 0, true, 65504.0f}),
        {Dtype::fp32, Dtype::bf16},
        V::structural}},
      {{"by_blocks", "blocks of 8, then their winners", extreme({smaller, 8})}});
}

}  // namespace

std::vector<Specimen> common_sum_specimens() {
  std::vector<Specimen> out;
  add_sums(out);
  add_losses(out);
  add_extremes(out);
  return out;
}

}  // namespace ampcheck::checks::zoo
