// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
// Running sums, sums and means as they go wrong in daily work: carries, strides, counts.
#include <algorithm>
#include <numeric>

#include "checks/zoo/kit.h"

namespace ampcheck::checks::zoo {

namespace {

using V = Verdict;

/// Running sums of a row, from the first number on.
using Scan = void (*)(std::span<float>);

void one_by_one(std::span<float> row) { std::partial_sum(row.begin(), row.end(), row.begin()); }
void from_the_end(std::span<float> row) {
  std::reverse(row.begin(), row.end());
  one_by_one(row);
  std::reverse(row.begin(), row.end());
}

/// Each number takes the one 1, 2, 4, .. before it, which has its own sum already: a barrier is missing.
void in_place_from_front(std::span<float> row) {
  for (std::size_t step = 1; step < row.size(); step *= 2)
    for (std::size_t i = step; i < row.size(); ++i) row[i] += row[i - step];
}
/// The carry out of a block of 32 is the sum in lane 30.
void carry_of_lane_30(std::span<float> row) {
  float carry = 0;
  for (std::size_t begin = 0; begin < row.size(); begin += 32) {
    const auto block = row.subspan(begin, std::min<std::size_t>(32, row.size() - begin));
    one_by_one(block);
    const float out = block[block.size() < 2 ? 0 : block.size() - 2];
    for (float& v : block) v += carry;
    carry += out;
  }
}
void by_difference(std::span<float> row) {
  const float all = std::accumulate(row.begin(), row.end(), 0.0f);
  float before = 0;
  for (float& v : row) {
    const float own = v;
    v = all - before;
    before += own;
  }
}
/// Blocks of 32 are summed from their end, what is carried comes from the blocks on the left.
void carry_from_left(std::span<float> row) {
  float carry = 0;
  for (std::size_t begin = 0; begin < row.size(); begin += 32) {
    const auto block = row.subspan(begin, std::min<std::size_t>(32, row.size() - begin));
    from_the_end(block);
    const float own = block[0];
    for (float& v : block) v += carry;
    carry += own;
  }
}

Kernel cumsum(Scan forward, Scan backward) {
  const auto rows = [](const Call& call, const char* from, const char* to, Scan scan) {
    Values values = call.in(from);
    const auto n = index_of(call.columns(from));
    for (std::size_t begin = 0; n > 0 && begin < values.size(); begin += n) scan(std::span(values).subspan(begin, n));
    call.out(to, values);
  };
  return kernel_of([=](const Call& call) { rows(call, "x", "y", forward); },
                   [=](const Call& call) { rows(call, "dy", "dx", backward); });
}

enum class Twist { stride_by_other_extent, gradient_by_row, whole_reciprocal, count_of_nonzero, divided_in_storage };

Kernel reduction(Twist twist, bool mean) {
  const auto forward = [=](const Call& call) {
    const Values x = call.in("x");
    const AxisLines lines(call);
    const bool turned = twist == Twist::stride_by_other_extent && lines.step != 1;
    Values y;
    for (std::int64_t r = 0; r < lines.count; ++r) {
      const auto size = static_cast<float>(lines.length);
      float sum = 0, nonzero = 0;
      for (std::int64_t i = 0; i < lines.length; ++i) {
        const float v = x[turned ? index_of(r + i * lines.length) % x.size() : lines.at(r, i)];
        sum += twist == Twist::divided_in_storage ? rounded(call.dtype("x"), v / size) : v;
        if (v != 0) ++nonzero;
      }
      if (twist == Twist::count_of_nonzero) sum /= nonzero == 0 ? 1 : nonzero;
      if (mean && twist != Twist::count_of_nonzero && twist != Twist::divided_in_storage) sum /= size;
      y.push_back(sum);
    }
    call.out("y", y);
  };
  const auto backward = [=](const Call& call) {
    const Values g = call.in("dy");
    const AxisLines lines(call);
    const bool by_row = twist == Twist::gradient_by_row && lines.step != 1;
    Values dx(call.in("x").size());
    for (std::int64_t r = 0; r < lines.count; ++r)
      for (std::int64_t i = 0; i < lines.length; ++i) {
        float v = g[index_of(by_row ? i % lines.count : r)];
        if (twist == Twist::whole_reciprocal)
          v *= static_cast<float>(1 / lines.length);
        else if (mean)
          v /= static_cast<float>(lines.length);
        dx[lines.at(r, i)] = v;
      }
    call.out("dx", dx);
  };
  return kernel_of(forward, backward);
}

}  // namespace

std::vector<Specimen> daily_sum_specimens() {
  std::vector<Specimen> out;
  add(out, "cumsum",
      {{"in_place_from_front", 38, "Hillis and Steele in place: a step reads what it has written, a barrier is missing",
        "more than two elements", V::bug, "race|twice|counted|in place|order|already|cumsum|running sum|again",
        cumsum(in_place_from_front, from_the_end)},
       {"gradient_by_difference", 25, "dx is the whole sum less the running one, which loses the digits of its end",
        "sums that are small beside the whole", V::precision_contract,
        "cancel|digits|total|difference|rounded|subtract|whole sum", cumsum(one_by_one, by_difference), kFp32, V::bug},
       {"gradient_carry_from_left", 8, "backward carries the blocks on the left, where those on the right are due",
        "more than 32 elements", V::bug, "carr|left|block|other end|wrong side|reversed|direction",
        cumsum(one_by_one, carry_from_left)},
       {"carry_of_lane_30", 14, "the carry out of a block of 32 leaves out its last element", "more than 32 elements",
        V::bug, "carr|off by one|last|block|fewer terms|lost", cumsum(carry_of_lane_30, from_the_end)}},
      {});
  add(out, "sum",
      {{"stride_by_other_extent", 20, "along the first axis rows are taken for N numbers long",
        "axis 0, N other than D", V::bug,
        "stride|index|another element|layout|axis|extent|transpos|other elements|row length",
        reduction(Twist::stride_by_other_extent, false), kAllTypes, V::structural},
       {"gradient_by_row", 8, "along the first axis dx takes the cotangent at the number of the row", "axis 0", V::bug,
        "axis|broadcast|index|transpos|another element|by row|number of the row",
        reduction(Twist::gradient_by_row, false), kAllTypes, V::structural}},
      {});
  add(out, "mean",
      {{"whole_reciprocal", 46, "1 / n of whole numbers is 0, and so is dx", "more than one element", V::bug,
        "dead|zero|integer|whole|never|does not depend", reduction(Twist::whole_reciprocal, true)},
       {"count_of_nonzero", 42, "the sum is divided by the number of elements that are not 0", "zeros", V::bug,
        "count|zero|nonzero|only where|divid|factor", reduction(Twist::count_of_nonzero, true)},
       {"divided_in_storage", 25, "each x / n is rounded to the storage type before it is added", "any",
        V::precision_contract, "rounded|stored|keeps", reduction(Twist::divided_in_storage, true), kHalfTypes, V::bug}},
      {});
  return out;
}

}  // namespace ampcheck::checks::zoo
