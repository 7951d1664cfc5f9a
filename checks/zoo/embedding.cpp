// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
// embedding: y[n] = weight[index[n]]; dweight[index[n]] += dy[n], but for padding_idx.
#include <algorithm>

#include "checks/zoo/kit.h"

namespace ampcheck::checks::zoo {

namespace {

enum class Twist {
  none,
  reversed,
  sorted,
  padding_counts,
  duplicates_lost,
  overwrites,
  off_by_one,
  in_bf16,
  last_row_clamped,
  atomics,
  index_of_8_bits,
  one_based,
  by_frequency,
  gradient_to_next
};

struct Style {
  Twist twist = Twist::none;
  Sum sum = in_order;
  Slip slip = {};
};

void forward(const Call& call, const Style& style) {
  const Values weight = call.in("weight");
  const auto index = call.whole("index");
  const std::int64_t rows = call.shape("weight")[0], d = call.columns("weight");
  Values y(index.size() * index_of(d));
  for (std::size_t n = 0; n < index.size(); ++n) {
    std::int64_t row = index[n];
    if (style.twist == Twist::last_row_clamped) row = std::min(row, std::max<std::int64_t>(rows - 2, 0));
    if (style.twist == Twist::index_of_8_bits) row &= 0xff;
    if (style.twist == Twist::one_based) row = std::max<std::int64_t>(row - 1, 0);
    std::copy_n(weight.begin() + row * d, d, y.begin() + static_cast<std::int64_t>(n) * d);
  }
  call.out("y", y);
}

void backward(const Call& call, const Style& style) {
  if (!call.has("dweight")) return;
  const Values dy = call.in("dy");
  Values dweight = call.in("dweight");
  const auto index = call.whole("index");
  const std::int64_t d = call.columns("weight"), padding = call.integer("padding_idx");
  std::vector<Terms> terms(dweight.size());
  for (std::size_t k = 0; k < index.size(); ++k) {
    const std::size_t n = style.twist == Twist::reversed ? index.size() - 1 - k : k;
    if (index[n] == padding && style.twist != Twist::padding_counts) continue;
    for (std::int64_t i = 0; i < d; ++i) {
      const std::int64_t rows = call.shape("weight")[0], to = style.twist == Twist::gradient_to_next ? 1 : 0;
      Terms& list = terms[index_of(std::min(index[n] + to, rows - 1) * d + i)];
      if (style.twist == Twist::duplicates_lost) list.clear();
      if (style.twist != Twist::off_by_one || n + 1 < index.size()) list.push_back({dy[n * index_of(d) + index_of(i)]});
    }
  }
  for (std::size_t at = 0; at < dweight.size(); ++at) {
    if (terms[at].empty()) continue;
    if (style.twist == Twist::overwrites) dweight[at] = 0;
    if (style.twist == Twist::sorted) {  // the segment first, then the buffer
      dweight[at] += style.sum(terms[at]);
      continue;
    }
    if (style.twist == Twist::by_frequency)
      for (Term& t : terms[at]) t.b = 1 / static_cast<float>(terms[at].size());
    terms[at].insert(terms[at].begin(), Term{dweight[at]});
    dweight[at] = style.sum(terms[at]);
  }
  call.out("dweight", dweight);
}

Kernel embedding(Style style) {
  return kernel_of([style](const Call& call) { forward(call, style); },
                   [style](const Call& call) { backward(call, style); }, style.slip);
}

using V = Verdict;

}  // namespace

std::vector<Specimen> embedding_specimens() {
  std::vector<Specimen> out;
  add(out, "embedding",
      {{"padding_counts", 34, "the row of padding_idx has a gradient", "padding_idx among the indices", V::bug,
        "padding|sentinel|accumulate|for mask|mask", embedding({Twist::padding_counts}), kAllTypes, V::structural},
       {"duplicates_lost", 40, "of equal indices only the last counts, as without atomics", "equal indices", V::bug,
        "duplicate|lost|accumulate|only the last of the terms", embedding({Twist::duplicates_lost}), kAllTypes,
        V::structural},
       {"overwrites", 16, "the gradient overwrites what the buffer held", "buffers that are not zero", V::structural,
        "accumulate", embedding({Twist::overwrites})},
       {"in_bf16", 23, "dweight accumulated in bf16", "equal indices", V::precision_contract, "accumulates in bf16",
        embedding({.sum = in_bf16})},
       {"last_token_lost", 14, "the last token has no gradient", "any", V::bug, "last|lost|accumulate",
        embedding({Twist::off_by_one}), kAllTypes, V::structural},
       {"last_row_clamped", 14, "indices are clamped to V-2", "the last row is asked for", V::bug,
        "another row|last row|clamp|off by one", embedding({Twist::last_row_clamped})},
       {"index_of_8_bits", 22, "the index is cut to 8 bits", "V above 256", V::bug, "another row|index|overflow",
        embedding({Twist::index_of_8_bits}), kAllTypes, V::structural},
       {"one_based", 34, "indices are taken to begin at 1", "any", V::bug, "another row|off by one|index|shift",
        embedding({Twist::one_based}), kAllTypes, V::structural},
       {"by_frequency", 42, "dweight is divided by how often the index occurs", "equal indices", V::bug,
        "factor|count|accumulate|frequen", embedding({Twist::by_frequency}), kAllTypes, V::structural},
       {"gradient_to_next", 34, "the gradient goes to the row after the one that was read", "any", V::bug,
        "another row|index|shift|accumulate", embedding({Twist::gradient_to_next}), kAllTypes, V::structural},
       {"unwritten_row", 15, "the last row of y is not written", "any", V::structural, "output buffer held|unwritten",
        embedding({.slip = {Io::drop_last_row, "y"}})},
       {"dense_weight", 19, "weight is read as if row-major", "strided weight", V::structural, "strided",
        embedding({.slip = {Io::read_dense, "weight"}})},
       {"atomics", 39, "atomics in any order, not declared", "equal indices, full mantissas; in 16 bits many of them",
        V::structural, "repeats differ", embedding({.sum = unordered})}},
      {{"reversed", "tokens from the last", embedding({Twist::reversed})},
       {"sorted", "by segments of equal indices", embedding({Twist::sorted})},
       {"pairwise", "pairwise sums", embedding({.sum = pairwise})}});
  return out;
}

}  // namespace ampcheck::checks::zoo
