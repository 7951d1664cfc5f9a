// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
// cross_entropy and mse_loss of the unseen part of the zoo: written after public fixes of kernels, without a look at
// the rules.
#include "checks/zoo/kit.h"

namespace ampcheck::checks::zoo {

namespace {

using V = Verdict;

enum class Loss {
  plain,
  // Correct.
  of_log_softmax,
  lanes,
  // Wrong.
  smoothing_not_averaged,
  target_of_next_class,
  zero_is_ignored,
  soft_capped,
  smoothing_of_target_alone,
  target_of_7_bits,
};

struct Row {
  std::span<const float> x;
  std::int64_t target;  ///< -1: ignored
  float smoothing;
};
struct Logs {
  float shift = 0, total = 0, log_l = 0;
};

Logs logarithm_of(const Row& row, Loss twist) {
  Logs out;
  out.shift = largest(row.x);
  const auto term = [&](std::int64_t i) { return Term{std::exp(row.x[index_of(i)] - out.shift)}; };
  out.total = total(twist == Loss::lanes ? in_lanes : in_order, static_cast<std::int64_t>(row.x.size()), term);
  out.log_l = std::log(out.total);
  return out;
}

float loss_of(const Row& row, Loss twist) {
  const Logs logs = logarithm_of(row, twist);
  const auto classes = static_cast<float>(row.x.size());
  const float hit = row.x[index_of(row.target)];
  if (twist == Loss::of_log_softmax) {
    const float lse = logs.shift + logs.log_l, y = hit - lse;
    if (row.smoothing == 0) return -y;
    float sum = 0;
    for (const float v : row.x) sum += v - lse;
    return -((1 - row.smoothing) * y) - row.smoothing * (sum / classes);
  }
  if (row.smoothing == 0) return logs.log_l - (hit - logs.shift);
  float sum = 0;
  for (const float v : row.x) sum += v - logs.shift;
  if (twist != Loss::smoothing_not_averaged) sum /= classes;
  if (twist == Loss::smoothing_of_target_alone) sum = hit - logs.shift;
  return logs.log_l - (1 - row.smoothing) * (hit - logs.shift) - row.smoothing * sum;
}

void gradient_of(const Row& row, float g, Loss twist, Values& out) {
  const Logs logs = logarithm_of(row, twist);
  const auto classes = static_cast<std::int64_t>(row.x.size());
  const std::int64_t target = twist == Loss::target_of_next_class ? (row.target + 1) % classes : row.target;
  for (std::int64_t i = 0; i < classes; ++i) {
    const float x = row.x[index_of(i)];
    const float p =
        twist == Loss::of_log_softmax ? std::exp(x - (logs.shift + logs.log_l)) : std::exp(x - logs.shift) / logs.total;
    float q = row.smoothing / static_cast<float>(classes);
    if (i == target) q += 1 - row.smoothing;
    if (twist == Loss::smoothing_of_target_alone) q = i == target ? 1.0f : 0.0f;
    out.push_back(g * (p - q));
  }
}

/// tanh holds the logits between -30 and 30.
void cap(Values& x) {
  for (float& v : x) v = 30 * std::tanh(v / 30);
}

template <class F>
void for_rows(const Call& call, const Values& x, Loss twist, F visit) {
  std::int64_t r = 0;
  for (const std::int64_t t : call.whole("target")) {
    bool ignored = t == call.integer("ignore_index") || t < 0;
    if (twist == Loss::zero_is_ignored) ignored |= t == 0;
    const std::int64_t at = twist == Loss::target_of_7_bits && t > 127 ? 127 : t;
    visit(Row{row_of(x, r, call.columns("x")), ignored ? -1 : at, call.number("label_smoothing")}, r);
    ++r;
  }
}

Kernel cross_entropy(Loss twist, Slip slip = {}) {
  return kernel_of(
      [twist](const Call& call) {
        Values x = call.in("x"), loss;
        if (twist == Loss::soft_capped) cap(x);
        for_rows(call, x, twist,
                 [&](const Row& row, std::int64_t) { loss.push_back(row.target < 0 ? 0.0f : loss_of(row, twist)); });
        call.out("loss", loss);
      },
      [twist](const Call& call) {
        const Values x = call.in("x"), g = call.in("dloss");
        Values dx;
        for_rows(call, x, twist, [&](const Row& row, std::int64_t r) {
          if (row.target < 0)
            dx.insert(dx.end(), row.x.size(), 0.0f);
          else
            gradient_of(row, g[index_of(r)], twist, dx);
        });
        call.out("dx", dx);
      },
      std::move(slip));
}

void add_cross_entropy(std::vector<Specimen>& out) {
  add(out, "cross_entropy",
      {{"smoothing_not_averaged", 42, "the loss adds s sum z, where s mean z is due", "label smoothing", V::bug,
        "factor|count|mean|smoothing|attribute|divid", cross_entropy(Loss::smoothing_not_averaged)},
       {"target_of_next_class", 14, "backward subtracts q at the class after the target", "any", V::bug,
        "target|index|off by one|shift|next|another|neighbour|permut|class", cross_entropy(Loss::target_of_next_class),
        kAllTypes, V::structural},
       {"zero_is_ignored", 34, "rows with target 0 are ignored too, as if it were padding", "a target of 0", V::bug,
        "ignore|sentinel|mask|zero|padding|index", cross_entropy(Loss::zero_is_ignored), kAllTypes, V::structural},
       {"cotangent_of_one", 10, "dloss is taken for 1", "cotangents other than 1", V::structural,
        "linear in the cotangent", cross_entropy(Loss::plain, {Io::ones, "dloss"}), kAllTypes, V::bug},
       {"soft_capped", 30, "30 tanh(x / 30) in place of x, in forward alone", "large logits", V::bug,
        "another function|tanh|cap|clip|satur|clamp|limit", cross_entropy(Loss::soft_capped)},
       {"smoothing_of_target_alone", 45, "all of the smoothing goes to the target, as without it", "label smoothing",
        V::bug, "smoothing|attribute|factor|term|constant", cross_entropy(Loss::smoothing_of_target_alone)},
       {"target_of_7_bits", 22, "targets above 127 are taken for 127, as where 8 bits with a sign hold them",
        "more than 128 classes", V::bug,
        "target|index|satur|clip|clamp|another|last full vector|tail|block|shift|class",
        cross_entropy(Loss::target_of_7_bits), kAllTypes, V::structural}},
      {{"of_log_softmax", "-y[target] of y = x - lse, dx = g (exp(y) - q)", cross_entropy(Loss::of_log_softmax),
        "g (exp(y) - q)"},
       {"lanes_of_classes", "32 lanes of classes and a butterfly", cross_entropy(Loss::lanes)}});
}

// ---- mse_loss ----

enum class Square { plain, columns_first, in_double, root, gradient_over_rows, factor_in_storage, sign_of_difference };

float mean_square(const Values& x, const Values& target, std::int64_t columns, Square twist) {
  const auto n = static_cast<float>(x.size());
  if (twist == Square::in_double) {
    double s = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double d = static_cast<double>(x[i]) - static_cast<double>(target[i]);
      s += d * d;
    }
    return static_cast<float>(s / static_cast<double>(x.size()));
  }
  Values column(index_of(columns));
  float s = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const float d = x[i] - target[i];
    (twist == Square::columns_first ? column[i % index_of(columns)] : s) += d * d;
  }
  for (const float part : column) s += part;
  return twist == Square::root ? std::sqrt(s / n) : s / n;
}

Kernel mse_loss(Square twist) {
  return kernel_of(
      [twist](const Call& call) {
        call.out("loss", {mean_square(call.in("x"), call.in("target"), call.columns("x"), twist)});
      },
      [twist](const Call& call) {
        const Values x = call.in("x"), target = call.in("target");
        const float g = call.in("dloss").at(0);
        const auto n = static_cast<float>(x.size());
        float factor = 2 / (twist == Square::gradient_over_rows ? static_cast<float>(call.rows("x")) : n);
        if (twist == Square::factor_in_storage) factor = rounded(call.dtype("x"), factor);
        Values dx, dtarget;
        for (std::size_t i = 0; i < x.size(); ++i) {
          float d = x[i] - target[i];
          if (twist == Square::sign_of_difference) d = d > 0 ? 0.5f : d < 0 ? -0.5f : d;
          dx.push_back(g * factor * d);
          dtarget.push_back(-dx.back());
        }
        call.out("dx", dx);
        call.out("dtarget", dtarget);
      });
}

void add_mse_loss(std::vector<Specimen>& out) {
  add(out, "mse_loss",
      {{"root", 30, "the root of the mean square, the gradient of the mean square", "any", V::bug,
        "root|sqrt|another function|power|exponent|square", mse_loss(Square::root)},
       {"gradient_over_rows", 42, "the gradient divides by rows, the loss by elements", "D above 1", V::bug,
        "factor|count|mean|divid|rows", mse_loss(Square::gradient_over_rows)},
       {"factor_in_storage", 26, "2/n is rounded to the storage type before it is used", "n no power of two",
        V::precision_contract, "rounded|stored|factor|constant|keeps|takes", mse_loss(Square::factor_in_storage),
        kHalfTypes, V::bug},
       {"slope_of_absolute", 30, "the gradient of mean |x - target|", "any", V::bug,
        "sign|absolute|another function|clip|clamp|constant", mse_loss(Square::sign_of_difference)}},
      {{"columns_first", "the sums of columns, then their sum", mse_loss(Square::columns_first)},
       {"in_double", "squares and sum in fp64, rounded once", mse_loss(Square::in_double)}});
}

}  // namespace

std::vector<Specimen> unseen_loss_specimens() {
  std::vector<Specimen> out;
  add_cross_entropy(out);
  add_mse_loss(out);
  return out;
}

}  // namespace ampcheck::checks::zoo
