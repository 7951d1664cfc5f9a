// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
// group_norm and batch_norm of the unseen part of the zoo: written after public fixes of kernels, without a look at the
// rules.
#include "checks/zoo/image_kit.h"

namespace ampcheck::checks::zoo {

namespace {

using V = Verdict;

enum class Twist {
  none,
  // Correct.
  sums_of_parts,
  in_double,
  // Wrong.
  groups_exchanged,
  count_of_channels,
  folded_in_storage,
  dweight_weighted,
  weight_within_group,
  last_place_lost,
  running_var_with_eps,
  fixed_momentum,
  dbias_with_inverse,
  channels_last,
  dx_of_evaluation,
};

struct Stats {
  float mean = 0, squares = 0, inverse = 0;  ///< squares: their sum about the mean
};

struct Layout : ChannelLines {
  Twist twist;

  Layout(const Call& call, Twist t, bool of_batch) : ChannelLines(call, of_batch), twist(t) {}
  bool channels_last() const { return groups == 0 && twist == Twist::channels_last; }
  std::size_t at(std::int64_t line, std::int64_t i) const {
    return channels_last() ? index_of(i * channels + line) : ChannelLines::at(line, i);
  }
  std::size_t channel(std::size_t at) const {
    return twist == Twist::channels_last ? at % index_of(channels) : ChannelLines::channel(at);
  }
  std::size_t weight(std::size_t at) const {
    return twist == Twist::weight_within_group ? channel(at) % index_of(channels / groups) : channel(at);
  }

  template <class F>
  float sum(F term) const {
    if (twist == Twist::in_double) return total(zoo::in_double, length(), term);
    if (twist != Twist::sums_of_parts) return total(in_order, length(), term);
    float s = 0;
    for (std::int64_t part = 0; part < parts(); ++part)
      s += total(pairwise, places, [&](std::int64_t i) { return term(part * places + i); });
    return s;
  }
  Stats stats(const Values& x, std::int64_t line, float eps) const {
    Stats s;
    s.mean = sum([&](std::int64_t i) { return Term{x[at(line, i)]}; }) / static_cast<float>(length());
    s.squares = sum([&](std::int64_t i) {
      const float d = x[at(line, i)] - s.mean;
      const bool lost = twist == Twist::last_place_lost && i % places == places - 1 && places > 1;
      return Term{lost ? 0.0f : d, d};
    });
    s.inverse = 1 / std::sqrt(s.squares / static_cast<float>(length()) + eps);
    return s;
  }
};

/// y of all lines of a layout.
Values normalised(const Call& call, const Layout& op) {
  const Values x = call.in("x"), weight = call.has("weight") ? call.in("weight") : Values(),
               bias = call.has("bias") ? call.in("bias") : Values();
  Values y(x.size());
  for (std::int64_t line = 0; line < op.lines(); ++line) {
    const Stats s = op.stats(x, line, call.number("eps"));
    for (std::int64_t i = 0; i < op.length(); ++i) {
      const std::size_t at = op.at(line, i);
      const float w = weight.empty() ? 1.0f : weight[op.weight(at)], b = bias.empty() ? 0.0f : bias[op.channel(at)];
      if (op.twist == Twist::folded_in_storage) {  // y = x a + c, with a and c of the channel
        const Dtype storage = call.dtype("x");
        const float a = s.inverse * w;
        y[at] = x[at] * rounded(storage, a) + rounded(storage, b - s.mean * a);
      } else {
        const float v = (x[at] - s.mean) * s.inverse * w;
        y[at] = bias.empty() ? v : v + b;
      }
    }
  }
  return y;
}

void forward(const Call& call, Twist twist, bool of_batch) {
  const Layout op(call, twist, of_batch);
  Layout of_y = op;
  if (twist == Twist::groups_exchanged) of_y.groups = op.channels / op.groups;
  call.out("y", normalised(call, of_y));
  const Values x = call.in("x");
  Values means, inverses, squares;
  for (std::int64_t line = 0; line < op.lines(); ++line) {
    const Stats s = op.stats(x, line, call.number("eps"));
    means.push_back(s.mean);
    inverses.push_back(s.inverse);
    squares.push_back(s.squares);
  }
  call.out("mean", means);
  call.out("inv_std", inverses);
  if (!of_batch) return;
  const float momentum = twist == Twist::fixed_momentum ? 0.1f : call.number("momentum");
  const auto moved = [&](float old, float batch) { return (1 - momentum) * old + momentum * batch; };
  const Values old_mean = call.in("running_mean"), old_var = call.in("running_var");
  Values new_mean, new_var;
  for (std::size_t c = 0; c < means.size(); ++c) {
    float variance = squares[c] / static_cast<float>(op.length() - 1);
    if (twist == Twist::running_var_with_eps) variance += call.number("eps");
    new_mean.push_back(moved(old_mean[c], means[c]));
    new_var.push_back(moved(old_var[c], variance));
  }
  call.out("new_running_mean", new_mean);
  call.out("new_running_var", new_var);
}

void backward(const Call& call, Twist twist, bool of_batch) {
  const Layout op(call, twist, of_batch);
  const Values x = call.in("x"), dy = call.in("dy"), means = call.in("mean"), inverses = call.in("inv_std"),
               weight = call.has("weight") ? call.in("weight") : Values();
  Values dx(x.size()), dweight(index_of(op.channels)), dbias(index_of(op.channels));
  const auto count = static_cast<float>(twist == Twist::count_of_channels ? op.parts() : op.length());
  for (std::int64_t line = 0; line < op.lines(); ++line) {
    const float mean = means[index_of(line)], inverse = inverses[index_of(line)];
    const auto normal = [&](std::int64_t i) { return (x[op.at(line, i)] - mean) * inverse; };
    const auto g = [&](std::int64_t i) {
      const std::size_t at = op.at(line, i);
      return weight.empty() ? dy[at] : dy[at] * weight[op.weight(at)];
    };
    const float mean_g = op.sum([&](std::int64_t i) { return Term{g(i)}; }) / count;
    const float mean_gn = op.sum([&](std::int64_t i) { return Term{g(i), normal(i)}; }) / count;
    for (std::int64_t i = 0; i < op.length(); ++i) {
      const std::size_t at = op.at(line, i), c = op.channel(at);
      dx[at] = inverse * (twist == Twist::dx_of_evaluation ? g(i) : g(i) - mean_g - normal(i) * mean_gn);
      dweight[c] += (twist == Twist::dweight_weighted ? g(i) : dy[at]) * normal(i);
      dbias[c] += twist == Twist::dbias_with_inverse ? dy[at] * inverse : dy[at];
    }
  }
  call.out("dx", dx);
  call.out("dweight", dweight);
  call.out("dbias", dbias);
}

Kernel group(Twist twist) { return kernel_of_twist(forward, backward, twist, false); }
Kernel batch(Twist twist) { return kernel_of_twist(forward, backward, twist, true); }

void add_group_norm(std::vector<Specimen>& out) {
  add(out, "group_norm",
      {{"groups_exchanged", 45, "y takes the channels of a group for the number of groups", "C/G other than G", V::bug,
        "group|attribute|axis|another|permut|variance|mean", group(Twist::groups_exchanged), kAllTypes, V::structural},
       {"count_of_channels", 42, "the means of backward divide by C/G, not by C/G L", "L above 1", V::bug,
        "count|factor|places|mean|divid", group(Twist::count_of_channels)},
       {"folded_in_storage", 27,
        "y = x a + c, where a = inv_std weight and c = bias - mean a are kept in the storage type", "any",
        V::precision_contract, "rounded|stored|keeps|takes|cancel|overflow|infinite|scale|factor",
        group(Twist::folded_in_storage), kHalfTypes, V::bug},
       {"dweight_weighted", 7, "dweight adds up dy weight n, not dy n", "any weight", V::bug,
        "weight|factor|twice|square", group(Twist::dweight_weighted)},
       {"weight_within_group", 22, "the weight is that of the channel's number within its group", "more than one group",
        V::bug, "weight|index|another|group|broadcast|permut|stride|shift|repeat|first",
        group(Twist::weight_within_group), kAllTypes, V::structural}},
      {{"sums_of_channels", "pairwise sums of each channel, added up", group(Twist::sums_of_parts)}});
}

void add_batch_norm(std::vector<Specimen>& out) {
  add(out, "batch_norm",
      {{"running_var_with_eps", 6, "the running variance takes variance + eps", "small variance or large eps", V::bug,
        "eps|constant|added", batch(Twist::running_var_with_eps)},
       {"fixed_momentum", 45, "0.1 whatever momentum is", "another momentum", V::bug,
        "momentum|attribute|constant|factor", batch(Twist::fixed_momentum)},
       {"dbias_with_inverse", 1, "dbias = sum dy inv_std", "any", V::bug, "factor|inv|scale|inv_std",
        batch(Twist::dbias_with_inverse)},
       {"channels_last", 8, "x is taken for [N, L, C]", "L above 1", V::bug,
        "axis|transpos|layout|channel|another|permut|stride|index|exchang", batch(Twist::channels_last), kAllTypes,
        V::structural},
       {"dx_of_evaluation", 4, "dx = g inv_std, as with running statistics", "any", V::bug,
        "term missing|missing term|without the term|missing|mean|proportional|statistics",
        batch(Twist::dx_of_evaluation)},
       {"last_place_lost", 13, "the squares of the last place of each image are left out", "L above 1", V::bug,
        "lost|tail|last|left out|leaves out|off by one|variance|place", batch(Twist::last_place_lost), kAllTypes,
        V::structural}},
      {{"sums_of_images", "pairwise sums of each image, added up", batch(Twist::sums_of_parts)},
       {"double_sums", "sums in fp64, rounded once", batch(Twist::in_double)}});
}

}  // namespace

std::vector<Specimen> unseen_channel_specimens() {
  std::vector<Specimen> out;
  add_group_norm(out);
  add_batch_norm(out);
  return out;
}

}  // namespace ampcheck::checks::zoo
