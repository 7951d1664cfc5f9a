// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
// linear and embedding of the zoo that were its unseen part once; rules have followed from them since.
#include <algorithm>
#include <bit>
#include <cstdint>

#include "checks/zoo/kit.h"

namespace ampcheck::checks::zoo {

namespace {

using V = Verdict;

// ---- linear ----

enum class Twist {
  none,
  bias_first,
  bias_of_row,
  cotangent_in_e5m2,
  tail_tile_shifted,
};

/// An accumulator with 13 bits behind the leading one, which cuts off what does not fit: an fp8 product of tensor cores
/// that is never moved to fp32.
float of_14_bits(std::span<const Term> terms) {
  float s = 0;
  for (const Term& t : terms) {
    s += t.product();
    if (std::isfinite(s)) s = std::bit_cast<float>(std::bit_cast<std::uint32_t>(s) & 0xfffffc00u);
  }
  return s;
}

struct Extents {
  std::int64_t n, k, m;
  explicit Extents(const Call& call) : n(call.shape("x")[0]), k(call.shape("x")[1]), m(call.shape("weight")[0]) {}
};

void linear_forward(const Call& call, Twist twist, Sum sum) {
  const Extents e(call);
  const Values x = call.in("x"), w = call.in("weight"), bias = call.has("bias") ? call.in("bias") : Values();
  Values y;
  for (std::int64_t i = 0; i < e.n; ++i)
    for (std::int64_t j = 0; j < e.m; ++j) {
      std::int64_t row = i;
      // The last, partial tile of 16 rows is moved back until it is full; where it stores is not.
      if (twist == Twist::tail_tile_shifted && e.n > 16 && i >= e.n / 16 * 16) row = e.n - 16 + i % 16;
      const auto term = [&](std::int64_t k) { return Term{x[index_of(row * e.k + k)], w[index_of(j * e.k + k)]}; };
      const float added = bias.empty() ? 0.0f : bias[index_of(twist == Twist::bias_of_row ? i % e.m : j)];
      if (twist == Twist::bias_first) {  // the accumulator begins with the bias
        float v = added;
        for (std::int64_t k = 0; k < e.k; ++k) v = std::fma(term(k).a, term(k).b, v);
        y.push_back(v);
      } else {
        const float v = total(sum, e.k, term);
        y.push_back(bias.empty() ? v : v + added);
      }
    }
  call.out("y", y);
}

void linear_backward(const Call& call, Twist twist, Sum sum) {
  const Extents e(call);
  const Values x = call.in("x"), w = call.in("weight");
  Values g = call.in("dy"), dx, dweight, dbias;
  const Values whole = g;
  if (twist == Twist::cotangent_in_e5m2)
    for (float& v : g) v = rounded(Dtype::e5m2, v);
  for (std::int64_t i = 0; i < e.n; ++i)
    for (std::int64_t k = 0; k < e.k; ++k)
      dx.push_back(total(sum, e.m, [&](std::int64_t j) {
        return Term{g[index_of(i * e.m + j)], w[index_of(j * e.k + k)]};
      }));
  for (std::int64_t j = 0; j < e.m; ++j) {
    for (std::int64_t k = 0; k < e.k; ++k)
      dweight.push_back(total(sum, e.n, [&](std::int64_t i) {
        return Term{g[index_of(i * e.m + j)], x[index_of(i * e.k + k)]};
      }));
    dbias.push_back(total(in_order, e.n, [&](std::int64_t i) { return Term{whole[index_of(i * e.m + j)]}; }));
  }
  call.out("dx", dx);
  call.out("dweight", dweight);
  call.out("dbias", dbias);
}

Kernel linear(Twist twist, Sum sum = in_order, Slip slip = {}) {
  return kernel_of([=](const Call& call) { linear_forward(call, twist, sum); },
                   [=](const Call& call) { linear_backward(call, twist, sum); }, std::move(slip));
}

void add_linear(std::vector<Specimen>& out) {
  add(out, "linear",
      {{"bias_of_row", 8, "the bias is broadcast over the wrong axis: row i has bias[i % M]", "any bias", V::bug,
        "wrong axis|other axis|bias|broadcast|transpos|another", linear(Twist::bias_of_row), kAllTypes, V::structural},
       {"cotangent_in_e5m2", 43, "dy is rounded to e5m2 before the products of backward", "any", V::precision_contract,
        "operands|rounded|e5m2|takes|keeps|stored", linear(Twist::cotangent_in_e5m2), kAllTypes, V::bug},
       {"dbias_not_cleared", 16, "dbias is added to what its buffer holds", "buffers that are not zero", V::structural,
        "output buffer held|accumulat", linear(Twist::none, in_order, {Io::add_to_buffer, "dbias"})},
       {"tail_tile_shifted", 13, "the rows of the last, partial tile of 16 are those of another place",
        "more than 16 rows, no multiple of 16", V::structural,
        "rows are not independent|changes with other rows|another row|tail|last row|last full vector|shift|tile",
        linear(Twist::tail_tile_shifted), kAllTypes, V::bug},
       {"short_accumulator",
        24,
        "sums have 14 bits and cut off the rest, as fp8 products on some tensor cores",
        "long sums",
        V::precision_contract,
        "accumulates|truncat|toward zero",
        linear(Twist::none, of_14_bits),
        {Dtype::e4m3fn, Dtype::e5m2},
        V::bug}},
      {{"bias_first", "fma chains that begin with the bias", linear(Twist::bias_first, fused)}});
}

// ---- embedding ----

enum class Entry { none, padding_reads_zero, last_frozen, in_double };

Kernel embedding(Entry twist, Slip slip = {}) {
  const auto forward = [twist](const Call& call) {
    const Values weight = call.in("weight");
    const std::int64_t d = call.columns("weight"), padding = call.integer("padding_idx");
    Values y;
    for (const std::int64_t row : call.whole("index"))
      for (std::int64_t i = 0; i < d; ++i)
        y.push_back(twist == Entry::padding_reads_zero && row == padding ? 0.0f : weight[index_of(row * d + i)]);
    call.out("y", y);
  };
  const auto backward = [twist](const Call& call) {
    if (!call.has("dweight")) return;
    const Values dy = call.in("dy");
    Values dweight = call.in("dweight");
    std::vector<double> wide(dweight.begin(), dweight.end());
    const std::int64_t d = call.columns("weight"), entries = call.shape("weight")[0];
    std::size_t at = 0;
    for (const std::int64_t row : call.whole("index")) {
      const bool skips = row == call.integer("padding_idx") || (twist == Entry::last_frozen && row == entries - 1);
      for (std::int64_t i = 0; i < d; ++i, ++at) {
        if (skips) continue;
        dweight[index_of(row * d + i)] += dy[at];
        wide[index_of(row * d + i)] += static_cast<double>(dy[at]);
      }
    }
    if (twist == Entry::in_double)
      for (std::size_t i = 0; i < wide.size(); ++i) dweight[i] = static_cast<float>(wide[i]);
    call.out("dweight", dweight);
  };
  return kernel_of(forward, backward, std::move(slip));
}

void add_embedding(std::vector<Specimen>& out) {
  add(out, "embedding",
      {{"padding_reads_zero", 34, "y is 0 at padding_idx, whatever that row of weight holds",
        "padding_idx among the indices", V::bug, "padding|zero|mask|sentinel", embedding(Entry::padding_reads_zero),
        kAllTypes, V::structural},
       {"last_entry_frozen", 11, "the last row of weight has no gradient", "the last row is asked for", V::bug,
        "last row|lost|accumulat|zero|tail", embedding(Entry::last_frozen), kAllTypes, V::structural},
       {"dense_cotangent", 18, "dy is read as if row-major", "strided dy", V::structural, "strided",
        embedding(Entry::none, {Io::read_dense, "dy"})}},
      {{"in_double", "the buffer and all terms added up in fp64", embedding(Entry::in_double)}});
}

}  // namespace

std::vector<Specimen> common_product_specimens() {
  std::vector<Specimen> out;
  add_linear(out);
  add_embedding(out);
  return out;
}

}  // namespace ampcheck::checks::zoo
