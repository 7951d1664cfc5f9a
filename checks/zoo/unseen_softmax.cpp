// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
// softmax and log_softmax of the unseen part of the zoo: written after public fixes of kernels, without a look at the
// rules.
#include "checks/zoo/kit.h"

namespace ampcheck::checks::zoo {

namespace {

using V = Verdict;

enum class Soft {
  plain,
  // Correct.
  tree,
  reciprocal,
  // Wrong.
  last_warp_lost,
  shift_by_size,
  scaled_in_backward,
  sum_of_cotangents,
  dot_of_products,
  inverse_of_row_before,
};

struct ExpRow {
  Values e;  ///< exp(x - shift)
  float shift = 0, total = 0;
};

/// The sum of exp(x - shift) with its shift.
struct Part {
  float shift, total;
};
Part merged(Part a, Part b) {
  const float next = b.shift > a.shift || b.shift != b.shift ? b.shift : a.shift;
  const auto weight = [next](float shift) { return shift == next ? 1.0f : std::exp(shift - next); };
  return {next, a.total * weight(a.shift) + b.total * weight(b.shift)};
}
/// Parts of one number each, merged in rounds of neighbours.
Part tree_of(std::span<const float> x) {
  if (x.empty()) return {-INFINITY, 0};
  if (x.size() == 1) return {x[0], x[0] == -INFINITY ? 0.0f : std::exp(x[0] - x[0])};
  return merged(tree_of(x.first(x.size() / 2)), tree_of(x.subspan(x.size() / 2)));
}

ExpRow exponentials(std::span<const float> x, Soft twist) {
  ExpRow row;
  row.shift = largest(x);
  if (twist == Soft::shift_by_size) {
    Values sizes;
    for (const float v : x) sizes.push_back(std::fabs(v));
    row.shift = largest(sizes);
  }
  for (std::size_t i = 0; i < x.size(); ++i) {
    row.e.push_back(std::exp(x[i] - row.shift));
    // Four warps of 32 walk along the row; the sums of the first three are added up.
    if (twist == Soft::last_warp_lost && i % 128 >= 96) continue;
    row.total += row.e.back();
  }
  if (twist == Soft::tree) row.total = tree_of(x).total;
  return row;
}

Values softmax_of(std::span<const float> x, Soft twist) {
  const ExpRow row = exponentials(x, twist);
  Values y = row.e;
  for (float& v : y) v = twist == Soft::reciprocal ? v * (1 / row.total) : v / row.total;
  return y;
}

/// What is subtracted from the cotangents of a row.
float dot_of(const Values& y, std::span<const float> g, Soft twist) {
  float dot = 0;
  for (std::size_t i = 0; i < y.size(); ++i) {
    float term = y[i] * g[i];
    if (twist == Soft::sum_of_cotangents) term = g[i];
    if (twist == Soft::dot_of_products) term *= y[i];
    dot += term;
  }
  return dot;
}

Kernel softmax(Soft twist) {
  return kernel_of(
      [twist](const Call& call) {
        const Values x = call.in("x");
        const std::int64_t n = call.columns("x");
        float before = 0;
        Values y;
        for (std::int64_t r = 0; r < call.rows("x"); ++r) {
          Values row = softmax_of(row_of(x, r, n), twist);
          const float own = exponentials(row_of(x, r, n), twist).total;
          if (twist == Soft::inverse_of_row_before && r % 2 == 1)
            for (float& v : row) v *= own / before;
          before = own;
          y.insert(y.end(), row.begin(), row.end());
        }
        call.out("y", y);
      },
      [twist](const Call& call) {
        const Values x = call.in("x"), g = call.in("dy");
        const std::int64_t n = call.columns("x");
        const float factor = twist == Soft::scaled_in_backward ? 1 / std::sqrt(static_cast<float>(n)) : 1.0f;
        Values dx;
        for (std::int64_t r = 0; r < call.rows("x"); ++r) {
          const Values y = softmax_of(row_of(x, r, n), twist);
          const auto own = row_of(g, r, n);
          const float dot = dot_of(y, own, twist);
          for (std::size_t i = 0; i < y.size(); ++i) dx.push_back(factor * (y[i] * (own[i] - dot)));
        }
        call.out("dx", dx);
      });
}

void add_softmax(std::vector<Specimen>& out) {
  add(out, "softmax",
      {{"last_warp_lost", 40, "of four warps that share a row, the sums of three are added up", "rows above 96", V::bug,
        "lost|lanes|warp|leaves out|left out|block|stride|tail|last term|half|sum to 1|normali",
        softmax(Soft::last_warp_lost), kAllTypes, V::structural},
       {"shift_by_size", 28, "the largest |x| is subtracted, not the largest x", "rows with a number far below zero",
        V::bug, "underflow|0/0|overflow|zero|NaN|leaves the range|not finite|maximum|infinite|lost|subnormal|absolute",
        softmax(Soft::shift_by_size), kAllTypes, V::range_declared},
       {"scaled_in_backward", 1, "dx has a factor 1/sqrt(D), as behind scores that were scaled", "D above 1", V::bug,
        "factor|scale|sqrt|root", softmax(Soft::scaled_in_backward)},
       {"sum_of_cotangents", 3, "dx = y (g - sum g), where sum g y is due", "any", V::bug,
        "factor|weight|missing|without|another|log_softmax|sum of g|sum(g)|sum g|dot",
        softmax(Soft::sum_of_cotangents)},
       {"dot_of_products", 40, "g is overwritten by g y before the dot product with y: sum g y y", "any", V::bug,
        "twice|factor|square|another|extra|product", softmax(Soft::dot_of_products)},
       {"inverse_of_row_before", 17, "the second row of a pair is divided by the sum of the first", "more than one row",
        V::structural, "rows are not independent|another row|row before|changes with other rows|stale|previous row",
        softmax(Soft::inverse_of_row_before), kAllTypes, V::bug}},
      {{"tree", "maxima and sums merged in rounds of neighbours", softmax(Soft::tree), "one pass"},
       {"reciprocal_of_sum", "e (1/l)", softmax(Soft::reciprocal)}});
}

// ---- log_softmax ----

enum class Log {
  plain,
  // Correct.
  tree,
  lanes,
  // Wrong.
  base_two,
  mean_of_cotangents,
  lse_without_maximum,
  cotangent_twice,
};

Kernel log_softmax(Log twist) {
  const auto row_y = [twist](std::span<const float> x, bool forward) {
    ExpRow row = exponentials(x, twist == Log::tree ? Soft::tree : Soft::plain);
    if (twist == Log::lanes)
      row.total = total(in_lanes, static_cast<std::int64_t>(x.size()),
                        [&](std::int64_t i) { return Term{row.e[index_of(i)]}; });
    const float log_l = forward && twist == Log::base_two ? std::log2(row.total) : std::log(row.total);
    if (!forward && twist == Log::lse_without_maximum) row.shift = 0;
    Values y;
    for (const float v : x) y.push_back((v - row.shift) - log_l);
    return y;
  };
  return kernel_of(
      [row_y](const Call& call) {
        const Values x = call.in("x");
        Values y;
        for (std::int64_t r = 0; r < call.rows("x"); ++r) {
          const Values row = row_y(row_of(x, r, call.columns("x")), true);
          y.insert(y.end(), row.begin(), row.end());
        }
        call.out("y", y);
      },
      [row_y, twist](const Call& call) {
        const Values x = call.in("x"), g = call.in("dy");
        const std::int64_t n = call.columns("x");
        Values dx;
        for (std::int64_t r = 0; r < call.rows("x"); ++r) {
          const Values y = row_y(row_of(x, r, n), false);
          const auto own = row_of(g, r, n);
          float sum = total(in_order, n, [&](std::int64_t i) { return Term{own[index_of(i)]}; });
          if (twist == Log::mean_of_cotangents) sum /= static_cast<float>(n);
          for (std::size_t i = 0; i < y.size(); ++i) {
            const float p = std::exp(y[i]);
            dx.push_back(own[i] - (twist == Log::cotangent_twice ? p * own[i] * sum : p * sum));
          }
        }
        call.out("dx", dx);
      });
}

void add_log_softmax(std::vector<Specimen>& out) {
  add(out, "log_softmax",
      {{"logarithm_of_base_two", 1, "y = x - m - log2(l)", "any", V::bug, "log2|base|factor|constant|1.44",
        log_softmax(Log::base_two)},
       {"mean_of_cotangents", 42, "dx = g - exp(y) mean g, where the sum is due", "D above 1", V::bug,
        "mean|count|factor|divid", log_softmax(Log::mean_of_cotangents)},
       {"maximum_not_added_back", 3, "backward takes exp(x - log l), without the maximum", "a maximum that is not 0",
        V::bug,
        "factor|maximum|shift|term missing|missing term|without the term|missing|overflow|infinite|leaves the range",
        log_softmax(Log::lse_without_maximum), kAllTypes, V::range_declared},
       {"cotangent_twice", 10, "dx = g - exp(y) g sum g, the cotangent once too often", "any", V::structural,
        "linear in the cotangent|twice|square|factor", log_softmax(Log::cotangent_twice), kAllTypes, V::bug}},
      {{"tree", "maxima and sums merged in rounds of neighbours", log_softmax(Log::tree), "one pass"},
       {"lanes", "32 lanes and a butterfly", log_softmax(Log::lanes)}});
}

}  // namespace

std::vector<Specimen> unseen_softmax_specimens() {
  std::vector<Specimen> out;
  add_softmax(out);
  add_log_softmax(out);
  return out;
}

}  // namespace ampcheck::checks::zoo
