// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
// cross_entropy and mse_loss as they go wrong in daily work: targets, smoothing, options left on, means.
#include <algorithm>

#include "checks/zoo/kit.h"

namespace ampcheck::checks::zoo {

namespace {

using V = Verdict;

enum class Twist {
  one_based,
  z_loss,
  soft_capped,
  smoothing_without_lse,
  target_through_bf16,
  certain_part_alone,
  target_of_first_shard,
  ignored_is_smoothed,
};

struct Target {
  std::int64_t at;  ///< -1: ignored
  float certain, uniform;
};

std::vector<Target> targets_of(const Call& call, Twist twist) {
  const std::int64_t classes = call.columns("x");
  const float s = call.number("label_smoothing");
  std::vector<Target> out;
  for (std::int64_t t : call.whole("target")) {
    const bool ignored = t == call.integer("ignore_index") || t < 0;
    if (twist == Twist::one_based && t > 0) --t;
    if (twist == Twist::target_through_bf16)
      t = std::min(static_cast<std::int64_t>(bf16(static_cast<float>(t))), classes - 1);
    Target target{ignored ? -1 : t, 1 - s, s / static_cast<float>(classes)};
    if (ignored) target.certain = 0;
    if (ignored && twist != Twist::ignored_is_smoothed) target.uniform = 0;
    out.push_back(target);
  }
  return out;
}

/// One row of logits, as the kernel sees them.
struct Row {
  Values x, slope, e;
  float shift = 0, total = 0, log_l = 0;

  Row(std::span<const float> own, Twist twist) : x(own.begin(), own.end()), slope(own.size(), 1.0f) {
    for (std::size_t i = 0; i < x.size() && twist == Twist::soft_capped; ++i) {
      const float t = std::tanh(x[i] / 30);
      x[i] = 30 * t;
      slope[i] = 1 - t * t;
    }
    shift = largest(x);
    for (const float v : x) {
      e.push_back(std::exp(v - shift));
      total += e.back();
    }
    log_l = std::log(total);
  }
  float loss_of(std::size_t i) const { return log_l - (x[i] - shift); }
};

float loss_of_row(const Row& row, const Target& target, Twist twist) {
  const bool lost = twist == Twist::target_of_first_shard && 2 * target.at >= std::ssize(row.x);
  float v = 0;
  if (target.at >= 0) v = target.certain * (lost ? row.log_l + row.shift : row.loss_of(index_of(target.at)));
  for (std::size_t i = 0; i < row.x.size() && target.uniform != 0; ++i)
    v += target.uniform * (twist == Twist::smoothing_without_lse ? -row.x[i] : row.loss_of(i));
  const float lse = row.log_l + row.shift;
  if (twist == Twist::z_loss && target.at >= 0) v += 1e-4f * (lse * lse);
  return v;
}

Kernel cross_entropy(Twist twist) {
  const auto forward = [twist](const Call& call) {
    const Values x = call.in("x");
    Values loss;
    for (const Target& target : targets_of(call, twist)) {
      const Row row(row_of(x, std::ssize(loss), call.columns("x")), twist);
      loss.push_back(target.at < 0 && target.uniform == 0 ? 0.0f : loss_of_row(row, target, twist));
    }
    call.out("loss", loss);
  };
  const auto backward = [twist](const Call& call) {
    const Values x = call.in("x"), dloss = call.in("dloss");
    const std::int64_t classes = call.columns("x");
    Values dx;
    std::int64_t r = 0;
    for (Target target : targets_of(call, twist)) {
      const Row row(row_of(x, r, classes), twist);
      const float g = dloss[index_of(r++)];
      if (twist == Twist::certain_part_alone) target.uniform = 0;
      const float smoothing = call.number("label_smoothing");
      float weight = target.at < 0 ? smoothing : twist == Twist::certain_part_alone ? 1 - smoothing : 1.0f;
      if (twist == Twist::z_loss) weight += 2e-4f * (row.log_l + row.shift);
      for (std::int64_t i = 0; i < classes; ++i) {
        const float p = row.e[index_of(i)] / row.total;
        const float q = target.uniform + (i == target.at ? target.certain : 0.0f);
        const bool none = target.at < 0 && target.uniform == 0;
        dx.push_back(none ? 0.0f : g * (p * weight - q) * row.slope[index_of(i)]);
      }
    }
    call.out("dx", dx);
  };
  return kernel_of(forward, backward);
}

void add_cross_entropy(std::vector<Specimen>& out) {
  add(out, "cross_entropy",
      {{"targets_from_one", 14, "targets are taken to count from 1: class t - 1 is looked up", "any", V::bug,
        "target|index|off by one|class before|another class|neighbour", cross_entropy(Twist::one_based), kAllTypes,
        V::structural},
       {"z_loss_left_on", 44, "1e-4 lse^2 is added, the regulariser of the logits' size", "any", V::bug,
        "term |added|lse|square|logsumexp", cross_entropy(Twist::z_loss)},
       {"logits_soft_capped", 30, "logits are 30 tanh(x / 30), as of another model", "large logits", V::bug,
        "tanh|cap|another|satur|soft|clip|clamp", cross_entropy(Twist::soft_capped)},
       {"smoothing_without_lse", 3, "the smoothing's term is -s/C sum x, without s lse", "label smoothing", V::bug,
        "smoothing|lse|logsumexp|term |missing|without|attribute", cross_entropy(Twist::smoothing_without_lse)},
       {"target_through_bf16", 43, "targets go through bf16: above 256 some are those of a neighbour",
        "more than 256 classes", V::bug, "target|index|bf16|another class|rounded",
        cross_entropy(Twist::target_through_bf16), kAllTypes, V::structural},
       {"certain_part_alone", 3, "dx = g (1 - s) (p - one hot), without the part of the smoothing", "label smoothing",
        V::bug, "smoothing|attribute|term |missing|uniform|without", cross_entropy(Twist::certain_part_alone)},
       {"target_of_first_shard", 34, "the target's logit is 0 in the second half of the classes, as of another shard",
        "targets in the second half", V::bug, "target|term |missing|shard|half|index|mask|lost|only where",
        cross_entropy(Twist::target_of_first_shard)},
       {"ignored_is_smoothed", 34, "ignored rows have the loss of the smoothing", "ignored rows and label smoothing",
        V::bug, "ignor|smoothing|mask|padding|attribute", cross_entropy(Twist::ignored_is_smoothed)}},
      {});
}

// ---- mse_loss ----

enum class Mse { expanded_square, square_of_mean, gradient_of_sum, target_of_first_column };

Kernel mse_loss(Mse twist) {
  const auto target_of = [twist](const Call& call) {
    Values target = call.in("target");
    const auto n = index_of(call.columns("x"));
    for (std::size_t i = 0; i < target.size() && twist == Mse::target_of_first_column; ++i)
      target[i] = target[i / n * n];
    return target;
  };
  const auto forward = [=](const Call& call) {
    const Values x = call.in("x"), target = target_of(call);
    float s = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      const float d = x[i] - target[i];
      s += twist == Mse::expanded_square  ? (x[i] * x[i] - 2 * x[i] * target[i]) + target[i] * target[i]
           : twist == Mse::square_of_mean ? d
                                          : d * d;
    }
    const float mean = s / static_cast<float>(x.size());
    call.out("loss", {twist == Mse::square_of_mean ? mean * mean : mean});
  };
  const auto backward = [=](const Call& call) {
    const Values x = call.in("x"), target = target_of(call);
    const float count = twist == Mse::gradient_of_sum ? 1.0f : static_cast<float>(x.size());
    const float g = call.in("dloss").at(0), factor = 2.0f / count;
    Values dx(x.size()), dtarget(x.size());
    for (std::size_t i = 0; i < x.size(); ++i) {
      dx[i] = g * factor * (x[i] - target[i]);
      dtarget[i] = -dx[i];
    }
    call.out("dx", dx);
    call.out("dtarget", dtarget);
  };
  return kernel_of(forward, backward);
}

void add_mse_loss(std::vector<Specimen>& out) {
  add(out, "mse_loss",
      {{"expanded_square", 31, "x^2 - 2 x t + t^2 for (x - t)^2", "x near target", V::precision_contract,
        "cancel|digits|expan|x^2|one pass|one-pass|rounded", mse_loss(Mse::expanded_square), kFp32, V::bug},
       {"square_of_mean", 8, "the square of the mean difference", "any", V::bug,
        "square of|of the mean|of the sum|another|squared after", mse_loss(Mse::square_of_mean)},
       {"gradient_of_sum", 42, "gradients of the sum, where the loss is the mean", "more than one element", V::bug,
        "factor|count|mean|divid|number of elements", mse_loss(Mse::gradient_of_sum)},
       {"target_of_first_column", 45, "one target a row, its first, serves the whole row", "more than one column",
        V::bug, "broadcast|column|first|index|another element|stride|other elements",
        mse_loss(Mse::target_of_first_column), kAllTypes, V::structural}},
      {});
}

}  // namespace

std::vector<Specimen> daily_loss_specimens() {
  std::vector<Specimen> out;
  add_cross_entropy(out);
  add_mse_loss(out);
  return out;
}

}  // namespace ampcheck::checks::zoo
