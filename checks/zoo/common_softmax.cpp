// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
// softmax, log_softmax and cross_entropy of the zoo that were its unseen part once; rules have followed from them
// since.
#include <algorithm>

#include "checks/zoo/kit.h"

namespace ampcheck::checks::zoo {

namespace {

using V = Verdict;

// ---- Rows of exponentials. ----

enum class Way { plain, chunks, base_two_rescaling, powers_of_two };

struct ExpRow {
  Values e;  ///< exponentials of x - shift
  float shift = 0, total = 0;
};

float larger(float a, float b) { return b > a || b != b ? b : a; }

/// Sums of the exponentials of chunks, each about its own maximum, merged as they come.
void add_up_in_chunks(std::span<const float> x, std::size_t size, ExpRow& row) {
  row.shift = -INFINITY;
  for (std::size_t begin = 0; begin < x.size(); begin += size) {
    const auto chunk = x.subspan(begin, std::min(size, x.size() - begin));
    const float own = largest(chunk), next = larger(row.shift, own);
    float part = 0;
    if (own != -INFINITY)
      for (const float v : chunk) part += std::exp(v - own);
    const auto weight = [next](float shift) { return shift == next ? 1.0f : std::exp(shift - next); };
    row.total = row.total * weight(row.shift) + part * weight(own);
    row.shift = next;
  }
}

/// One number after the other. What was added up is scaled by 2^(old - new) where the exponentials have base e.
void add_up_with_slip(std::span<const float> x, ExpRow& row) {
  row.shift = -INFINITY;
  for (const float v : x) {
    const float next = larger(row.shift, v);
    row.total = row.total * (row.shift == next ? 1.0f : std::exp2(row.shift - next)) + std::exp(v - next);
    row.shift = next;
  }
}

ExpRow exponentials(std::span<const float> x, Way way, std::size_t chunk = 5) {
  ExpRow row;
  if (way == Way::chunks) add_up_in_chunks(x, chunk, row);
  if (way == Way::base_two_rescaling) add_up_with_slip(x, row);
  if (way == Way::plain || way == Way::powers_of_two) row.shift = largest(x);
  for (const float v : x) {
    float e = std::exp(v - row.shift);
    if (way == Way::powers_of_two) {
      const double apart = static_cast<double>(v) - static_cast<double>(row.shift);
      e = static_cast<float>(std::exp2(apart * 1.4426950408889634));
    }
    row.e.push_back(e);
    if (way == Way::plain || way == Way::powers_of_two) row.total += e;
  }
  return row;
}

// ---- softmax ----

Values softmax_of(const ExpRow& row) {
  Values y = row.e;
  for (float& v : y) v /= row.total;
  return y;
}

/// `dot_of_e`: the dot product of backward meets the exponentials before their division.
Kernel softmax(Way way, bool dot_of_e = false) {
  return kernel_of(
      [way](const Call& call) {
        const Values x = call.in("x");
        Values y;
        for (std::int64_t r = 0; r < call.rows("x"); ++r) {
          const Values row = softmax_of(exponentials(row_of(x, r, call.columns("x")), way));
          y.insert(y.end(), row.begin(), row.end());
        }
        call.out("y", y);
      },
      [way, dot_of_e](const Call& call) {
        const Values x = call.in("x"), g = call.in("dy");
        const std::int64_t n = call.columns("x");
        Values dx;
        for (std::int64_t r = 0; r < call.rows("x"); ++r) {
          const ExpRow row = exponentials(row_of(x, r, n), way);
          const Values y = softmax_of(row);
          const auto own = row_of(g, r, n);
          float dot = 0;
          for (std::size_t i = 0; i < y.size(); ++i) dot += own[i] * (dot_of_e ? row.e[i] : y[i]);
          for (std::size_t i = 0; i < y.size(); ++i) dx.push_back(y[i] * (own[i] - dot));
        }
        call.out("dx", dx);
      });
}

// ---- log_softmax ----

enum class Log { plain, eps, sum_over_rows };

Kernel log_softmax(Way way, Log slip = Log::plain) {
  const auto row_y = [=](const Values& x, std::int64_t r, std::int64_t n, bool forward) {
    const auto own = row_of(x, r, n);
    const ExpRow row = exponentials(own, way, 7);
    Values y;
    for (std::size_t i = 0; i < own.size(); ++i)
      y.push_back(slip == Log::eps && forward ? std::log(row.e[i] / row.total + 1e-7f)
                                              : (own[i] - row.shift) - std::log(row.total));
    return y;
  };
  return kernel_of(
      [=](const Call& call) {
        const Values x = call.in("x");
        Values y;
        for (std::int64_t r = 0; r < call.rows("x"); ++r) {
          const Values row = row_y(x, r, call.columns("x"), true);
          y.insert(y.end(), row.begin(), row.end());
        }
        call.out("y", y);
      },
      [=](const Call& call) {
        const Values x = call.in("x"), g = call.in("dy");
        const std::int64_t n = call.columns("x"), rows = call.rows("x");
        Values dx, column(index_of(n));
        for (std::int64_t r = 0; r < rows; ++r)
          for (std::int64_t i = 0; i < n; ++i) column[index_of(i)] += g[index_of(r * n + i)];
        for (std::int64_t r = 0; r < rows; ++r) {
          const Values y = row_y(x, r, n, false);
          const auto own = row_of(g, r, n);
          float sum = 0;
          for (const float v : own) sum += v;
          for (std::size_t i = 0; i < y.size(); ++i)
            dx.push_back(own[i] - std::exp(y[i]) * (slip == Log::sum_over_rows ? column[i] : sum));
        }
        call.out("dx", dx);
      });
}

void add_softmax(std::vector<Specimen>& out) {
  add(out, "softmax",
      {{"dot_unnormalised", 1, "the dot product of backward takes exp(x - m), not divided by the sum", "any", V::bug,
        "factor|without dividing|missing factor|divid|normali|times the sum", softmax(Way::plain, true)},
       {"rescaled_in_base_two", 1, "the running sum is rescaled by 2^(old - new), its terms have base e",
        "a maximum that grows along the row", V::bug, "factor|rescal|shift|maximum|times the sum|another function|base",
        softmax(Way::base_two_rescaling)}},
      {{"in_chunks", "chunks of 5 with their own maxima, merged", softmax(Way::chunks), "one pass"},
       {"powers_of_two", "exp2((x - m) log2(e)), its argument in fp64", softmax(Way::powers_of_two)}});
  add(out, "log_softmax",
      {{"sum_over_rows", 8, "sum g of backward runs along the first axis", "any", V::structural,
        "rows are not independent|wrong axis|other axis|first axis|transpos|another row|changes with other rows",
        log_softmax(Way::plain, Log::sum_over_rows), kAllTypes, V::bug},
       {"eps_in_logarithm", 6, "y = log(p + 1e-7)", "p below 1e-3", V::bug, "eps|constant|floor|clamp|1e-7|1e-07|added",
        log_softmax(Way::plain, Log::eps)}},
      {{"in_chunks", "chunks of 7 with their own maxima, merged", log_softmax(Way::chunks), "one pass"}});
}

// ---- cross_entropy ----

enum class Loss { plain, target_keeps_all, fixed_ignore, clipped };

/// What one row of targets says.
struct Target {
  std::int64_t at;
  float certain, uniform;  ///< q: certain at the target, uniform besides
};

struct CrossEntropy {
  Loss slip;
  Way way;

  Values each_row(const Call& call, void (*visit)(const CrossEntropy&, std::span<const float>, const ExpRow&, Target,
                                                  float g, Values&)) const {
    const Values x = call.in("x"), g = call.has("dloss") ? call.in("dloss") : Values();
    const std::int64_t classes = call.columns("x");
    const std::int64_t ignore = slip == Loss::fixed_ignore ? -100 : call.integer("ignore_index");
    const float smoothing = call.number("label_smoothing");
    Values out;
    std::int64_t r = 0;
    for (const std::int64_t t : call.whole("target")) {
      const auto logits = row_of(x, r, classes);
      Target target{t == ignore || t < 0 ? -1 : t, 1 - smoothing, smoothing / static_cast<float>(classes)};
      if (slip == Loss::target_keeps_all) target.certain = 1;
      const ExpRow row = target.at < 0 ? ExpRow{} : exponentials(logits, way, 16);
      visit(*this, logits, row, target, g.empty() ? 1.0f : g[index_of(r)], out);
      ++r;
    }
    return out;
  }
};

void loss_of_row(const CrossEntropy& op, std::span<const float> x, const ExpRow& row, Target target, float,
                 Values& out) {
  if (target.at < 0) return out.push_back(0);
  const float log_l = std::log(row.total), floor = -16.118096f;  // log(1e-7)
  const bool clips = op.slip == Loss::clipped;
  float sum = 0;
  if (clips) {
    const auto y = [&](float v) {
      const float own = (v - row.shift) - log_l;
      return own < floor ? floor : own;
    };
    if (target.uniform != 0)
      for (const float v : x) sum += y(v);
    return out.push_back(-(target.certain * y(x[index_of(target.at)])) - target.uniform * sum);
  }
  if (target.uniform != 0)
    for (const float v : x) sum += v - row.shift;
  const float hit = x[index_of(target.at)] - row.shift;
  if (target.uniform == 0) return out.push_back(log_l - hit);
  const float whole = op.slip == Loss::target_keeps_all ? 1 + target.uniform * static_cast<float>(x.size()) : 1.0f;
  out.push_back(whole * log_l - target.certain * hit - target.uniform * sum);
}

void gradient_of_row(const CrossEntropy&, std::span<const float> x, const ExpRow& row, Target target, float g,
                     Values& out) {
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (target.at < 0) {
      out.push_back(0);
      continue;
    }
    const float q = target.uniform + (i == index_of(target.at) ? target.certain : 0.0f);
    out.push_back(g * (row.e[i] / row.total - q));
  }
}

Kernel cross_entropy(Loss slip, Way way = Way::plain) {
  const CrossEntropy op{slip, way};
  return kernel_of([op](const Call& call) { call.out("loss", op.each_row(call, loss_of_row)); },
                   [op](const Call& call) { call.out("dx", op.each_row(call, gradient_of_row)); });
}

void add_cross_entropy(std::vector<Specimen>& out) {
  add(out, "cross_entropy",
      {{"target_keeps_all", 1, "smoothing adds s/C to every class, and leaves 1 at the target", "label smoothing",
        V::bug, "smoothing|attribute|factor|term missing|missing term|without the term|constant",
        cross_entropy(Loss::target_keeps_all)},
       {"fixed_ignore", 34, "-100 is ignored, whatever ignore_index is", "another ignore_index", V::bug,
        "ignore|sentinel|mask|zero|attribute|constant", cross_entropy(Loss::fixed_ignore), kAllTypes, V::structural},
       {"clipped_probability", 28, "log(max(p, 1e-7)) in forward", "a target 16 below the largest logit", V::bug,
        "clip|clamp|satur|constant|eps|floor|zero|limit", cross_entropy(Loss::clipped)}},
      {{"in_chunks", "chunks of 16 classes with their own maxima, merged", cross_entropy(Loss::plain, Way::chunks),
        "one pass"}});
}

}  // namespace

std::vector<Specimen> common_softmax_specimens() {
  std::vector<Specimen> out;
  add_softmax(out);
  add_cross_entropy(out);
  return out;
}

}  // namespace ampcheck::checks::zoo
