// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
// group_norm and batch_norm of the zoo that were its unseen part once; rules have followed from them since.
#include "checks/zoo/image_kit.h"

namespace ampcheck::checks::zoo {

namespace {

using V = Verdict;

enum class Twist {
  none,
  // Correct.
  by_parts,
  // Wrong.
  eps_squared,
  weight_by_place,
  running_in_training,
  momentum_twice,
  count_of_images,
  statistics_race,
};

struct Stats {
  float mean = 0, squares = 0, inverse = 0;  ///< squares: their sum about the mean
};

struct ChannelNorm : ChannelLines {
  Twist twist;

  ChannelNorm(Twist t, const Call& call, bool of_batch) : ChannelLines(call, of_batch), twist(t) {}
  std::size_t parameter(std::size_t at) const {
    return twist == Twist::weight_by_place ? at % index_of(channels) : channel(at);
  }

  Stats of_range(const Values& x, std::int64_t line, std::int64_t begin, std::int64_t end) const {
    const Sum sum = twist == Twist::statistics_race ? racing : in_order;
    Stats s;
    const auto value = [&](std::int64_t i) { return x[at(line, begin + i)]; };
    s.mean = total(sum, end - begin, [&](std::int64_t i) { return Term{value(i)}; }) / static_cast<float>(end - begin);
    s.squares = total(in_order, end - begin, [&](std::int64_t i) {
      const float d = value(i) - s.mean;
      return Term{d, d};
    });
    return s;
  }

  /// Moments of the parts, merged in pairs of all before and one more: Chan, Golub and LeVeque 1979.
  Stats merged(const Values& x, std::int64_t line) const {
    Stats all;
    for (std::int64_t part = 0; part < parts(); ++part) {
      const Stats own = of_range(x, line, part * places, (part + 1) * places);
      const float apart = own.mean - all.mean, before = static_cast<float>(part), both = before + 1;
      all.squares += own.squares;
      if (part > 0) all.squares += apart * apart * (static_cast<float>(places) * before / both);
      all.mean = part == 0 ? own.mean : all.mean + apart / both;
    }
    return all;
  }

  Stats stats(const Values& x, std::int64_t line, float eps) const {
    Stats s = twist == Twist::by_parts ? merged(x, line) : of_range(x, line, 0, length());
    s.inverse =
        1 / std::sqrt(s.squares / static_cast<float>(length()) + (twist == Twist::eps_squared ? eps * eps : eps));
    return s;
  }
};

void forward(const Call& call, Twist twist, bool of_batch) {
  const ChannelNorm op(twist, call, of_batch);
  const Values x = call.in("x"), weight = call.has("weight") ? call.in("weight") : Values(),
               bias = call.has("bias") ? call.in("bias") : Values();
  const Values old_mean = of_batch ? call.in("running_mean") : Values(),
               old_var = of_batch ? call.in("running_var") : Values();
  const float eps = call.number("eps"), momentum = of_batch ? call.number("momentum") : 0.0f;
  const auto moved = [&](float old, float batch) {
    const float once = (1 - momentum) * old + momentum * batch;
    return twist == Twist::momentum_twice ? (1 - momentum) * once + momentum * batch : once;
  };
  Values y(x.size()), means, inverses, new_mean, new_var;
  for (std::int64_t line = 0; line < op.lines(); ++line) {
    const Stats s = op.stats(x, line, eps);
    float mean = s.mean, inverse = s.inverse;
    if (twist == Twist::running_in_training) {
      mean = old_mean[index_of(line)];
      inverse = 1 / std::sqrt(old_var[index_of(line)] + eps);
    }
    for (std::int64_t i = 0; i < op.length(); ++i) {
      const std::size_t at = op.at(line, i);
      float v = (x[at] - mean) * inverse;
      if (!weight.empty()) v *= weight[op.parameter(at)];
      y[at] = bias.empty() ? v : v + bias[op.channel(at)];
    }
    means.push_back(s.mean);
    inverses.push_back(s.inverse);
    if (!of_batch) continue;
    new_mean.push_back(moved(old_mean[index_of(line)], s.mean));
    new_var.push_back(moved(old_var[index_of(line)], s.squares / static_cast<float>(op.length() - 1)));
  }
  call.out("y", y);
  call.out("mean", means);
  call.out("inv_std", inverses);
  if (!of_batch) return;
  call.out("new_running_mean", new_mean);
  call.out("new_running_var", new_var);
}

void backward(const Call& call, Twist twist, bool of_batch) {
  const ChannelNorm op(twist, call, of_batch);
  const Values x = call.in("x"), dy = call.in("dy"), means = call.in("mean"), inverses = call.in("inv_std"),
               weight = call.has("weight") ? call.in("weight") : Values();
  Values dx(x.size()), dweight(index_of(op.channels)), dbias(index_of(op.channels));
  const auto count = static_cast<float>(twist == Twist::count_of_images ? op.images : op.length());
  for (std::int64_t line = 0; line < op.lines(); ++line) {
    const float mean = means[index_of(line)], inverse = inverses[index_of(line)];
    const auto normal = [&](std::int64_t i) { return (x[op.at(line, i)] - mean) * inverse; };
    const auto g = [&](std::int64_t i) {
      const std::size_t at = op.at(line, i);
      return weight.empty() ? dy[at] : dy[at] * weight[op.channel(at)];
    };
    const float mean_g = total(in_order, op.length(), [&](std::int64_t i) { return Term{g(i)}; }) / count;
    const float mean_gn = total(in_order, op.length(), [&](std::int64_t i) { return Term{g(i), normal(i)}; }) / count;
    for (std::int64_t i = 0; i < op.length(); ++i) {
      const std::size_t at = op.at(line, i);
      dx[at] = inverse * (g(i) - mean_g - normal(i) * mean_gn);
      dweight[op.channel(at)] += dy[at] * normal(i);
      dbias[op.channel(at)] += dy[at];
    }
  }
  call.out("dx", dx);
  call.out("dweight", dweight);
  call.out("dbias", dbias);
}

Kernel group(Twist twist) { return kernel_of_twist(forward, backward, twist, false); }
Kernel batch(Twist twist) { return kernel_of_twist(forward, backward, twist, true); }

}  // namespace

std::vector<Specimen> common_channel_specimens() {
  std::vector<Specimen> out;
  add(out, "group_norm",
      {{"eps_squared", 6, "1/sqrt(variance + eps^2)", "small variance or large eps", V::bug, "eps",
        group(Twist::eps_squared)},
       {"weight_by_place", 8, "the weight is chosen as if channels were the last axis", "any weight", V::bug,
        "weight|transpos|broadcast|another|wrong axis|permut", group(Twist::weight_by_place)}},
      {{"channels_merged", "moments of each channel, merged", group(Twist::by_parts), "one pass"}});
  add(out, "batch_norm",
      {{"running_in_training", 45, "y by the running statistics, as in evaluation", "any", V::bug,
        "running|another input|other input", batch(Twist::running_in_training)},
       {"momentum_twice", 40, "the running statistics move twice, as when every block does it", "any", V::bug,
        "twice|factor|momentum|attribute", batch(Twist::momentum_twice)},
       {"count_of_images", 42, "the means of backward divide by N, not by N L", "L above 1", V::bug,
        "factor|count|times the", batch(Twist::count_of_images)},
       {"statistics_race", 38, "a missing barrier: every third mean loses a term", "repeats", V::structural,
        "repeats differ", batch(Twist::statistics_race), kAllTypes, V::bug}},
      {{"images_merged", "moments of each image, merged", batch(Twist::by_parts), "one pass"}});
  return out;
}

}  // namespace ampcheck::checks::zoo
