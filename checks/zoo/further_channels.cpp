// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
// group_norm and batch_norm: counts, channels and running statistics that are not the ones in the paper.
#include "checks/zoo/image_kit.h"

namespace ampcheck::checks::zoo {

namespace {

using V = Verdict;

enum class Twist {
  none,
  count_of_places,
  mean_g_of_first_part,
  square_not_centred,
  eps_beside_root,
  dweight_without_inverse,
  weight_inverted,
  running_std,
  bias_of_next,
  sums_not_divided,
  momentum_of_mean_alone,
  dbias_of_places_of_one,
  sign_of_mean,
};

struct Stats {
  float mean = 0, squares = 0, inverse = 0;
};

struct ChannelNorm : ChannelLines {
  Twist twist;

  ChannelNorm(Twist t, const Call& call, bool of_batch) : ChannelLines(call, of_batch), twist(t) {}

  Stats stats(const Values& x, std::int64_t line, float eps) const {
    const auto count = static_cast<float>(twist == Twist::count_of_places ? places : length());
    Stats s;
    for (std::int64_t i = 0; i < length(); ++i) s.mean += x[at(line, i)];
    s.mean /= count;
    for (std::int64_t i = 0; i < length(); ++i) {
      const float d = twist == Twist::square_not_centred ? x[at(line, i)] : x[at(line, i)] - s.mean;
      s.squares += d * d;
    }
    const float variance = s.squares / count;
    s.inverse = twist == Twist::eps_beside_root ? 1 / std::sqrt(variance) + eps : 1 / std::sqrt(variance + eps);
    return s;
  }
};

Values of_channels(const Call& call, const char* name) { return call.has(name) ? call.in(name) : Values(); }

void forward(const Call& call, Twist twist, bool of_batch) {
  const ChannelNorm op(twist, call, of_batch);
  const Values x = call.in("x"), weight = of_channels(call, "weight"), bias = of_channels(call, "bias"),
               old_mean = of_channels(call, "running_mean"), old_var = of_channels(call, "running_var");
  const float momentum = of_batch ? call.number("momentum") : 0.0f;
  Values y(x.size()), means, inverses, new_mean, new_var;
  for (std::int64_t line = 0; line < op.lines(); ++line) {
    const Stats s = op.stats(x, line, call.number("eps"));
    for (std::int64_t i = 0; i < op.length(); ++i) {
      const std::size_t at = op.at(line, i), channel = op.channel(at), count = index_of(op.channels);
      float v = (twist == Twist::sign_of_mean ? x[at] + s.mean : x[at] - s.mean) * s.inverse;
      if (!weight.empty()) v = twist == Twist::weight_inverted ? v / weight[channel] : v * weight[channel];
      const std::size_t of_bias = twist == Twist::bias_of_next ? (channel + 1) % count : channel;
      y[at] = bias.empty() ? v : v + bias[of_bias];
    }
    means.push_back(s.mean);
    inverses.push_back(s.inverse);
    if (!of_batch) continue;
    float variance = s.squares / static_cast<float>(op.length() - 1);
    if (twist == Twist::running_std) variance = std::sqrt(variance);
    const auto moved = [&](float old, float batch, float m) { return (1 - m) * old + m * batch; };
    new_mean.push_back(moved(old_mean[index_of(line)], s.mean, momentum));
    new_var.push_back(moved(old_var[index_of(line)], variance,
                            twist == Twist::momentum_of_mean_alone ? momentum * momentum : momentum));
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
               weight = of_channels(call, "weight");
  Values dx(x.size()), dweight(index_of(op.channels)), dbias(index_of(op.channels));
  for (std::int64_t line = 0; line < op.lines(); ++line) {
    const float mean = means[index_of(line)], inverse = inverses[index_of(line)];
    const auto normal = [&](std::int64_t i) { return (x[op.at(line, i)] - mean) * inverse; };
    const auto g = [&](std::int64_t i) {
      const std::size_t at = op.at(line, i);
      if (weight.empty()) return dy[at];
      return twist == Twist::weight_inverted ? dy[at] / weight[op.channel(at)] : dy[at] * weight[op.channel(at)];
    };
    const auto count = static_cast<float>(twist == Twist::sums_not_divided ? 1 : op.length());
    const auto sum = [&](std::int64_t n, auto term) { return total(in_order, n, term); };
    float mean_g = sum(op.length(), [&](std::int64_t i) { return Term{g(i)}; }) / count;
    if (twist == Twist::mean_g_of_first_part)
      mean_g = sum(op.places, [&](std::int64_t i) { return Term{g(i)}; }) / static_cast<float>(op.places);
    const float mean_gn = sum(op.length(), [&](std::int64_t i) { return Term{g(i), normal(i)}; }) / count;
    for (std::int64_t i = 0; i < op.length(); ++i) {
      const std::size_t at = op.at(line, i);
      dx[at] = inverse * (g(i) - mean_g - normal(i) * mean_gn);
      dweight[op.channel(at)] += dy[at] * (twist == Twist::dweight_without_inverse ? x[at] - mean : normal(i));
      if (twist != Twist::dbias_of_places_of_one || i % op.places == 0) dbias[op.channel(at)] += dy[at];
    }
  }
  call.out("dx", dx);
  call.out("dweight", dweight);
  call.out("dbias", dbias);
}

Kernel group(Twist twist) { return kernel_of_twist(forward, backward, twist, false); }
Kernel batch(Twist twist) { return kernel_of_twist(forward, backward, twist, true); }

}  // namespace

std::vector<Specimen> further_channel_specimens() {
  std::vector<Specimen> out;
  add(out, "group_norm",
      {{"count_of_places", 42, "statistics divide by L, not by L C/G", "more than one channel a group", V::bug,
        "factor|count|mean|divid|channel", group(Twist::count_of_places)},
       {"mean_of_first_channel", 8, "mean g is that of the group's first channel", "more than one channel a group",
        V::bug, "axis|channel|group|mean|first|lost|leaves out", group(Twist::mean_g_of_first_part)},
       {"square_not_centred", 4, "the mean of x^2 for the variance", "any", V::bug,
        "mean|term|missing|without|variance|centred|square", group(Twist::square_not_centred)},
       {"eps_beside_root", 6, "1/sqrt(variance) + eps", "any", V::bug,
        "eps outside|beside|after the root|without the term eps|without eps|root + eps", group(Twist::eps_beside_root)},
       {"dweight_without_inverse", 1, "dweight = sum dy (x - mean)", "any", V::bug,
        "factor|inv_std|missing|without|normal", group(Twist::dweight_without_inverse)},
       {"dbias_of_first_place", 8, "dbias adds up the first place of each channel alone", "L above 1", V::bug,
        "axis|first|lost|leaves out|left out|only|broadcast|places|stride", group(Twist::dbias_of_places_of_one),
        kAllTypes, V::structural}},
      {});
  add(out, "batch_norm",
      {{"running_std", 30, "the running variance takes in the standard deviation", "any", V::bug,
        "root|sqrt|another|square|power|variance", batch(Twist::running_std)},
       {"bias_of_next", 14, "the bias of the next channel", "more than one channel, any bias", V::bug,
        "bias|another|shift|next|channel|index|permut", batch(Twist::bias_of_next), kAllTypes, V::structural},
       {"sums_not_divided", 42, "backward takes sum g and sum g n for the means", "any", V::bug,
        "factor|count|mean|divid|times|sum", batch(Twist::sums_not_divided)},
       {"momentum_squared", 40, "the running variance moves by momentum^2", "momentum other than 1", V::bug,
        "momentum|attribute|twice|factor|square", batch(Twist::momentum_of_mean_alone)},
       {"mean_added", 2, "y = (x + mean) inv_std weight + bias", "any", V::bug, "sign|plus|added|mean|twice",
        batch(Twist::sign_of_mean)},
       {"weight_inverted", 7, "divided by the weight, forward and backward", "any weight", V::bug,
        "weight|divid|invers|invert|recipro|factor", batch(Twist::weight_inverted), kAllTypes, V::range_declared}},
      {});
  return out;
}

}  // namespace ampcheck::checks::zoo
