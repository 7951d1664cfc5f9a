// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
// linear: quantised operands, tiles and vectors at the borders, epilogues that are not asked for.
#include <algorithm>
#include <numeric>

#include "checks/zoo/kit.h"

namespace ampcheck::checks::zoo {

namespace {

using V = Verdict;

enum class Twist {
  none,
  // Forward.
  weight_tiles_transposed,
  weight_in_int8,
  weight_centred,
  scale_of_first_channel,
  x_in_e4m3,
  bias_lost_in_tail,
  pair_exchanged,
  chunks_in_fp16,
  two_of_four,
  vector_into_next_row,
  // Backward.
  masked_by_output,
  beyond_128_lost,
  cotangent_clipped,
  dweight_of_tile_transposed,
  dweight_of_row_tiles,
};

/// x [N, K], weight [M, K], both as the kernel takes them.
struct Product {
  Values x, weight, bias;
  std::int64_t n, k, m;
  Twist twist;

  bool is(Twist other) const { return twist == other; }
  float at(const Values& values, std::int64_t row, std::int64_t i) const {
    const std::int64_t place = row * k + i;
    return place < std::ssize(values) ? values[index_of(place)] : 0.0f;
  }
  float weight_at(std::int64_t row, std::int64_t i) const {
    constexpr std::int64_t kTile = 16;
    const bool whole = row / kTile * kTile + kTile <= m && i / kTile * kTile + kTile <= k;
    if (is(Twist::weight_tiles_transposed) && whole)
      return at(weight, row / kTile * kTile + i % kTile, i / kTile * kTile + row % kTile);
    return at(weight, row, i);
  }
  float sum(std::int64_t row, std::int64_t column) const {
    // The last vector of 8 runs into the row behind.
    const std::int64_t length = is(Twist::vector_into_next_row) ? (k + 7) / 8 * 8 : k;
    const auto term = [&](std::int64_t i) { return Term{at(x, row, i), weight_at(column, i)}; };
    if (!is(Twist::chunks_in_fp16)) return total(in_order, length, term);
    float s = 0;
    for (std::int64_t first = 0; first < k; first += 32)
      s += total(in_fp16, std::min<std::int64_t>(32, k - first), [&](std::int64_t i) { return term(first + i); });
    return s;
  }
  float y(std::int64_t row, std::int64_t column) const {
    const bool added = !bias.empty() && (!is(Twist::bias_lost_in_tail) || column < m / 8 * 8);
    return added ? sum(row, column) + bias[index_of(column)] : sum(row, column);
  }
};

float largest_size(std::span<const float> row) {
  float most = 0;
  for (const float v : row) most = std::max(most, std::fabs(v));
  return most;
}

/// Rows of the weight as some quantised kernel has them.
void quantise(Product& p) {
  const float first = p.weight.empty() ? 0 : largest_size(row_of(p.weight, 0, p.k));
  for (std::int64_t row = 0; row < p.m; ++row) {
    const std::span<float> own = std::span(p.weight).subspan(index_of(row * p.k), index_of(p.k));
    const float most = largest_size(own),
                mean = std::accumulate(own.begin(), own.end(), 0.0f) / static_cast<float>(p.k);
    if (!std::isfinite(most) || !(most > 0)) continue;
    for (float& v : own) {
      if (p.is(Twist::weight_in_int8)) v = std::nearbyint(v / most * 127) * (most / 127);
      if (p.is(Twist::scale_of_first_channel)) v = v / most * first;
      if (p.is(Twist::weight_centred)) v -= mean;
    }
    if (!p.is(Twist::two_of_four)) continue;
    for (std::size_t at = 0; at + 4 <= own.size(); at += 4) {
      const std::span<float> four = own.subspan(at, 4);
      float sizes[4];
      std::ranges::transform(four, sizes, [](float v) { return std::fabs(v); });
      std::ranges::sort(sizes);
      for (float& v : four)
        if (std::fabs(v) < sizes[2]) v = 0;
    }
  }
}

Product product_of(const Call& call, Twist twist) {
  Product p{call.in("x"),
            call.in("weight"),
            call.has("bias") ? call.in("bias") : Values(),
            call.shape("x")[0],
            call.shape("x")[1],
            call.shape("weight")[0],
            twist};
  if (p.k > 0) quantise(p);
  if (twist == Twist::x_in_e4m3)
    for (float& v : p.x) v = rounded(Dtype::e4m3fn, v);
  return p;
}

void forward(const Call& call, Twist twist) {
  const Product p = product_of(call, twist);
  Values y;
  for (std::int64_t row = 0; row < p.n; ++row)
    for (std::int64_t column = 0; column < p.m; ++column) {
      const std::int64_t other = column ^ 1;
      y.push_back(p.y(row, p.is(Twist::pair_exchanged) && other < p.m ? other : column));
    }
  call.out("y", y);
}

void backward(const Call& call, Twist twist) {
  const Product p = product_of(call, Twist::none);
  Values g = call.in("dy");
  for (std::int64_t row = 0; row < p.n; ++row)
    for (std::int64_t column = 0; column < p.m; ++column) {
      float& v = g[index_of(row * p.m + column)];
      if (twist == Twist::masked_by_output && !(p.y(row, column) > 0)) v = 0;
      if (twist == Twist::cotangent_clipped && v == v) v = std::clamp(v, -1.0f, 1.0f);
    }
  const auto g_at = [&](std::int64_t row, std::int64_t column) { return g[index_of(row * p.m + column)]; };
  Values dx, dweight(p.weight.size()), dbias;
  const std::int64_t seen = twist == Twist::beyond_128_lost ? std::min<std::int64_t>(p.m, 128) : p.m;
  for (std::int64_t row = 0; row < p.n; ++row)
    for (std::int64_t i = 0; i < p.k; ++i)
      dx.push_back(total(in_order, seen, [&](std::int64_t o) { return Term{g_at(row, o), p.at(p.weight, o, i)}; }));
  // Atomics of the storage type, once a block of 16 rows.
  const bool in_storage = twist == Twist::dweight_of_row_tiles;
  for (std::int64_t o = 0; o < p.m; ++o) {
    for (std::int64_t i = 0; i < p.k; ++i) {
      const std::int64_t size = in_storage ? 16 : std::max<std::int64_t>(p.n, 1);
      float v = 0;
      for (std::int64_t first = 0; first < p.n; first += size) {
        v += total(in_order, std::min(size, p.n - first), [&](std::int64_t r) {
          return Term{g_at(first + r, o), p.at(p.x, first + r, i)};
        });
        if (in_storage) v = rounded(call.dtype("x"), v);
      }
      std::int64_t to_row = o, to = i;
      if (twist == Twist::dweight_of_tile_transposed && o / 4 * 4 + 4 <= p.m && i / 4 * 4 + 4 <= p.k) {
        to_row = o / 4 * 4 + i % 4;
        to = i / 4 * 4 + o % 4;
      }
      dweight[index_of(to_row * p.k + to)] = v;
    }
    dbias.push_back(total(in_order, p.n, [&](std::int64_t row) { return Term{g_at(row, o)}; }));
  }
  call.out("dx", dx);
  call.out("dweight", dweight);
  call.out("dbias", dbias);
}

Kernel linear(Twist of_forward, Twist of_backward = Twist::none) {
  return kernel_of([=](const Call& call) { forward(call, of_forward); },
                   [=](const Call& call) { backward(call, of_backward); });
}
Kernel back(Twist twist) { return linear(Twist::none, twist); }

}  // namespace

std::vector<Specimen> shop_product_specimens() {
  std::vector<Specimen> out;
  add(out, "linear",
      {{"weight_tiles_transposed", 7, "each whole tile of 16 x 16 of the weight is read transposed",
        "M and K of 16 or more", V::bug, "transpos|tile|permut|exchang|index|order",
        linear(Twist::weight_tiles_transposed), kAllTypes, V::structural},
       {"weight_in_int8", 25, "the weight is rounded to 8 bits with one step a row", "any", V::precision_contract,
        "rounded|stored|keeps|takes|int8|quanti|8 bits|step", linear(Twist::weight_in_int8), kAllTypes, V::bug},
       {"zero_point_taken_twice", 44, "the mean of its row is taken off the weight", "any", V::bug,
        "centred|mean|zero point|offset", linear(Twist::weight_centred)},
       {"scale_of_first_channel", 45, "each row of the weight has the largest size of the first, as its scale is taken",
        "M above 1", V::bug, "factor|scale", linear(Twist::scale_of_first_channel)},
       {"x_in_e4m3", 25, "x is rounded to e4m3 with no scale", "any", V::precision_contract,
        "rounded|stored|keeps|takes|e4m3|4 bits|overflow|underflow", linear(Twist::x_in_e4m3), kAllTypes, V::bug},
       {"bias_lost_in_tail", 41, "columns behind the last full vector of 8 have no bias",
        "any bias, M no multiple of 8", V::bug, "bias|tail", linear(Twist::bias_lost_in_tail)},
       {"pair_exchanged", 45, "the two halves of a packed pair of columns of y are exchanged", "M above 1", V::bug,
        "exchang|swap|permut|order|neighbour|another column|pair|shift", linear(Twist::pair_exchanged), kAllTypes,
        V::structural},
       {"chunks_in_fp16", 24, "32 terms at a time are added up in fp16", "any", V::precision_contract,
        "accumulates in fp16|partial|fp16", linear(Twist::chunks_in_fp16), kAllTypes, V::bug},
       {"two_of_four", 45, "of four weights the two smaller are taken for 0, as of a sparse matrix", "K of 4 or more",
        V::bug, "sparse|zero|smaller|of 4|of four|leaves out|left out|lost|dropped", linear(Twist::two_of_four),
        kAllTypes, V::structural},
       {"vector_into_next_row", 13, "the last vector of 8 of a row of x and weight runs into the row behind",
        "K no multiple of 8", V::structural,
        "next row|row behind|rows are not independent|changes with other rows|tail|more terms|beyond|padd|another row",
        linear(Twist::vector_into_next_row), kAllTypes, V::bug},
       {"gradient_masked_by_output", 30, "backward has the mask of a ReLU that forward has not", "negative y", V::bug,
        "relu|mask|positive|negative|cut off|another activation", back(Twist::masked_by_output)},
       {"dx_beyond_128_lost", 13, "dx adds up 128 columns of dy at most", "M above 128", V::bug,
        "leaves out|left out|lost|tail|last|beyond|block|only the first", back(Twist::beyond_128_lost), kAllTypes,
        V::structural},
       {"cotangent_clipped", 10, "dy is cut off at -1 and 1", "dy above 1", V::structural,
        "clip|clamp|cut off|linear in the cotangent|homogeneity|bounded|satur", back(Twist::cotangent_clipped),
        kAllTypes, V::bug},
       {"dweight_fragments_transposed", 7, "each whole tile of 4 x 4 of dweight is stored transposed",
        "M and K of 4 or more", V::bug, "transpos|tile|permut|exchang|index|order",
        back(Twist::dweight_of_tile_transposed), kAllTypes, V::structural},
       {"dweight_added_in_storage", 23, "blocks of 16 rows add to a dweight of the storage type", "more than 16 rows",
        V::precision_contract, "accumulates in|partial|rounded|stored|keeps|takes", back(Twist::dweight_of_row_tiles),
        kHalfTypes, V::bug}},
      {});
  return out;
}

}  // namespace ampcheck::checks::zoo
