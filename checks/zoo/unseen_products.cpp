// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
// linear and embedding of the unseen part of the zoo: written after public fixes of kernels, without a look at the
// rules.
#include <algorithm>
#include <cmath>

#include "checks/zoo/kit.h"

namespace ampcheck::checks::zoo {

namespace {

using V = Verdict;

const std::vector<Dtype> kE4m3 = {Dtype::e4m3fn};

// ---- linear ----

enum class Twist {
  none,
  bias_of_first_tile,
  sum_kept,
  dweight_transposed_if_square,
  dbias_of_first_block,
  weight_in_e5m2,
  small_operands_flushed,
  dweight_without_last_row,
};

struct Product {
  std::int64_t n, k, m;
  Twist twist;
  Sum sum;
  Values x, w;

  Product(const Call& call, Twist what, Sum how)
      : n(call.shape("x")[0]),
        k(call.shape("x")[1]),
        m(call.shape("weight")[0]),
        twist(what),
        sum(how),
        x(call.in("x")),
        w(call.in("weight")) {
    if (twist == Twist::weight_in_e5m2)
      for (float& v : w) v = rounded(Dtype::e5m2, v);
    if (twist == Twist::small_operands_flushed)
      for (Values* operand : {&x, &w})
        for (float& v : *operand)
          if (std::fabs(v) < 0x1p-14f) v = std::copysign(0.0f, v);
  }
};

void linear_forward(const Call& call, Twist twist, Sum sum) {
  const Product p(call, twist, sum);
  const Values bias = call.has("bias") ? call.in("bias") : Values();
  Values y;
  for (std::int64_t i = 0; i < p.n; ++i)
    for (std::int64_t j = 0; j < p.m; ++j) {
      float v = total(sum, p.k, [&](std::int64_t k) {
        return Term{p.x[index_of(i * p.k + k)], p.w[index_of(j * p.k + k)]};
      });
      // The second row of a pair begins where the first has ended.
      if (twist == Twist::sum_kept && i % 2 == 1)
        v += total(sum, p.k, [&](std::int64_t k) {
          return Term{p.x[index_of((i - 1) * p.k + k)], p.w[index_of(j * p.k + k)]};
        });
      if (!bias.empty()) v += bias[index_of(twist == Twist::bias_of_first_tile ? j % 16 : j)];
      y.push_back(v);
    }
  call.out("y", y);
}

void linear_backward(const Call& call, Twist twist, Sum sum) {
  const Product p(call, twist, sum);
  const Values g = call.in("dy");
  Values dx, dweight, dbias;
  for (std::int64_t i = 0; i < p.n; ++i)
    for (std::int64_t k = 0; k < p.k; ++k)
      dx.push_back(total(sum, p.m, [&](std::int64_t j) {
        return Term{g[index_of(i * p.m + j)], p.w[index_of(j * p.k + k)]};
      }));
  const std::int64_t rows = twist == Twist::dweight_without_last_row ? p.n - 1 : p.n;
  for (std::int64_t j = 0; j < p.m; ++j) {
    for (std::int64_t k = 0; k < p.k; ++k) {
      const bool turned = twist == Twist::dweight_transposed_if_square && p.m == p.k;
      const std::int64_t of_g = turned ? k : j, of_x = turned ? j : k;
      dweight.push_back(total(sum, rows, [&](std::int64_t i) {
        return Term{g[index_of(i * p.m + of_g)], p.x[index_of(i * p.k + of_x)]};
      }));
    }
    const std::int64_t used = twist == Twist::dbias_of_first_block ? std::min<std::int64_t>(p.n, 16) : p.n;
    dbias.push_back(total(in_order, used, [&](std::int64_t i) { return Term{g[index_of(i * p.m + j)]}; }));
  }
  call.out("dx", dx);
  call.out("dweight", dweight);
  call.out("dbias", dbias);
}

Kernel linear(Twist twist, Sum sum = in_order) {
  return kernel_of([=](const Call& call) { linear_forward(call, twist, sum); },
                   [=](const Call& call) { linear_backward(call, twist, sum); });
}

/// Even places of K in one accumulator, odd ones in another.
float even_and_odd(std::span<const Term> terms) {
  float sums[2] = {};
  for (std::size_t i = 0; i < terms.size(); ++i) sums[i % 2] = std::fma(terms[i].a, terms[i].b, sums[i % 2]);
  return sums[0] + sums[1];
}
/// Depth-first splits of K in three.
float in_thirds(std::span<const Term> terms) {
  if (terms.size() < 4) return in_order(terms);
  const std::size_t third = terms.size() / 3;
  return in_thirds(terms.first(third)) + in_thirds(terms.subspan(third, third)) + in_thirds(terms.subspan(2 * third));
}
/// Each product is rounded to fp16 before it is added in fp32.
float of_fp16_products(std::span<const Term> terms) {
  float s = 0;
  for (const Term& t : terms) s += fp16(t.product());
  return s;
}

void add_linear(std::vector<Specimen>& out) {
  add(out, "linear",
      {{"bias_of_first_tile", 22, "each tile of 16 columns adds the bias of the first", "more than 16 columns", V::bug,
        "bias|index|another|broadcast|tile|shift|block|repeat|first", linear(Twist::bias_of_first_tile), kAllTypes,
        V::structural},
       {"accumulator_not_cleared", 17, "the second row of a pair is added to the first", "more than one row",
        V::structural,
        "stale|rows are not independent|another row|row before|changes with other rows|previous row|every other row",
        linear(Twist::sum_kept), kAllTypes, V::bug},
       {"dweight_transposed_if_square", 7, "dweight is x^T dy where it is square", "K = M above 1", V::bug,
        "transpos|exchang|swap|axis", linear(Twist::dweight_transposed_if_square), kAllTypes, V::structural},
       {"dbias_of_first_block", 11, "dbias adds up the first 16 rows", "more than 16 rows", V::bug,
        "block|lost|tail|first|rows|last|left out|leaves out", linear(Twist::dbias_of_first_block), kAllTypes,
        V::structural},
       {"weight_in_e5m2", 43, "weights of e4m3 are taken as e5m2, with a bit less", "any", V::precision_contract,
        "rounded|operands|e5m2|takes|keeps|stored|bits", linear(Twist::weight_in_e5m2), kE4m3, V::bug},
       {"small_operands_flushed", 29, "subnormal operands of fp16 count as 0", "operands below 2^-14",
        V::precision_contract, "flush|subnormal|underflow|zero|small", linear(Twist::small_operands_flushed), kFp16,
        V::bug},
       {"dweight_without_last_row", 14, "dweight leaves out the last row", "any", V::bug,
        "last row|off by one|lost|tail|leaves out|left out|last term|last", linear(Twist::dweight_without_last_row),
        kAllTypes, V::structural},
       {"products_in_fp16", 25, "each product is rounded to fp16 before it is added in fp32", "any",
        V::precision_contract, "rounded|fp16|keeps|takes|overflow|infinite|stored|operands",
        linear(Twist::none, of_fp16_products), kNotBf16, V::bug}},
      {{"even_and_odd", "even places of K in one fma chain, odd ones in another", linear(Twist::none, even_and_odd)},
       {"in_thirds", "K split in three again and again", linear(Twist::none, in_thirds)},
       {"fp32_for_8_bits",
        "8-bit operands, sums in fp32",
        linear(Twist::none, in_lanes),
        "",
        {Dtype::e4m3fn, Dtype::e5m2}}});
}

// ---- embedding ----

enum class Entry {
  plain,
  two_halves,
  mean_over_tokens,
  columns_of_4,
  last_segment_lost,
  fp16_atomics,
  next_column,
};

/// Adds the gradients of the tokens between two places.
void scatter(const std::vector<std::int64_t>& index, std::size_t begin, std::size_t end, std::int64_t padding,
             const Values& dy, std::size_t d, Entry twist, Values& out) {
  const std::int64_t largest_index = index.empty() ? 0 : *std::ranges::max_element(index);
  const auto tokens = static_cast<float>(index.size());
  for (std::size_t token = begin; token < end; ++token) {
    const std::int64_t row = index[token];
    if (row == padding || (twist == Entry::last_segment_lost && row == largest_index)) continue;
    for (std::size_t i = 0; i < d; ++i) {
      if (twist == Entry::columns_of_4 && i >= d / 4 * 4) continue;
      const float g = twist == Entry::mean_over_tokens ? dy[token * d + i] / tokens : dy[token * d + i];
      const std::size_t column = twist == Entry::next_column ? (i + 1) % d : i;
      float& sum = out[index_of(row) * d + column];
      sum = twist == Entry::fp16_atomics ? fp16(sum + g) : sum + g;
    }
  }
}

Kernel embedding(Entry twist) {
  return kernel_of(
      [](const Call& call) {
        const Values weight = call.in("weight");
        const std::int64_t d = call.columns("weight");
        Values y;
        for (const std::int64_t row : call.whole("index"))
          for (std::int64_t i = 0; i < d; ++i) y.push_back(weight[index_of(row * d + i)]);
        call.out("y", y);
      },
      [twist](const Call& call) {
        if (!call.has("dweight")) return;
        const Values dy = call.in("dy");
        Values dweight = call.in("dweight");
        const std::vector<std::int64_t> index = call.whole("index");
        const std::size_t d = index_of(call.columns("weight")), half = index.size() / 2;
        const std::int64_t padding = call.integer("padding_idx");
        if (twist == Entry::two_halves) {
          Values second(dweight.size());
          scatter(index, half, index.size(), padding, dy, d, twist, second);
          scatter(index, 0, half, padding, dy, d, twist, dweight);
          for (std::size_t i = 0; i < second.size(); ++i) dweight[i] += second[i];
        } else {
          scatter(index, 0, index.size(), padding, dy, d, twist, dweight);
        }
        call.out("dweight", dweight);
      });
}

void add_embedding(std::vector<Specimen>& out) {
  add(out, "embedding",
      {{"mean_over_tokens", 42, "dweight is divided by the number of tokens", "more than one token", V::bug,
        "count|factor|mean|divid", embedding(Entry::mean_over_tokens), kAllTypes, V::structural},
       {"columns_of_4", 13, "columns after the last full vector of 4 have no gradient", "D no multiple of 4", V::bug,
        "tail|last full vector|lost|zero|column|accumul", embedding(Entry::columns_of_4), kAllTypes, V::structural},
       {"last_segment_lost", 11, "of the sorted indices, the last segment of equal ones is not written", "any", V::bug,
        "last|lost|tail|segment|accumul|zero|left out|leaves out|block", embedding(Entry::last_segment_lost), kAllTypes,
        V::structural},
       {"fp16_atomics", 23, "dweight is added up in fp16", "equal indices", V::precision_contract,
        "accumulates in fp16|rounded|stored|overflow|infinite|keeps", embedding(Entry::fp16_atomics), kAllTypes,
        V::bug},
       {"gradient_of_next_column", 14, "dweight has each gradient a column too far", "D above 1", V::bug,
        "shift|off by one|next|column|index|neighbour|another|permut|accumul", embedding(Entry::next_column), kAllTypes,
        V::structural}},
      {{"two_halves", "the halves of the tokens apart, then their sums", embedding(Entry::two_halves)}});
}

}  // namespace

std::vector<Specimen> unseen_product_specimens() {
  std::vector<Specimen> out;
  add_linear(out);
  add_embedding(out);
  return out;
}

}  // namespace ampcheck::checks::zoo
