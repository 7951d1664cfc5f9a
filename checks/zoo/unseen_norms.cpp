// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
// layer_norm and rms_norm of the unseen part of the zoo: written after public fixes of kernels, without a look at the
// rules.
#include "checks/zoo/kit.h"

namespace ampcheck::checks::zoo {

namespace {

using V = Verdict;

enum class Twist {
  none,
  // Correct.
  lanes_merged,
  weighted_inverse,
  rows_from_the_end,
  // Wrong.
  parameters_exchanged,
  output_for_normal,
  normal_from_output,
  eps_twice,
  centred_in_storage,
  inverse_of_pair,
  dot_over_lanes,
  mean_of_cotangents,
  without_inverse,
  whole_vectors,
  without_root,
  dweight_of_last_rows,
  weight_of_block,
  deviation_kept,
};

struct Stats {
  float mean = 0, squares = 0;  ///< squares: their sum about the mean
};

/// 32 lanes with moments of their own, merged by a butterfly: Chan, Golub and LeVeque 1979.
Stats of_lanes(std::span<const float> x) {
  Stats lane[32];
  float count[32] = {};
  for (std::size_t i = 0; i < x.size(); ++i) {
    Stats& own = lane[i % 32];
    const float d = x[i] - own.mean;
    own.mean += d / ++count[i % 32];
    own.squares += d * (x[i] - own.mean);
  }
  for (std::size_t step = 16; step > 0; step /= 2)
    for (std::size_t i = 0; i < step; ++i) {
      Stats &a = lane[i], b = lane[i + step];
      const float both = count[i] + count[i + step], d = b.mean - a.mean;
      if (count[i + step] == 0) continue;
      a.squares += b.squares + d * d * (count[i] * count[i + step] / both);
      a.mean += d * (count[i + step] / both);
      count[i] = both;
    }
  return lane[0];
}

struct Norm {
  bool centred;
  Twist twist;

  const char* saved() const { return centred ? "inv_std" : "inv_rms"; }
  Values weight(const Call& call) const {
    Values w = call.has("weight") ? call.in("weight") : Values(index_of(call.columns("x")), 1.0f);
    if (twist == Twist::weight_of_block)  // each block of 64 columns reads the weights of the first
      for (std::size_t i = 64; i < w.size(); ++i) w[i] = w[i % 64];
    return w;
  }

  float inverse(std::span<const float> x, Dtype storage, float eps, float& mean) const {
    const auto n = static_cast<std::int64_t>(x.size());
    auto count = static_cast<float>(n);
    if (twist == Twist::whole_vectors && n > 4) count = static_cast<float>(n / 4 * 4);
    Stats s;
    if (twist == Twist::lanes_merged && n > 0) {
      s = of_lanes(x);
    } else {
      if (centred) s.mean = total(in_order, n, [&](std::int64_t i) { return Term{x[index_of(i)]}; }) / count;
      s.squares = total(in_order, n, [&](std::int64_t i) {
        const float d = x[index_of(i)] - s.mean;
        const float kept = twist == Twist::centred_in_storage ? rounded(storage, d) : d;
        return Term{kept, kept};
      });
    }
    mean = s.mean;
    const float variance = s.squares / count + (twist == Twist::eps_twice ? eps + eps : eps);
    return twist == Twist::without_root ? 1 / variance : 1 / std::sqrt(variance);
  }

  void forward(const Call& call) const {
    const Values x = call.in("x"), w = weight(call), bias = call.has("bias") ? call.in("bias") : Values();
    const std::int64_t n = call.columns("x");
    Values y, means, inverses;
    for (std::int64_t r = 0; r < call.shape("x")[0]; ++r) {
      float mean = 0;
      const float inv = inverse(row_of(x, r, n), call.dtype("x"), call.number("eps"), mean);
      for (std::int64_t i = 0; i < n; ++i) {
        const std::size_t at = index_of(i);
        const float d = x[index_of(r * n + i)] - mean;
        const float v = twist == Twist::weighted_inverse ? d * (inv * w[at]) : d * inv * w[at];
        y.push_back(bias.empty() ? v : v + bias[at]);
      }
      means.push_back(mean);
      inverses.push_back(twist == Twist::deviation_kept ? 1 / inv : inv);
    }
    call.out("y", y);
    if (centred) call.out("mean", means);
    call.out(saved(), inverses);
  }

  struct Gradients {
    Values dx, dweight, dbias;
  };

  /// What backward takes for (x - mean) inv_std.
  Values normal(const Call& call, std::span<const float> x, const Values& w, float mean, float inv) const {
    const Values bias = call.has("bias") ? call.in("bias") : Values();
    Values out;
    for (std::size_t i = 0; i < x.size(); ++i) {
      const float n = (x[i] - mean) * inv, b = bias.empty() ? 0.0f : bias[i];
      if (twist == Twist::output_for_normal)
        out.push_back(n * w[i] + b);
      else if (twist == Twist::normal_from_output)
        out.push_back((rounded(call.dtype("x"), n * w[i] + b) - b) / w[i]);
      else
        out.push_back(n);
    }
    return out;
  }

  void backward_row(const Call& call, std::int64_t r, std::span<const float> x, std::span<const float> dy, float mean,
                    float inv, const Values& w, Gradients& out) const {
    const auto n = static_cast<std::int64_t>(x.size());
    const Values normals = normal(call, x, w, mean, inv);
    const auto g = [&](std::int64_t i) { return dy[index_of(i)] * w[index_of(i)]; };
    const auto mean_of = [&](auto term) { return total(in_order, n, term) / static_cast<float>(n); };
    const float mean_g = mean_of([&](std::int64_t i) { return Term{g(i)}; });
    float mean_gn = mean_of([&](std::int64_t i) { return Term{g(i), normals[index_of(i)]}; });
    if (twist == Twist::mean_of_cotangents)
      mean_gn = mean_of([&](std::int64_t i) { return Term{dy[index_of(i)], normals[index_of(i)]}; });
    if (twist == Twist::dot_over_lanes)  // the lanes' sums are divided, but only the first half of them is added up
      mean_gn = mean_of([&](std::int64_t i) { return Term{i % 32 < 16 ? g(i) : 0.0f, normals[index_of(i)]}; });
    const bool counts = twist != Twist::dweight_of_last_rows || r >= call.shape("x")[0] - 32;
    for (std::int64_t i = 0; i < n; ++i) {
      const std::size_t at = index_of(i);
      out.dx[index_of(r * n + i)] = inv * ((centred ? g(i) - mean_g : g(i)) - normals[at] * mean_gn);
      if (!counts) continue;
      out.dweight[at] += dy[at] * (twist == Twist::without_inverse ? x[at] - mean : normals[at]);
      out.dbias[at] += dy[at];
    }
  }

  void backward(const Call& call) const {
    const Values x = call.in("x"), dy = call.in("dy"), inverses = call.in(saved()), w = weight(call);
    const std::int64_t n = call.columns("x"), rows = call.shape("x")[0];
    const Values means = centred ? call.in("mean") : Values(index_of(rows));
    Gradients out{Values(x.size()), Values(index_of(n)), Values(index_of(n))};
    for (std::int64_t k = 0; k < rows; ++k) {
      const std::int64_t r = twist == Twist::rows_from_the_end ? rows - 1 - k : k;
      const float inv = inverses[index_of(twist == Twist::inverse_of_pair ? r / 2 * 2 : r)];
      backward_row(call, r, row_of(x, r, n), row_of(dy, r, n), means[index_of(r)], inv, w, out);
    }
    if (twist == Twist::parameters_exchanged) std::swap(out.dweight, out.dbias);
    call.out("dx", out.dx);
    call.out("dweight", out.dweight);
    if (centred) call.out("dbias", out.dbias);
  }
};

Kernel layer(Twist twist) { return kernel_of_op(Norm{true, twist}); }
Kernel rms(Twist twist) { return kernel_of_op(Norm{false, twist}); }

constexpr const char* kOtherRow =
    "another row|rows are not independent|changes with other rows|row before|stale|every other row|previous row";

void add_layer_norm(std::vector<Specimen>& out) {
  add(out, "layer_norm",
      {{"parameters_exchanged", 7, "dweight and dbias are exchanged", "any", V::bug,
        "swap|exchang|another output|other output|another output or gradient|term missing|factor",
        layer(Twist::parameters_exchanged)},
       {"output_for_normal", 7, "backward takes y for the normalised input", "a weight or bias", V::bug,
        "output|weight|bias|another|normali", layer(Twist::output_for_normal)},
       {"normal_from_stored_output", 27, "backward takes (y - bias) / weight of y as stored", "any",
        V::precision_contract, "rounded|stored|saved|keeps|takes|0/0|divi|infinite|cancel",
        layer(Twist::normal_from_output), kHalfTypes, V::bug},
       {"eps_twice", 6, "eps is added to the variance, and once more under the root", "small variance or large eps",
        V::bug, "eps|twice", layer(Twist::eps_twice)},
       {"centred_in_storage", 25, "x - mean is rounded to the storage type before it is squared", "any",
        V::precision_contract, "rounded|stored|keeps|takes", layer(Twist::centred_in_storage), kHalfTypes, V::bug},
       {"inverse_of_pair", 17, "backward takes one inv_std for two rows, that of the first", "more than one row",
        V::structural, kOtherRow, layer(Twist::inverse_of_pair), kAllTypes, V::bug},
       {"half_of_lanes", 40, "mean(g n) has the sums of 16 lanes of 32", "more than 16 columns", V::bug,
        "lost|lanes|leaves out|left out|half|stride|block|warp", layer(Twist::dot_over_lanes), kAllTypes,
        V::structural},
       {"dweight_of_last_block", 11, "parameter gradients of the last 32 rows alone", "more than 32 rows", V::bug,
        "lost|block|only the last|rows|overwrit|left out|leaves out|accumul", layer(Twist::dweight_of_last_rows),
        kAllTypes, V::structural},
       {"weight_of_first_block", 22, "each block of 64 columns reads the weights of the first", "more than 64 columns",
        V::bug, "weight|block|index|shift|another|first|stride|repeat|tail|last full vector",
        layer(Twist::weight_of_block), kAllTypes, V::structural}},
      {{"lanes_merged", "moments of 32 lanes, merged by a butterfly", layer(Twist::lanes_merged), "one pass"},
       {"rows_from_the_end", "parameter gradients from the last row up", layer(Twist::rows_from_the_end)}});
}

void add_rms_norm(std::vector<Specimen>& out) {
  add(out, "rms_norm",
      {{"mean_before_weight", 7, "mean(dy n) is subtracted, where mean(dy weight n) is due", "any weight", V::bug,
        "weight|factor", rms(Twist::mean_of_cotangents)},
       {"dweight_without_inverse", 1, "dweight = sum dy x, without inv_rms", "any", V::bug,
        "factor|inv_rms|inv|scale|x for|another|normali|missing", rms(Twist::without_inverse)},
       {"whole_vectors_count", 5, "the mean square divides by D cut to a multiple of 4",
        "rows that are no multiple of 4", V::bug, "count|factor|mean|divid|tail|last full vector",
        rms(Twist::whole_vectors), kAllTypes, V::structural},
       {"without_root", 1, "x / (mean square + eps), without the root", "any", V::bug,
        "root|sqrt|power|square|exponent|factor|twice", rms(Twist::without_root)},
       {"deviation_saved", 7, "what is saved is the root, and backward takes it for its inverse", "any", V::bug,
        "inver|reciproc|divid|factor|inv_rms|root|sqrt|saved|power|another", rms(Twist::deviation_kept)}},
      {{"weighted_inverse", "x (inv_rms weight)", rms(Twist::weighted_inverse)},
       {"rows_from_the_end", "dweight from the last row up", rms(Twist::rows_from_the_end)}});
}

}  // namespace

std::vector<Specimen> unseen_norm_specimens() {
  std::vector<Specimen> out;
  add_layer_norm(out);
  add_rms_norm(out);
  return out;
}

}  // namespace ampcheck::checks::zoo
