// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
// linear and embedding: tiles, layouts and counts that are not the ones that are due.
#include <algorithm>

#include "checks/zoo/kit.h"

namespace ampcheck::checks::zoo {

namespace {

using V = Verdict;

enum class Twist {
  none,
  bias_subtracted,
  bias_of_first_tile,
  tile_of_k_lost,
  split_in_fp16,
  cotangent_of_row_before,
  dweight_transposed,
  dweight_over_rows,
  dx_halved_weight,
};

struct Extents {
  std::int64_t n, k, m;
  explicit Extents(const Call& call) : n(call.shape("x")[0]), k(call.shape("x")[1]), m(call.shape("weight")[0]) {}
};

/// Four parts of a sum, each kept in fp16.
float split_in_fp16(std::span<const Term> terms) {
  const std::size_t size = std::max<std::size_t>(1, (terms.size() + 3) / 4);
  float s = 0;
  for (std::size_t i = 0; i < terms.size(); i += size)
    s += fp16(in_order(terms.subspan(i, std::min(size, terms.size() - i))));
  return s;
}

void linear_forward(const Call& call, Twist twist) {
  const Extents e(call);
  const Values x = call.in("x"), w = call.in("weight"), bias = call.has("bias") ? call.in("bias") : Values();
  Values y;
  for (std::int64_t i = 0; i < e.n; ++i)
    for (std::int64_t j = 0; j < e.m; ++j) {
      const Sum sum = twist == Twist::split_in_fp16 ? split_in_fp16 : in_order;
      const float v = total(sum, e.k, [&](std::int64_t k) {
        const bool lost = twist == Twist::tile_of_k_lost && k / 16 == 1;
        return lost ? Term{0} : Term{x[index_of(i * e.k + k)], w[index_of(j * e.k + k)]};
      });
      const float b = bias.empty() ? 0.0f : bias[index_of(twist == Twist::bias_of_first_tile ? j % 16 : j)];
      y.push_back(bias.empty() ? v : twist == Twist::bias_subtracted ? v - b : v + b);
    }
  call.out("y", y);
}

void linear_backward(const Call& call, Twist twist) {
  const Extents e(call);
  const Values x = call.in("x"), w = call.in("weight"), g = call.in("dy");
  Values dx, dweight(index_of(e.m * e.k)), dbias;
  for (std::int64_t i = 0; i < e.n; ++i)
    for (std::int64_t k = 0; k < e.k; ++k)
      dx.push_back(total(in_order, e.m, [&](std::int64_t j) {
        return Term{g[index_of(i * e.m + j)], w[index_of(j * e.k + k)]};
      }));
  for (std::int64_t j = 0; j < e.m; ++j) {
    for (std::int64_t k = 0; k < e.k; ++k) {
      float v = total(in_order, e.n, [&](std::int64_t i) {
        const std::int64_t of = twist == Twist::cotangent_of_row_before ? std::max<std::int64_t>(i - 1, 0) : i;
        return Term{g[index_of(of * e.m + j)], x[index_of(i * e.k + k)]};
      });
      if (twist == Twist::dweight_over_rows) v /= static_cast<float>(e.n);
      dweight[index_of(twist == Twist::dweight_transposed ? k * e.m + j : j * e.k + k)] = v;
    }
    dbias.push_back(total(in_order, e.n, [&](std::int64_t i) { return Term{g[index_of(i * e.m + j)]}; }));
  }
  if (twist == Twist::dx_halved_weight)
    for (float& v : dx) v *= 0.5f;
  call.out("dx", dx);
  call.out("dweight", dweight);
  call.out("dbias", dbias);
}

Kernel linear(Twist twist) {
  return kernel_of([=](const Call& call) { linear_forward(call, twist); },
                   [=](const Call& call) { linear_backward(call, twist); });
}

// ---- embedding ----

enum class Entry { none, index_before, over_count, first_row_is_padding, gradient_twice, in_fp16 };

Kernel embedding(Entry twist) {
  const auto forward = [twist](const Call& call) {
    const Values weight = call.in("weight");
    const std::int64_t d = call.columns("weight"), entries = call.shape("weight")[0];
    Values y;
    for (std::int64_t row : call.whole("index")) {
      if (twist == Entry::index_before) row = (row + entries - 1) % entries;
      for (std::int64_t i = 0; i < d; ++i) y.push_back(weight[index_of(row * d + i)]);
    }
    call.out("y", y);
  };
  const auto backward = [twist](const Call& call) {
    if (!call.has("dweight")) return;
    const Values dy = call.in("dy");
    Values dweight = call.in("dweight");
    const std::int64_t d = call.columns("weight"), padding = call.integer("padding_idx");
    const auto index = call.whole("index");
    for (std::size_t n = 0; n < index.size(); ++n) {
      const std::int64_t row = index[n];
      if (row == padding || (twist == Entry::first_row_is_padding && row == 0)) continue;
      const auto count = static_cast<float>(twist == Entry::over_count ? std::ssize(index) : 1);
      for (std::int64_t i = 0; i < d; ++i) {
        float& to = dweight[index_of(row * d + i)];
        const float g = dy[n * index_of(d) + index_of(i)];
        to += twist == Entry::gradient_twice ? 2 * g : g / count;
        if (twist == Entry::in_fp16) to = fp16(to);
      }
    }
    call.out("dweight", dweight);
  };
  return kernel_of(forward, backward);
}

}  // namespace

std::vector<Specimen> further_product_specimens() {
  std::vector<Specimen> out;
  add(out, "linear",
      {{"bias_subtracted", 2, "y = x weight^T - bias", "any bias", V::bug, "sign|minus|subtract|negat",
        linear(Twist::bias_subtracted)},
       {"bias_repeats", 22, "columns beyond 16 take the bias of the first tile again", "more than 16 columns", V::bug,
        "bias|another|shift|tile|index|permut|offset|block|tail|repeat", linear(Twist::bias_of_first_tile), kAllTypes,
        V::structural},
       {"tile_of_k_lost", 40, "the second tile of 16 of K is lost", "K above 16", V::bug,
        "lost|leaves out|left out|block|missing|tile|without", linear(Twist::tile_of_k_lost), kAllTypes, V::structural},
       {"split_k_in_fp16", 23, "split-K with partial sums in fp16", "any", V::precision_contract, "partial|split",
        linear(Twist::split_in_fp16), kAllTypes, V::bug},
       {"dweight_of_shifted_rows", 17, "dweight meets the cotangent of the row before", "more than one row", V::bug,
        "another row|row before|shift|off by one|stale|neighbour|index", linear(Twist::cotangent_of_row_before),
        kAllTypes, V::structural},
       {"dweight_stored_transposed", 7, "dweight is stored as [K, M]", "K and M above 1", V::bug,
        "transpos|axes|permut|exchang|another|order|index", linear(Twist::dweight_transposed), kAllTypes,
        V::structural},
       {"dweight_mean", 42, "dweight is the mean over rows", "more than one row", V::bug, "factor|count|mean|divid",
        linear(Twist::dweight_over_rows)},
       {"dx_halved", 1, "dx is half of what is due", "any", V::bug, "factor|half|0.5|twice",
        linear(Twist::dx_halved_weight)}},
      {});
  add(out, "embedding",
      {{"row_before", 14, "y is the row before that of the index, as of numbers that begin at 1", "any", V::bug,
        "off by one|another|index|shift|row before|neighbour", embedding(Entry::index_before), kAllTypes,
        V::structural},
       {"gradient_over_count", 42, "dweight is divided by the number of indices", "more than one index", V::bug,
        "factor|count|mean|divid", embedding(Entry::over_count)},
       {"first_row_is_padding", 34, "row 0 has no gradient, whatever padding_idx is", "index 0", V::bug,
        "zero|padding|attribute|first row|lost|mask|row 0|sentinel|missing", embedding(Entry::first_row_is_padding),
        kAllTypes, V::structural},
       {"gradient_twice", 40, "each cotangent is added twice", "any", V::bug, "factor|twice",
        embedding(Entry::gradient_twice), kAllTypes, V::structural},
       {"dweight_in_fp16",
        24,
        "dweight is added up in fp16",
        "any",
        V::precision_contract,
        "fp16|accumulates|rounded|stored|keeps|takes",
        embedding(Entry::in_fp16),
        {Dtype::fp32, Dtype::bf16},
        V::bug}},
      {});
  return out;
}

}  // namespace ampcheck::checks::zoo
