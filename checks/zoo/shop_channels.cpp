// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
// group_norm and batch_norm: merged statistics, attributes that are not read, buffers and casts.
#include <algorithm>

#include "checks/zoo/image_kit.h"

namespace ampcheck::checks::zoo {

namespace {

using V = Verdict;

enum class Twist {
  none,
  // Forward.
  running_with_eps,
  momentum_fixed,
  running_over_images,
  variances_of_images,
  folded_in_storage,
  variance_saved,
  eps_fixed,
  eps_in_fp16,
  weight_needs_bias,
  groups_over_batch,
  last_channel_lost,
  places_of_8,
  normal_in_storage,
  // Backward.
  dx_as_in_evaluation,
  inverse_twice,
  running_in_backward,
  dweight_of_output,
  weight_of_group,
  means_in_storage,
  cotangent_channels_last,
};

Values optional(const Call& call, const char* name) { return call.has(name) ? call.in(name) : Values(); }

float mean_of(std::span<const float> values, std::int64_t count) {
  float s = 0;
  for (const float v : values) s += v;
  return s / static_cast<float>(count);
}
float squares_of(std::span<const float> values, float mean) {
  float s = 0;
  for (const float v : values) s += (v - mean) * (v - mean);
  return s;
}

struct Stats {
  float mean = 0, squares = 0, variance = 0, inverse = 0;
};

struct ChannelNorm : ChannelLines {
  Twist twist;

  ChannelNorm(const Call& call, Twist t, bool of_batch) : ChannelLines(call, of_batch), twist(t) {}
  bool is(Twist other) const { return twist == other; }

  /// What the statistics of a line are taken of.
  Values seen(const Values& x, std::int64_t line) const {
    Values out;
    const bool all = is(Twist::groups_over_batch), last_lost = is(Twist::last_channel_lost) && parts() > 1;
    for (std::int64_t image = 0; image < (all ? images : 1); ++image) {
      const std::int64_t of = all ? image * groups + line % groups : line;
      for (std::int64_t i = 0; i < length(); ++i) {
        if (last_lost && i >= length() - places) continue;
        if (is(Twist::places_of_8) && places >= 8 && i % places >= places / 8 * 8) continue;
        out.push_back(x[at(of, i)]);
      }
    }
    return out;
  }

  Stats stats(const Values& x, std::int64_t line, float eps) const {
    const Values own = seen(x, line);
    const std::int64_t count = is(Twist::places_of_8) ? length() : std::ssize(own);
    Stats s;
    s.mean = mean_of(own, count);
    s.squares = squares_of(own, s.mean);
    if (is(Twist::variances_of_images)) {  // merged without what lies between their means
      s.squares = 0;
      for (std::int64_t part = 0; part < parts(); ++part) {
        const auto image = std::span(own).subspan(index_of(part * places), index_of(places));
        s.squares += squares_of(image, mean_of(image, places));
      }
    }
    s.variance = s.squares / static_cast<float>(count);
    if (is(Twist::eps_fixed)) eps = 1e-5f;
    if (is(Twist::eps_in_fp16)) eps = fp16(eps);
    s.inverse = 1 / std::sqrt(s.variance + eps);
    return s;
  }
};

void move_running(const Call& call, const ChannelNorm& op, const std::vector<Stats>& lines) {
  const float momentum = op.is(Twist::momentum_fixed) ? 0.1f : call.number("momentum");
  Values mean = call.in("running_mean"), var = call.in("running_var");
  for (std::size_t c = 0; c < lines.size(); ++c) {
    const bool few = op.is(Twist::running_over_images) && op.images > 1;
    const float unbiased = few ? lines[c].variance * static_cast<float>(op.images) / static_cast<float>(op.images - 1)
                               : lines[c].squares / static_cast<float>(op.length() - 1);
    const float batch = op.is(Twist::running_with_eps) ? unbiased + call.number("eps") : unbiased;
    mean[c] = (1 - momentum) * mean[c] + momentum * lines[c].mean;
    var[c] = (1 - momentum) * var[c] + momentum * batch;
  }
  call.out("new_running_mean", mean);
  call.out("new_running_var", var);
}

void forward(const Call& call, Twist twist, bool of_batch) {
  const ChannelNorm op(call, twist, of_batch);
  const Values x = call.in("x"), weight = optional(call, "weight"), bias = optional(call, "bias");
  const Dtype dtype = call.dtype("x");
  Values y(x.size()), means, inverses;
  std::vector<Stats> lines;
  for (std::int64_t line = 0; line < op.lines(); ++line) {
    const Stats s = op.stats(x, line, call.number("eps"));
    for (std::int64_t i = 0; i < op.length(); ++i) {
      const std::size_t at = op.at(line, i), channel = op.channel(at);
      const bool weighed = !weight.empty() && (twist != Twist::weight_needs_bias || !bias.empty());
      const float w = weighed ? weight[channel] : 1, b = bias.empty() ? 0 : bias[channel];
      float n = (x[at] - s.mean) * s.inverse;
      if (twist == Twist::normal_in_storage) n = rounded(dtype, n);
      y[at] = n * w + b;
      if (twist == Twist::folded_in_storage) {
        const float factor = rounded(dtype, w * s.inverse);
        y[at] = x[at] * factor + rounded(dtype, b - s.mean * factor);
      }
    }
    means.push_back(s.mean);
    inverses.push_back(twist == Twist::variance_saved ? s.variance : s.inverse);
    lines.push_back(s);
  }
  call.out("y", y);
  call.out("mean", means);
  call.out("inv_std", inverses);
  if (of_batch) move_running(call, op, lines);
}

/// dy as a kernel reads it that takes the channels for the last axis.
Values channels_last(const ChannelLines& op, const Values& dy) {
  Values out;
  for (std::int64_t image = 0; image < op.images; ++image)
    for (std::int64_t c = 0; c < op.channels; ++c)
      for (std::int64_t l = 0; l < op.places; ++l)
        out.push_back(dy[index_of((image * op.places + l) * op.channels + c)]);
  return out;
}

void backward(const Call& call, Twist twist, bool of_batch) {
  const ChannelNorm op(call, twist, of_batch);
  const Values x = call.in("x"), means = call.in("mean"), inverses = call.in("inv_std"),
               weight = optional(call, "weight"), bias = optional(call, "bias"),
               running = of_batch ? call.in("running_var") : Values();
  const Values dy = twist == Twist::cotangent_channels_last ? channels_last(op, call.in("dy")) : call.in("dy");
  Values dx(x.size()), dweight(index_of(op.channels)), dbias(index_of(op.channels));
  for (std::int64_t line = 0; line < op.lines(); ++line) {
    float inverse = inverses[index_of(line)];
    if (twist == Twist::running_in_backward) inverse = 1 / std::sqrt(running[index_of(line)] + call.number("eps"));
    const auto normal = [&](std::int64_t i) { return (x[op.at(line, i)] - means[index_of(line)]) * inverse; };
    const auto g = [&](std::int64_t i) {
      const std::size_t at = op.at(line, twist == Twist::weight_of_group ? 0 : i);
      return weight.empty() ? dy[op.at(line, i)] : dy[op.at(line, i)] * weight[op.channel(at)];
    };
    const auto count = static_cast<float>(op.length());
    float mean_g = total(in_order, op.length(), [&](std::int64_t i) { return Term{g(i)}; }) / count;
    float mean_gn = total(in_order, op.length(), [&](std::int64_t i) { return Term{g(i), normal(i)}; }) / count;
    if (twist == Twist::means_in_storage) {
      mean_g = rounded(call.dtype("x"), mean_g);
      mean_gn = rounded(call.dtype("x"), mean_gn);
    }
    if (twist == Twist::dx_as_in_evaluation) mean_g = mean_gn = 0;
    for (std::int64_t i = 0; i < op.length(); ++i) {
      const std::size_t at = op.at(line, i), channel = op.channel(at);
      dx[at] = inverse * (g(i) - mean_g - normal(i) * mean_gn);
      if (twist == Twist::inverse_twice) dx[at] *= inverse;
      float n = normal(i);
      if (twist == Twist::dweight_of_output)
        n = n * (weight.empty() ? 1 : weight[channel]) + (bias.empty() ? 0 : bias[channel]);
      dweight[channel] += dy[at] * n;
      dbias[channel] += dy[at];
    }
  }
  call.out("dx", dx);
  call.out("dweight", dweight);
  call.out("dbias", dbias);
}

Kernel group(Twist twist) { return kernel_of_twist(forward, backward, twist, false); }
Kernel batch(Twist twist) { return kernel_of_twist(forward, backward, twist, true); }
constexpr const char* kRounded = "rounded|stored|keeps|takes";

void add_batch_norms(std::vector<Specimen>& out) {
  add(out, "batch_norm",
      {{"eps_in_running_var", 6, "the running variance takes in the variance + eps", "large eps", V::bug, "eps",
        batch(Twist::running_with_eps)},
       {"momentum_fixed", 45, "momentum is 0.1, whatever the attribute is", "momentum other than 0.1", V::bug,
        "momentum|attribute|constant|factor", batch(Twist::momentum_fixed)},
       {"running_var_over_images", 5, "Bessel's N/(N-1) of the number of images, without their places",
        "more than one place", V::bug, "factor|count|images|divid|n-1|n - 1|bessel|unbiased",
        batch(Twist::running_over_images)},
       {"variances_of_images", 4, "the variance is the mean of those of the images, as of devices merged",
        "more than one image", V::bug, "variance|image|between|merge|mean|axis|part|term",
        batch(Twist::variances_of_images)},
       {"folded_in_storage", 25, "y = a x + b with a and b rounded to the storage type", "any", V::precision_contract,
        kRounded, batch(Twist::folded_in_storage), kHalfTypes, V::bug},
       {"variance_saved", 7, "the variance is saved for inv_std", "any", V::bug,
        "variance|inv_std|root|saved|power|square|factor", batch(Twist::variance_saved)},
       {"dx_as_in_evaluation", 4, "dx = dy weight inv_std, the statistics are taken for constants", "any", V::bug,
        "mean|term|missing|without|statistics|constant", batch(Twist::dx_as_in_evaluation)},
       {"inverse_twice", 40, "dx has inv_std twice", "any", V::bug, "factor|inv_std|twice|square|times",
        batch(Twist::inverse_twice)},
       {"running_var_in_backward", 45, "backward takes the running variance for that of the batch", "any", V::bug,
        "running|another input|other input|variance|inv_std", batch(Twist::running_in_backward)},
       {"means_in_storage", 27, "mean g and mean g n are rounded to the storage type", "any", V::precision_contract,
        kRounded, batch(Twist::means_in_storage), kHalfTypes, V::bug}},
      {});
}

}  // namespace

std::vector<Specimen> shop_channel_specimens() {
  std::vector<Specimen> out;
  add_batch_norms(out);
  add(out, "group_norm",
      {{"eps_fixed", 45, "eps is 1e-5, whatever the attribute is", "large eps", V::bug,
        "attribute|fixed|eps is a constant", group(Twist::eps_fixed)},
       {"eps_in_fp16", 26, "eps is rounded to fp16", "variance no larger than eps", V::precision_contract,
        "eps|rounded|stored|keeps|takes", group(Twist::eps_in_fp16), kAllTypes, V::bug},
       {"weight_needs_bias", 41, "without bias the weight is not applied in forward", "weight and no bias", V::bug,
        "weight|optional|absent", group(Twist::weight_needs_bias)},
       {"groups_over_batch", 8, "statistics of a group of all images", "more than one image", V::structural,
        "axis|image|batch|another row|rows are not independent|changes with other rows",
        group(Twist::groups_over_batch), kAllTypes, V::bug},
       {"last_channel_lost", 14, "statistics leave out the last channel of a group", "more than one channel a group",
        V::bug, "last|lost|leaves out|left out|channel|off by one|tail|part", group(Twist::last_channel_lost),
        kAllTypes, V::structural},
       {"places_of_8", 13, "statistics leave out places after the last full vector of 8", "L no multiple of 8", V::bug,
        "tail|last|lost|leaves out|left out|vector|part", group(Twist::places_of_8), kAllTypes, V::structural},
       {"normal_in_storage", 25, "n is rounded to the storage type before the weight is applied", "any weight",
        V::precision_contract, kRounded, group(Twist::normal_in_storage), kHalfTypes, V::bug},
       {"dweight_of_output", 7, "dweight = sum dy y, where n is due", "any weight or bias", V::bug,
        "y for n|takes y|bias|times weight|factor weight|in place of n|other input", group(Twist::dweight_of_output)},
       {"dx_by_weight_of_group", 7, "dx takes the weight of a group's first channel", "more than one channel a group",
        V::bug, "weight|first|channel|group|factor|broadcast", group(Twist::weight_of_group)},
       {"cotangent_channels_last", 18, "dy is read as [N, L, C]", "C and L above 1", V::bug,
        "transpos|exchang|axes|permut|layout|channels last|stride|another place|another row",
        group(Twist::cotangent_channels_last), kAllTypes, V::structural}},
      {});
  return out;
}

}  // namespace ampcheck::checks::zoo
