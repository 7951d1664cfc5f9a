// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
// cross_entropy: loss = lse - sum q x, q one-hot with label smoothing s; dx = g (softmax(x) - q); ignored rows give 0.
#include "checks/zoo/kit.h"

namespace ampcheck::checks::zoo {

namespace {

enum class Twist {
  none,
  online,
  by_lse,
  smoothing_dropped_in_backward,
  smoothing_over_others,
  ignored_has_gradient,
  ignored_unwritten,
  p_in_bf16,
  p_in_storage,
  no_shift,
  mean_over_rows,
  mean_over_all_rows,
  loss_in_storage,
  ignored_counts,
  stale_lse,
  sign_of_target,
  target_missing,
  loss_of_logits_in_bf16,
  prefix_of_vocabulary,
};

struct Style {
  Twist twist = Twist::none;
  Sum sum = in_order;
  Slip slip = {};
};

struct Row {
  float shift = 0, total = 0;
};

Row row_of_logits(std::span<const float> x, const Style& style) {
  Row row{style.twist == Twist::no_shift ? 0.0f : largest(x), 0};
  if (style.twist == Twist::online) {
    row = {-INFINITY, 0};
    for (const float v : x) {
      const float next = v > row.shift || v != v ? v : row.shift;
      row.total = row.total * (row.shift == next ? 1.0f : std::exp(row.shift - next)) + std::exp(v - next);
      row.shift = next;
    }
    return row;
  }
  const std::size_t used =
      style.twist == Twist::prefix_of_vocabulary && x.size() > 128 ? x.size() / 128 * 128 : x.size();
  row.total = total(style.sum, static_cast<std::int64_t>(used),
                    [&](std::int64_t i) { return Term{std::exp(x[index_of(i)] - row.shift)}; });
  return row;
}

void forward(const Call& call, const Style& style) {
  const Values x = call.in("x");
  const auto target = call.whole("target");
  const std::int64_t classes = call.columns("x"), ignore = call.integer("ignore_index");
  const float smoothing = call.number("label_smoothing");
  Values loss(target.size());
  float stale = 0;
  for (std::size_t r = 0; r < target.size(); ++r) {
    std::int64_t t = target[r];
    if (t == ignore && style.twist != Twist::ignored_counts) continue;
    if (t < 0) t = 0;  // a clamped sentinel
    const auto logits = row_of(x, static_cast<std::int64_t>(r), classes);
    const Row row = row_of_logits(logits, style);
    float log_l = std::log(row.total);
    if (style.twist == Twist::stale_lse && r + 1 == target.size() && r > 0) log_l = stale;
    stale = std::log(row.total);
    const float certain = 1 - smoothing;
    if (style.twist == Twist::by_lse) {
      loss[r] = (row.shift + log_l) - certain * logits[index_of(t)];
      if (smoothing != 0)
        loss[r] -= smoothing / static_cast<float>(classes) *
                   total(style.sum, classes, [&](std::int64_t i) { return Term{logits[index_of(i)]}; });
    } else {
      const float at = logits[index_of(t)] - row.shift;
      loss[r] = log_l - certain * (style.twist == Twist::loss_of_logits_in_bf16 ? bf16(at) : at);
      const float others =
          style.twist == Twist::smoothing_over_others ? static_cast<float>(classes - 1) : static_cast<float>(classes);
      if (smoothing != 0)
        loss[r] -= smoothing / others *
                   total(style.sum, classes, [&](std::int64_t i) { return Term{logits[index_of(i)] - row.shift}; });
    }
    if (style.twist == Twist::mean_over_rows) loss[r] /= static_cast<float>(target.size());
    if (style.twist == Twist::loss_in_storage) loss[r] = rounded(call.dtype("x"), loss[r]);
  }
  call.out("loss", loss);
}

void backward(const Call& call, const Style& style) {
  const Values x = call.in("x"), g = call.in("dloss");
  const auto target = call.whole("target");
  const std::int64_t classes = call.columns("x"), ignore = call.integer("ignore_index");
  const float smoothing = style.twist == Twist::smoothing_dropped_in_backward ? 0.0f : call.number("label_smoothing");
  const float uniform =
      smoothing / static_cast<float>(style.twist == Twist::smoothing_over_others ? classes - 1 : classes);
  Values dx(x.size());
  std::int64_t kept = 0;
  for (const std::int64_t t : target) kept += t != ignore;
  for (std::size_t r = 0; r < target.size(); ++r) {
    if (target[r] == ignore && style.twist != Twist::ignored_has_gradient) continue;
    const auto logits = row_of(x, static_cast<std::int64_t>(r), classes);
    const Row row = row_of_logits(logits, style);
    const float lse = row.shift + std::log(row.total);
    for (std::int64_t i = 0; i < classes; ++i) {
      float p = std::exp(logits[index_of(i)] - row.shift) / row.total;
      if (style.twist == Twist::by_lse) p = std::exp(logits[index_of(i)] - lse);
      if (style.twist == Twist::p_in_bf16) p = bf16(p);
      if (style.twist == Twist::p_in_storage) p = rounded(call.dtype("x"), p);
      float hit = i == target[r] ? 1 - smoothing : 0.0f;
      if (style.twist == Twist::sign_of_target) hit = -hit;
      if (style.twist == Twist::target_missing) hit = 0;
      float v = g[r] * (p - hit - uniform);
      if (style.twist == Twist::mean_over_all_rows && kept > 0)
        v *= static_cast<float>(kept) / static_cast<float>(target.size());
      dx[r * index_of(classes) + index_of(i)] = v;
    }
  }
  if (style.twist == Twist::ignored_unwritten && call.has("dx") && kept < static_cast<std::int64_t>(target.size())) {
    const Values before = call.in("dx");
    for (std::size_t i = 0; i < dx.size(); ++i)
      if (target[i / index_of(classes)] == ignore) dx[i] = before[i];
  }
  call.out("dx", dx);
}

Kernel loss(Style style) {
  return kernel_of([style](const Call& call) { forward(call, style); },
                   [style](const Call& call) { backward(call, style); }, style.slip);
}

using V = Verdict;

}  // namespace

std::vector<Specimen> cross_entropy_specimens() {
  std::vector<Specimen> out;
  add(out, "cross_entropy",
      {{"first_cotangent", 9, "dloss of the first row serves all", "cotangents that differ", V::structural,
        "rows are not independent|every row but the first|another row", loss({.slip = {Io::first_for_all, "dloss"}}),
        kAllTypes, V::bug},
       {"smoothing_forgotten", 1, "backward without label smoothing", "label smoothing", V::bug,
        "smoothing|attribute|term missing|missing term|without the term|constant 0.1",
        loss({Twist::smoothing_dropped_in_backward})},
       {"ignored_has_gradient", 34, "rows with ignore_index have a gradient", "ignored rows", V::bug,
        "ignore|sentinel|zero|for mask|mask", loss({Twist::ignored_has_gradient}), kAllTypes, V::structural},
       {"ignored_counts", 34, "rows with ignore_index have a loss, of class 0", "ignored rows", V::bug,
        "ignore|sentinel|zero|for mask|mask", loss({Twist::ignored_counts}), kAllTypes, V::structural},
       {"ignored_unwritten", 15, "dx of ignored rows is not written", "ignored rows", V::structural,
        "output buffer held|unwritten", loss({Twist::ignored_unwritten})},
       {"smoothing_over_others", 5, "smoothing over V-1 classes", "label smoothing", V::bug,
        "factor|count|V-1|smoothing|constant 0.1", loss({Twist::smoothing_over_others})},
       {"p_in_bf16", 25, "p is rounded to bf16 before q is subtracted", "confident rows", V::precision_contract,
        "rounded|stored|saved|keeps|takes", loss({Twist::p_in_bf16}), kAllTypes, V::bug},
       {"p_in_storage", 25, "p is rounded to the storage type before q is subtracted", "confident rows",
        V::precision_contract, "rounded|stored|saved|keeps|takes", loss({Twist::p_in_storage}), kHalfTypes, V::bug},
       {"last_vocabulary_block", 11, "the sum leaves out the last, partial block of 128 classes",
        "more than 128 classes", V::bug, "tail|last full vector|block", loss({Twist::prefix_of_vocabulary}), kAllTypes,
        V::structural},
       {"clobbers_logits", 21, "backward writes its gradient into x", "any", V::structural, "changes its inputs",
        loss({.slip = {Io::clobber, "x"}})},
       {"stale_lse", 17, "the last row takes the logarithm of the row before", "more than one row", V::structural,
        "rows are not independent|last row|stale", loss({Twist::stale_lse})},
       {"no_shift", 28, "log(sum exp(x)) without subtracting the maximum", "x above 88", V::bug,
        "overflow|inf-inf|infinite", loss({Twist::no_shift}), kAllTypes, V::range_declared},
       {"mean_over_rows", 42, "the loss is divided by the number of rows", "more than one row", V::bug, "factor",
        loss({Twist::mean_over_rows})},
       {"mean_over_all_rows", 42, "dx is scaled by kept rows over all rows", "ignored rows", V::bug, "factor",
        loss({Twist::mean_over_all_rows}), kAllTypes, V::structural},
       {"loss_in_storage", 43, "the loss goes through the storage type of x", "any", V::precision_contract,
        "rounded|stored|keeps|takes", loss({Twist::loss_in_storage}), kHalfTypes, V::bug},
       {"sum_in_bf16", 23, "exponentials are added up in bf16", "any", V::precision_contract, "accumulates in bf16",
        loss({.sum = in_bf16})},
       {"sign_of_target", 2, "p + q", "any", V::bug, "sign", loss({Twist::sign_of_target})},
       {"target_missing", 3, "dx = g p", "any", V::bug, "term missing|missing term|without the term",
        loss({Twist::target_missing})},
       {"logit_in_bf16", 25, "the target's logit is rounded to bf16", "any", V::precision_contract,
        "rounded|stored|keeps|takes", loss({Twist::loss_of_logits_in_bf16}), kNotBf16, V::bug},
       {"sum_without_tail", 13, "the sum stops at the last full vector of 8", "classes that are no multiple of 8",
        V::bug, "tail|last full vector", loss({.sum = without_tail_of_8}), kAllTypes, V::structural}},
      {{"one_pass", "running maximum and sum", loss({Twist::online}), "one pass"},
       {"lse", "lse - q x, g exp(x - lse) - q", loss({Twist::by_lse}), "lse - q x"},
       {"pairwise", "pairwise sums", loss({.sum = pairwise})},
       {"compensated", "Kahan sums", loss({.sum = compensated})},
       {"lanes", "32 lanes and a butterfly", loss({.sum = in_lanes})}});
  return out;
}

}  // namespace ampcheck::checks::zoo
