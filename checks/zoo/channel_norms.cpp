// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
// group_norm and batch_norm of x [N, C, L]: both normalise lines of elements and scale by channel. A line is a group of
// an image, or a channel of all images. With n = (x - mean) inv_std and g = dy weight: dx = inv_std (g - mean g - n
// mean(g n)), dweight = sum dy n, dbias = sum dy over a channel.
#include <algorithm>

#include "checks/zoo/kit.h"

namespace ampcheck::checks::zoo {

namespace {

using V = Verdict;

enum class Twist {
  none,
  // How a correct kernel computes.
  recomputed,
  reciprocal,
  // Wrong.
  unbiased,
  eps_missing,
  eps_outside,
  one_pass,
  mean_term_missing,
  normal_term_missing,
  weight_not_applied,
  weight_of_next,
  stats_in_bf16,
  first_image,
  channel_alone,
  running_biased,
  momentum_exchanged,
  groups_interleaved,
  half_of_images,
  dx_without_inverse,
  weight_squared,
  running_mean_replaced,
  bias_of_group,
};

struct Style {
  Twist twist = Twist::none;
  Sum sum = in_order;      ///< along lines
  Sum columns = in_order;  ///< of the parameter gradients
  Slip slip = {};
};

/// Which elements make a line.
struct Lines {
  std::int64_t images, channels, places;
  std::int64_t groups;       ///< of an image; 0: a line is a channel of all images
  bool interleaved = false;  ///< channel c is of group c % groups

  std::int64_t count() const { return groups > 0 ? images * groups : channels; }
  std::int64_t length() const { return groups > 0 ? channels / groups * places : images * places; }
  std::int64_t at(std::int64_t line, std::int64_t i) const {
    if (interleaved)
      return line / groups * channels * places + (i / places * groups + line % groups) * places + i % places;
    return groups > 0 ? line * length() + i : (i / places * channels + line) * places + i % places;
  }
  std::int64_t channel(std::int64_t at) const { return at / places % channels; }
};

struct Stats {
  float mean = 0, inv = 0, squares = 0;
};

struct ChannelNorm {
  bool of_batch;
  Style style;

  Lines lines(const Call& call) const {
    const Shape& x = call.shape("x");
    std::int64_t groups = of_batch ? 0 : call.integer("groups");
    if (style.twist == Twist::channel_alone && groups > 0 && x[2] > 1) groups = x[1];
    return {x[0], x[1], x[2], groups, style.twist == Twist::groups_interleaved};
  }

  Stats stats(const Values& x, const Lines& at, std::int64_t line, float eps) const {
    std::int64_t n = at.length();
    if (style.twist == Twist::half_of_images && at.images > 1) n = at.images / 2 * at.places;
    const auto size = static_cast<float>(n);
    const auto value = [&](std::int64_t i) { return x[index_of(at.at(line, i))]; };
    const float sum = total(style.sum, n, [&](std::int64_t i) { return Term{value(i)}; });
    Stats out;
    out.mean = style.twist == Twist::reciprocal ? sum * (1 / size) : sum / size;
    const float centre = style.twist == Twist::one_pass ? 0.0f : out.mean;
    out.squares = total(style.sum, n, [&](std::int64_t i) {
      const float d = value(i) - centre;
      return Term{d, d};
    });
    float variance = out.squares / (style.twist == Twist::unbiased ? std::max(size - 1, 1.0f) : size);
    if (style.twist == Twist::one_pass) {
      variance -= out.mean * out.mean;
      out.squares = variance * size;
    }
    if (style.twist == Twist::eps_missing) eps = 0;
    out.inv = style.twist == Twist::eps_outside ? 1 / (std::sqrt(variance) + eps) : 1 / std::sqrt(variance + eps);
    return out;
  }

  std::size_t parameter(const Lines& at, std::int64_t element) const {
    const std::int64_t c = at.channel(element);
    return index_of(style.twist == Twist::weight_of_next ? (c + 1) % at.channels : c);
  }

  void forward(const Call& call) const {
    const Values x = call.in("x"), weight = call.has("weight") ? call.in("weight") : Values(),
                 bias = call.has("bias") ? call.in("bias") : Values();
    const Lines at = lines(call);
    Values y(x.size()), means, invs, running_means, running_vars;
    for (std::int64_t line = 0; line < at.count(); ++line) {
      const Stats s = stats(x, at, line, call.number("eps"));
      for (std::int64_t i = 0; i < at.length(); ++i) {
        const std::int64_t k = at.at(line, i);
        float v = (x[index_of(k)] - s.mean) * s.inv;
        if (!weight.empty()) v *= weight[parameter(at, k)];
        if (!weight.empty() && style.twist == Twist::weight_squared) v *= weight[parameter(at, k)];
        const std::int64_t shift = style.twist == Twist::bias_of_group ? line % at.groups : at.channel(k);
        y[index_of(k)] = bias.empty() ? v : v + bias[index_of(shift)];
      }
      means.push_back(style.twist == Twist::stats_in_bf16 ? bf16(s.mean) : s.mean);
      invs.push_back(style.twist == Twist::stats_in_bf16 ? bf16(s.inv) : s.inv);
      if (of_batch) move_running(call, at, line, s, running_means, running_vars);
    }
    call.out("y", y);
    // A line of another length than the op's has statistics of its own, which there is no room for: the first of each
    // group.
    const auto saved = static_cast<std::size_t>(call.shape("mean").count());
    if (means.size() > saved) {
      const std::size_t step = means.size() / std::max<std::size_t>(saved, 1);
      for (std::size_t k = 0; k < saved; ++k) {
        means[k] = means[k * step];
        invs[k] = invs[k * step];
      }
      means.resize(saved);
      invs.resize(saved);
    }
    call.out("mean", means);
    call.out("inv_std", invs);
    if (!of_batch) return;
    call.out("new_running_mean", running_means);
    call.out("new_running_var", running_vars);
  }

  void move_running(const Call& call, const Lines& at, std::int64_t line, const Stats& s, Values& means,
                    Values& vars) const {
    const auto size = static_cast<float>(at.length());
    const float variance = s.squares / (style.twist == Twist::running_biased ? size : size - 1);
    float moved = call.number("momentum"), kept = 1 - moved;
    if (style.twist == Twist::momentum_exchanged) std::swap(moved, kept);
    means.push_back(style.twist == Twist::running_mean_replaced
                        ? s.mean
                        : kept * call.in("running_mean")[index_of(line)] + moved * s.mean);
    vars.push_back(kept * call.in("running_var")[index_of(line)] + moved * variance);
  }

  void backward(const Call& call) const {
    const Values x = call.in("x"), dy = call.in("dy"), means = call.in("mean"), invs = call.in("inv_std"),
                 weight = call.has("weight") ? call.in("weight") : Values();
    Lines at = lines(call);
    if (!of_batch) at.groups = call.integer("groups");
    Values dx(x.size());
    std::vector<Terms> dweight(index_of(at.channels)), dbias(index_of(at.channels));
    for (std::int64_t line = 0; line < at.count(); ++line) {
      Stats s{means[index_of(line)], invs[index_of(line)], 0};
      if (style.twist == Twist::recomputed) s = stats(x, at, line, call.number("eps"));
      const auto normal = [&](std::int64_t i) { return (x[index_of(at.at(line, i))] - s.mean) * s.inv; };
      const auto g = [&](std::int64_t i) {
        const std::int64_t k = at.at(line, i);
        const bool plain = weight.empty() || style.twist == Twist::weight_not_applied;
        return plain ? dy[index_of(k)] : dy[index_of(k)] * weight[parameter(at, k)];
      };
      const auto size = static_cast<float>(at.length());
      const float mean_g = style.twist == Twist::mean_term_missing
                               ? 0.0f
                               : total(style.sum, at.length(), [&](std::int64_t i) { return Term{g(i)}; }) / size;
      const float mean_gn =
          style.twist == Twist::normal_term_missing ? 0.0f : total(style.sum, at.length(), [&](std::int64_t i) {
                                                               return Term{g(i), normal(i)};
                                                             }) / size;
      for (std::int64_t i = 0; i < at.length(); ++i)
        dx[index_of(at.at(line, i))] =
            (style.twist == Twist::dx_without_inverse ? 1.0f : s.inv) * (g(i) - mean_g - normal(i) * mean_gn);
      for (std::int64_t i = 0; i < at.length(); ++i) {
        const std::int64_t k = at.at(line, i);
        if (style.twist == Twist::first_image && k >= at.channels * at.places) continue;
        dweight[index_of(at.channel(k))].push_back({dy[index_of(k)], normal(i)});
        dbias[index_of(at.channel(k))].push_back({dy[index_of(k)]});
      }
    }
    call.out("dx", dx);
    const auto added = [&](const std::vector<Terms>& lists) {
      Values out;
      for (const Terms& terms : lists) out.push_back(style.columns(terms));
      return out;
    };
    call.out("dweight", added(dweight));
    call.out("dbias", added(dbias));
  }
};

Kernel norm(bool of_batch, Style style) {
  const ChannelNorm op{of_batch, style};
  return kernel_of([op](const Call& call) { op.forward(call); }, [op](const Call& call) { op.backward(call); },
                   style.slip);
}
Kernel group(Style style) { return norm(false, std::move(style)); }
Kernel batch(Style style) { return norm(true, std::move(style)); }

// One pass over bf16 data is wrong in long lines alone: the squares have 16 bits, so that 256 of them add up exactly in
// fp32.
const char* const kTerm = "term missing|missing term|mean|proportional|without the term";
const char* const kStored = "saved|stored|rounded|keeps|takes";
const char* const kCount = "factor|N-1|count";

void add_group_norm(std::vector<Specimen>& out) {
  add(out, "group_norm",
      {{"channel_alone", 8, "statistics of each channel, as of instance_norm", "more than one channel a group", V::bug,
        "axis|groups|attribute", group({Twist::channel_alone}), kAllTypes, V::structural},
       {"weight_of_next", 7, "the weight of the next channel", "any weight", V::bug,
        "weight|factor|another input|other input|shift|swap|transpos", group({Twist::weight_of_next})},
       {"normal_term_missing", 4, "dx without - n mean(g n)", "any", V::bug, kTerm,
        group({Twist::normal_term_missing})},
       {"mean_term_missing", 4, "dx without - mean g", "any", V::bug, kTerm, group({Twist::mean_term_missing})},
       {"unbiased", 5, "variance over N-1", "any", V::bug, kCount, group({Twist::unbiased})},
       {"eps_missing", 6, "1/sqrt(variance)", "small variance or large eps", V::bug, "eps", group({Twist::eps_missing}),
        kAllTypes, V::range_declared},
       {"one_pass_variance", 31, "E[x^2] - mean^2", "mean much larger than the spread", V::bug,
        "variance|cancel|one pass", group({Twist::one_pass}), kNotBf16, V::precision_contract},
       {"stats_in_bf16", 27, "mean and inv_std saved in bf16", "any", V::precision_contract, kStored,
        group({Twist::stats_in_bf16})},
       {"dweight_of_first_image", 8, "parameter gradients of the first image alone", "more than one image", V::bug,
        "axis|lost|image|tail|zero", group({Twist::first_image}), kAllTypes, V::structural},
       {"dweight_in_bf16", 23, "parameter gradients accumulated in bf16", "any", V::precision_contract,
        "accumulates in bf16", group({.columns = in_bf16})},
       {"dx_without_inverse", 1, "dx without its factor inv_std", "any", V::bug, "factor|inv_std",
        group({Twist::dx_without_inverse})},
       {"bias_of_group", 8, "the bias of channel g for all of group g", "more than one channel a group", V::bug,
        "bias|another|index|channel", group({Twist::bias_of_group})},
       {"groups_interleaved", 8, "channel c is of group c mod G", "more than one group", V::bug,
        "axis|groups|transpos|another|attribute", group({Twist::groups_interleaved}), kAllTypes, V::structural},
       {"dense_cotangent", 18, "dy is read as if row-major", "strided dy", V::structural, "strided",
        group({.slip = {Io::read_dense, "dy"}})}},
      {{"plain", "as written", group({})},
       {"pairwise", "pairwise sums", group({.sum = pairwise, .columns = pairwise})},
       {"recomputed", "backward computes its own statistics", group({Twist::recomputed})},
       {"reciprocal", "the mean by multiplication with 1/N", group({Twist::reciprocal})},
       {"double_sums", "sums in fp64, rounded once", group({.sum = in_double, .columns = in_double})}});
}

void add_batch_norm(std::vector<Specimen>& out) {
  add(out, "batch_norm",
      {{"running_biased", 5, "the running variance takes the one over n", "any", V::bug, kCount,
        batch({Twist::running_biased})},
       {"momentum_exchanged", 45, "momentum weighs the old running statistics", "momentum other than 1/2", V::bug,
        "attribute|momentum|factor|swap|another", batch({Twist::momentum_exchanged})},
       {"unbiased", 5, "y with the variance over N-1", "any", V::bug, kCount, batch({Twist::unbiased})},
       {"normal_term_missing", 4, "dx without - n mean(g n)", "any", V::bug, kTerm,
        batch({Twist::normal_term_missing})},
       {"mean_term_missing", 4, "dx without - mean g", "any", V::bug, kTerm, batch({Twist::mean_term_missing})},
       {"weight_not_applied", 7, "dx from dy, not from dy weight", "any weight", V::bug, "weight|factor",
        batch({Twist::weight_not_applied})},
       {"eps_outside", 6, "1/(sqrt(variance) + eps)", "small variance or large eps", V::bug, "eps",
        batch({Twist::eps_outside})},
       {"one_pass_variance", 31, "E[x^2] - mean^2", "mean much larger than the spread", V::bug,
        "variance|cancel|one pass", batch({Twist::one_pass}), kNotBf16, V::precision_contract},
       {"dweight_of_first_image", 8, "parameter gradients of the first image alone", "more than one image", V::bug,
        "axis|lost|image|tail|zero", batch({Twist::first_image}), kAllTypes, V::structural},
       {"weight_squared", 7, "y with the weight applied twice", "any weight", V::bug, "weight|twice|factor|square",
        batch({Twist::weight_squared})},
       {"running_mean_replaced", 45, "the running mean is that of the batch", "momentum below 1", V::bug,
        "momentum|term|factor|attribute|without", batch({Twist::running_mean_replaced})},
       {"half_of_images", 11, "statistics of the first half of the images", "more than one image", V::bug,
        "half|lost|axis|image|tail|block", batch({Twist::half_of_images}), kAllTypes, V::structural},
       {"clobbers_running_mean", 21, "writes into running_mean", "any", V::structural, "changes its inputs",
        batch({.slip = {Io::clobber, "running_mean"}})},
       {"unwritten_running_var", 15, "the last new_running_var is not written", "any", V::structural,
        "output buffer held|unwritten", batch({.slip = {Io::drop_last, "new_running_var"}}), kAllTypes, V::bug}},
      {{"plain", "as written", batch({})},
       {"pairwise", "pairwise sums", batch({.sum = pairwise, .columns = pairwise})},
       {"recomputed", "backward computes its own statistics", batch({Twist::recomputed})}});
}

}  // namespace

std::vector<Specimen> channel_norm_specimens() {
  std::vector<Specimen> out;
  add_group_norm(out);
  add_batch_norm(out);
  return out;
}

}  // namespace ampcheck::checks::zoo
