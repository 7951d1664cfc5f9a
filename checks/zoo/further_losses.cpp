// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
// softmax, log_softmax, cross_entropy and mse_loss: terms, counts and bases that are not the ones in the paper.
#include <algorithm>
#include <numeric>

#include "checks/zoo/kit.h"

namespace ampcheck::checks::zoo {

namespace {

using V = Verdict;

enum class Twist {
  none,
  base_two,
  shift_from_zero,
  shift_is_mean,
  exp_in_fp16,
  diagonal_alone,
  gradient_of_softmax,
  logarithm_to_base_two,
  sum_mean,
  sum_added,
  // cross_entropy
  dx_over_rows,
  target_loses_all,
  smoothing_over_count,
  first_class_ignored,
  probability_in_fp16,
  cotangent_forgotten,
  smoothing_at_target_alone,
};

struct Row {
  Values e;
  float shift = 0, total = 0;
};

Row exponentials(std::span<const float> x, Twist twist) {
  Row row{{}, largest(x), 0};
  if (twist == Twist::shift_from_zero && row.shift < 0) row.shift = 0;
  if (twist == Twist::shift_is_mean)
    row.shift = std::accumulate(x.begin(), x.end(), 0.0f) / static_cast<float>(x.size());
  for (const float v : x) {
    const float d = v - row.shift, e = twist == Twist::base_two ? std::exp2(d) : std::exp(d);
    row.e.push_back(twist == Twist::exp_in_fp16 ? fp16(e) : e);
    row.total += row.e.back();
  }
  return row;
}

/// What one row gives: `y` of x, or `dx` of x and g.
using OfRow = void (*)(Twist, std::span<const float> x, std::span<const float> g, Values& out);

void softmax_value(Twist twist, std::span<const float> x, std::span<const float>, Values& y) {
  const Row row = exponentials(x, twist);
  for (const float e : row.e) y.push_back(e / row.total);
}

void softmax_gradient(Twist twist, std::span<const float> x, std::span<const float> g, Values& dx) {
  const Row row = exponentials(x, twist);
  float dot = 0;
  for (std::size_t i = 0; i < x.size(); ++i) dot += g[i] * (row.e[i] / row.total);
  for (std::size_t i = 0; i < x.size(); ++i) {
    const float y = row.e[i] / row.total;
    dx.push_back(y * (g[i] - (twist == Twist::diagonal_alone ? g[i] * y : dot)));
  }
}

void logarithm_value(Twist twist, std::span<const float> x, std::span<const float>, Values& y) {
  const Row row = exponentials(x, twist);
  const float log_l = twist == Twist::logarithm_to_base_two ? std::log2(row.total) : std::log(row.total);
  for (const float v : x) y.push_back((v - row.shift) - log_l);
}

void logarithm_gradient(Twist twist, std::span<const float> x, std::span<const float> g, Values& dx) {
  if (twist == Twist::gradient_of_softmax) return softmax_gradient(twist, x, g, dx);
  const Row row = exponentials(x, twist);
  float sum = std::accumulate(g.begin(), g.end(), 0.0f);
  if (twist == Twist::sum_mean) sum /= static_cast<float>(g.size());
  if (twist == Twist::sum_added) sum = -sum;
  for (std::size_t i = 0; i < x.size(); ++i) dx.push_back(g[i] - row.e[i] / row.total * sum);
}

Kernel rows(Twist twist, OfRow value, OfRow gradient) {
  return kernel_of(
      [=](const Call& call) {
        const Values x = call.in("x");
        Values y;
        for (std::int64_t r = 0; r < call.rows("x"); ++r) value(twist, row_of(x, r, call.columns("x")), {}, y);
        call.out("y", y);
      },
      [=](const Call& call) {
        const Values x = call.in("x"), g = call.in("dy");
        const std::int64_t n = call.columns("x");
        Values dx;
        for (std::int64_t r = 0; r < call.rows("x"); ++r) gradient(twist, row_of(x, r, n), row_of(g, r, n), dx);
        call.out("dx", dx);
      });
}
Kernel softmax(Twist twist) { return rows(twist, softmax_value, softmax_gradient); }
Kernel log_softmax(Twist twist) { return rows(twist, logarithm_value, logarithm_gradient); }

void add_softmax(std::vector<Specimen>& out) {
  add(out, "softmax",
      {{"base_two", 48, "2^(x - m), its argument not multiplied by log2(e)", "any", V::bug,
        "base|factor|exp2|constant|another|log2|ln 2|log(2)|2^v for e^v", softmax(Twist::base_two)},
       {"maximum_from_zero", 28, "the search for the maximum begins at 0", "rows far below 0", V::bug,
        "maximum|shift|underflow|zero|nan|0/0|start", softmax(Twist::shift_from_zero), kAllTypes, V::range_declared},
       {"shift_is_mean", 28, "the mean is subtracted for the maximum", "rows of wide spread", V::range_declared,
        "overflow|maximum|shift|mean|infinite|inf-inf", softmax(Twist::shift_is_mean), kAllTypes, V::bug},
       {"exponentials_in_fp16", 24, "exponentials are rounded to fp16", "any", V::precision_contract,
        "keeps|rounded|stored", softmax(Twist::exp_in_fp16), kAllTypes, V::bug},
       {"diagonal_alone", 3, "dx = g y (1 - y), the Jacobian without what lies beside its diagonal", "any", V::bug,
        "term|dot|missing|sum|diagonal|sigmoid|another|lost|leaves out|only", softmax(Twist::diagonal_alone)}},
      {});
  add(out, "log_softmax",
      {{"gradient_of_softmax", 30, "dx = p (g - sum g p)", "any", V::bug, "softmax|another|factor|dy times exp(y)",
        log_softmax(Twist::gradient_of_softmax)},
       {"mean_of_cotangent", 42, "dx = g - p mean g", "any", V::bug, "factor|count|mean|divid",
        log_softmax(Twist::sum_mean)},
       {"logarithm_to_base_two", 48, "x - m - log2(sum exp(x - m))", "any", V::bug,
        "base|log2|factor|constant|another|ln 2|log(2)", log_softmax(Twist::logarithm_to_base_two)},
       {"sum_added", 2, "dx = g + p sum g", "any", V::bug, "sign|plus|added", log_softmax(Twist::sum_added)}},
      {});
}

// ---- cross_entropy ----

struct Target {
  std::int64_t at;
  float certain, uniform;
};

std::vector<Target> targets_of(const Call& call, Twist twist, bool forward) {
  const std::int64_t ignore = call.integer("ignore_index");
  const float s = call.number("label_smoothing"), classes = static_cast<float>(call.columns("x"));
  std::vector<Target> out;
  for (const std::int64_t t : call.whole("target")) {
    const bool left = t == ignore || t < 0 || (twist == Twist::first_class_ignored && t == 0);
    Target target{left ? -1 : t, 1 - s, s / classes};
    if (twist == Twist::smoothing_over_count && forward) target.uniform /= classes;
    if (twist == Twist::target_loses_all) target.certain -= target.uniform;
    if (twist == Twist::smoothing_at_target_alone) target.uniform = 0;
    out.push_back(target);
  }
  return out;
}

Kernel cross_entropy(Twist twist) {
  const auto forward = [twist](const Call& call) {
    const Values x = call.in("x");
    const std::int64_t classes = call.columns("x");
    Values loss;
    std::int64_t r = 0;
    for (const Target& target : targets_of(call, twist, true)) {
      const auto own = row_of(x, r++, classes);
      if (target.at < 0) {
        loss.push_back(0);
        continue;
      }
      const Row row = exponentials(own, twist);
      const float log_l = std::log(row.total);
      const auto log_p = [&](std::size_t i) {
        return twist == Twist::probability_in_fp16 ? std::log(fp16(row.e[i] / row.total))
                                                   : (own[i] - row.shift) - log_l;
      };
      float v = -target.certain * log_p(index_of(target.at));
      if (target.uniform != 0)
        for (std::size_t i = 0; i < own.size(); ++i) v -= target.uniform * log_p(i);
      loss.push_back(v);
    }
    call.out("loss", loss);
  };
  const auto backward = [twist](const Call& call) {
    const Values x = call.in("x"), dloss = call.in("dloss");
    const std::int64_t classes = call.columns("x");
    Values dx;
    std::int64_t r = 0;
    for (const Target& target : targets_of(call, twist, false)) {
      float g = twist == Twist::cotangent_forgotten ? 1.0f : dloss[index_of(r)];
      if (twist == Twist::dx_over_rows) g /= static_cast<float>(dloss.size());
      const Row row = exponentials(row_of(x, r++, classes), twist);
      for (std::int64_t i = 0; i < classes; ++i) {
        const float q = target.uniform + (i == target.at ? target.certain : 0.0f);
        dx.push_back(target.at < 0 ? 0.0f : g * (row.e[index_of(i)] / row.total - q));
      }
    }
    call.out("dx", dx);
  };
  return kernel_of(forward, backward);
}

void add_cross_entropy(std::vector<Specimen>& out) {
  add(out, "cross_entropy",
      {{"dx_over_rows", 42, "dx is divided by the number of rows, the loss is not", "more than one row", V::bug,
        "factor|count|mean|divid|rows", cross_entropy(Twist::dx_over_rows), kAllTypes, V::structural},
       {"target_loses_share", 1, "with smoothing the target has 1 - s, without its s/C", "label smoothing", V::bug,
        "smoothing|attribute|term|missing|factor|constant|target|taken from sum(",
        cross_entropy(Twist::target_loses_all)},
       {"smoothing_over_count", 42, "the mean over classes is divided by C once more, in forward", "label smoothing",
        V::bug, "smoothing|factor|count|mean|divid|attribute|twice", cross_entropy(Twist::smoothing_over_count)},
       {"smoothing_at_target_alone", 3, "smoothing lowers the target's share and adds nothing to the others",
        "label smoothing", V::bug, "smoothing|factor|term|missing|attribute|without",
        cross_entropy(Twist::smoothing_at_target_alone)},
       {"first_class_ignored", 34, "class 0 is taken for padding", "targets of class 0", V::bug,
        "ignore|padding|class 0|mask|sentinel|target", cross_entropy(Twist::first_class_ignored), kAllTypes,
        V::structural},
       {"probability_in_fp16", 28, "the logarithm of p rounded to fp16", "any; infinite where p is below 3e-8",
        V::precision_contract, "keeps|rounded|stored|underflow|infinite|overflow",
        cross_entropy(Twist::probability_in_fp16), kAllTypes, V::bug},
       {"cotangent_forgotten", 10, "dx = p - q, whatever dloss is", "cotangents other than 1", V::structural,
        "linear in the cotangent|cotangent|dloss|factor", cross_entropy(Twist::cotangent_forgotten), kAllTypes,
        V::bug}},
      {});
}

// ---- mse_loss ----

enum class Mse { root, gradient_over_columns, square_in_fp16, gradient_of_x };

Kernel mse_loss(Mse twist) {
  const auto forward = [twist](const Call& call) {
    const Values x = call.in("x"), target = call.in("target");
    float s = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      const float d = x[i] - target[i];
      s += twist == Mse::square_in_fp16 ? fp16(d * d) : d * d;
    }
    const float mean = s / static_cast<float>(x.size());
    call.out("loss", {twist == Mse::root ? std::sqrt(mean) : mean});
  };
  const auto backward = [twist](const Call& call) {
    const Values x = call.in("x"), target = call.in("target");
    const auto size = static_cast<float>(twist == Mse::gradient_over_columns ? call.columns("x") : std::ssize(x));
    const float g = call.in("dloss").at(0), factor = 2.0f / size;
    Values dx(x.size()), dtarget(x.size());
    for (std::size_t i = 0; i < x.size(); ++i) {
      const float d = x[i] - target[i];
      dx[i] = g * factor * (twist == Mse::gradient_of_x ? x[i] : d);
      dtarget[i] = -(g * factor * d);
    }
    call.out("dx", dx);
    call.out("dtarget", dtarget);
  };
  return kernel_of(forward, backward);
}

void add_mse_loss(std::vector<Specimen>& out) {
  add(out, "mse_loss",
      {{"rmse", 30, "the root of the mean square", "any", V::bug, "root|sqrt|another|power|square",
        mse_loss(Mse::root)},
       {"gradient_over_columns", 42, "2/D in the gradients, where 2/(N D) is due", "more than one row", V::bug,
        "factor|count|rows|mean", mse_loss(Mse::gradient_over_columns)},
       {"square_in_fp16", 28, "each square is rounded to fp16", "any; infinite beyond 256", V::precision_contract,
        "keeps|rounded|stored|overflow|infinite", mse_loss(Mse::square_in_fp16), kAllTypes, V::bug},
       {"gradient_without_target", 3, "dx = 2 g x / n, the target not taken off", "any", V::bug,
        "term|target|missing|without|x for", mse_loss(Mse::gradient_of_x)}},
      {});
}

}  // namespace

std::vector<Specimen> further_loss_specimens() {
  std::vector<Specimen> out;
  add_softmax(out);
  add_cross_entropy(out);
  add_mse_loss(out);
  return out;
}

}  // namespace ampcheck::checks::zoo
