// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
// embedding: rows, columns and tokens that a gather or a scatter loses or takes for others.
#include <algorithm>

#include "checks/zoo/kit.h"

namespace ampcheck::checks::zoo {

namespace {

using V = Verdict;

enum class Twist {
  none,
  // Forward.
  row_of_token,
  norm_at_most_one,
  columns_of_4,
  columns_of_1024,
  first_lane_for_warp,
  row_pitch_rounded_up,
  sentinel_in_the_middle,
  // Backward.
  pitch_of_tokens,
  last_segment_lost,
  padding_by_token,
  stops_at_padding,
  neighbours_merged,
  segment_in_storage,
  scaled_by_count_of_batch,
};

void forward(const Call& call, Twist twist) {
  const Values weight = call.in("weight");
  const auto index = call.whole("index");
  const std::int64_t rows = call.shape("weight")[0], d = call.columns("weight"), padding = call.integer("padding_idx");
  Values y;
  for (std::int64_t n = 0; n < std::ssize(index); ++n) {
    std::int64_t row = index[index_of(n)];
    if (twist == Twist::row_of_token) row = n % rows;
    if (twist == Twist::first_lane_for_warp) row = index[index_of(n / 4 * 4)];
    // A row that was taken out of the table moves those behind it up.
    if (twist == Twist::sentinel_in_the_middle && padding >= 0 && row > padding) --row;
    const std::int64_t pitch = twist == Twist::row_pitch_rounded_up ? (d + 7) / 8 * 8 : d;
    const auto at = [&](std::int64_t i) { return weight[index_of((row * pitch + i) % std::ssize(weight))]; };
    float squares = 0;
    for (std::int64_t i = 0; i < d; ++i) squares += at(i) * at(i);
    const float norm = std::sqrt(squares);
    for (std::int64_t i = 0; i < d; ++i) {
      const bool lost =
          (twist == Twist::columns_of_4 && i >= d / 4 * 4) || (twist == Twist::columns_of_1024 && i >= 1024);
      const float v = twist == Twist::norm_at_most_one && norm > 1 ? at(i) / norm : at(i);
      y.push_back(lost ? 0.0f : v);
    }
  }
  call.out("y", y);
}

/// Whether backward passes over token n.
bool passed_over(const std::vector<std::int64_t>& index, std::int64_t n, std::int64_t padding, Twist twist) {
  const std::int64_t row = index[index_of(n)];
  if (twist == Twist::padding_by_token) return n == padding;
  if (twist == Twist::stops_at_padding)
    return std::find(index.begin(), index.begin() + n + 1, padding) != index.begin() + n + 1;
  // Sorted by row, a run is written when the next one begins, and none begins after the last.
  if (twist == Twist::last_segment_lost && row == *std::ranges::max_element(index)) return true;
  // Of two neighbours of one row, the second finds its sum taken already.
  if (twist == Twist::neighbours_merged && n % 2 == 1 && index[index_of(n - 1)] == row) return true;
  return row == padding;
}

void backward(const Call& call, Twist twist) {
  if (!call.has("dweight")) return;
  const Values dy = call.in("dy");
  Values dweight = call.in("dweight");
  const auto index = call.whole("index");
  const std::int64_t d = call.columns("weight"), padding = call.integer("padding_idx"), tokens = std::ssize(index);
  Values sum(dweight.size());
  for (std::int64_t n = 0; n < tokens; ++n) {
    if (passed_over(index, n, padding, twist)) continue;
    for (std::int64_t i = 0; i < d; ++i) {
      const std::int64_t from = twist == Twist::pitch_of_tokens ? i * tokens + n : n * d + i;
      float& to = sum[index_of(index[index_of(n)] * d + i)];
      to += dy[index_of(from)];
      if (twist == Twist::segment_in_storage) to = rounded(call.dtype("weight"), to);
    }
  }
  const float share = twist == Twist::scaled_by_count_of_batch ? std::sqrt(static_cast<float>(tokens)) : 1;
  for (std::size_t at = 0; at < sum.size(); ++at) dweight[at] += sum[at] / share;
  call.out("dweight", dweight);
}

Kernel embedding(Twist of_forward, Twist of_backward = Twist::none) {
  return kernel_of([=](const Call& call) { forward(call, of_forward); },
                   [=](const Call& call) { backward(call, of_backward); });
}
Kernel back(Twist twist) { return embedding(Twist::none, twist); }

}  // namespace

std::vector<Specimen> shop_lookup_specimens() {
  std::vector<Specimen> out;
  add(out, "embedding",
      {{"row_of_token", 34, "y[n] is the row n mod V, whatever the index is, as a table of positions", "any", V::bug,
        "another row|index|position|place|rows are not independent|changes with other rows",
        embedding(Twist::row_of_token), kAllTypes, V::structural},
       {"norm_at_most_one", 45, "rows longer than 1 are scaled to length 1, as with max_norm", "rows longer than 1",
        V::bug, "norm|length|factor|scale|root of the sum", embedding(Twist::norm_at_most_one)},
       {"columns_behind_vectors_zero", 13, "columns after the last full vector of 4 are 0", "D no multiple of 4",
        V::bug, "tail|last|zero|lost|leaves out|left out|column|vector", embedding(Twist::columns_of_4), kAllTypes,
        V::structural},
       {"columns_of_1024", 12, "columns beyond 1024, the largest block, are 0", "D above 1024", V::bug,
        "tail|last|zero|lost|leaves out|left out|column|1024|beyond|block", embedding(Twist::columns_of_1024),
        kAllTypes, V::structural},
       {"first_lane_for_warp", 45, "four tokens take the index of the first of them", "more than one token",
        V::structural, "another row|index|first|rows are not independent|changes with other rows|group|row before",
        embedding(Twist::first_lane_for_warp), kAllTypes, V::bug},
       {"row_pitch_rounded_up", 20, "rows of the table are taken to begin at multiples of 8", "D no multiple of 8",
        V::bug, "stride|pitch|index|shift|another row|multiple of 8|offset|padd",
        embedding(Twist::row_pitch_rounded_up), kAllTypes, V::structural},
       {"rows_behind_padding_moved", 34, "rows behind padding_idx are read one too early, as if it were not stored",
        "padding_idx given", V::bug, "another row|index|shift|row before|off by one|padding",
        embedding(Twist::sentinel_in_the_middle), kAllTypes, V::structural},
       {"cotangent_by_columns", 7, "dy is read as [D, N]", "N and D above 1", V::bug,
        "transpos|exchang|axes|permut|layout|stride|index|another row", back(Twist::pitch_of_tokens), kAllTypes,
        V::structural},
       {"run_of_largest_unwritten", 11, "the largest index of the batch has no gradient: its run is never written",
        "any", V::bug, "last|lost|leaves out|left out|missing|largest|no gradient|zero", back(Twist::last_segment_lost),
        kAllTypes, V::structural},
       {"padding_by_token", 34, "token padding_idx has no gradient, not the row padding_idx", "padding_idx given",
        V::bug, "token|position|lost|leaves out|left out|sentinel|mask", back(Twist::padding_by_token), kAllTypes,
        V::structural},
       {"stops_at_padding", 34, "the loop ends at the first padding_idx, which it should pass over",
        "padding_idx among the indices", V::bug, "padding|lost|leaves out|left out|after|stops|ends|missing|tail",
        back(Twist::stops_at_padding), kAllTypes, V::structural},
       {"neighbours_merged", 40, "of two neighbours with one index the second is lost", "equal neighbours", V::bug,
        "duplicate|lost|leaves out|left out|equal|neighbour|missing", back(Twist::neighbours_merged), kAllTypes,
        V::structural},
       {"added_in_storage", 23, "dweight is added up in the storage type", "indices that occur often",
        V::precision_contract, "accumulates in|rounded|stored|keeps|takes", back(Twist::segment_in_storage), kHalfTypes,
        V::bug},
       {"gradient_over_root_of_count", 1, "dweight is divided by the root of the number of tokens",
        "more than one token", V::bug, "factor|count|root|sqrt|scale|divid", back(Twist::scaled_by_count_of_batch)}},
      {});
  return out;
}

}  // namespace ampcheck::checks::zoo
