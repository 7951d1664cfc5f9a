// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
// conv2d: groups, layouts, transforms and gathers that are not the ones that are due.
#include <algorithm>

#include "checks/zoo/image_kit.h"
#include "checks/zoo/shop_pools.h"

namespace ampcheck::checks::zoo {

namespace {

using V = Verdict;

enum class Twist {
  none,
  // Forward and backward.
  one_channel_each,
  square_window,
  // Forward.
  taps_before_channels,
  pitch_of_height,
  stored_channels_last,
  bias_of_each_channel,
  last_channels_alone,
  winograd_in_storage,
  // Backward.
  unreached_kept,
  inner_outputs,
  no_remainder_test,
  dx_in_storage,
  dweight_without_stride,
  dx_of_output_plane,
};

/// Calls visit(place in weight, place in x or -1) for each tap of an output.
template <class F>
void taps(const ImageExtents& e, const Shape& w, Twist twist, std::int64_t image, std::int64_t o, std::int64_t i,
          std::int64_t j, F visit) {
  for (std::int64_t c = 0; c < w[1]; ++c) {
    if (twist == Twist::one_channel_each && c != o % w[1]) continue;
    // Half of the channels each, and the second half overwrites the first.
    if (twist == Twist::last_channels_alone && c < w[1] / 2) continue;
    for (std::int64_t r = 0; r < w[2]; ++r)
      for (std::int64_t s = 0; s < w[3]; ++s) {
        if (twist == Twist::square_window && s >= w[2]) continue;
        const std::int64_t stride = twist == Twist::dweight_without_stride ? 1 : e.stride;
        const std::int64_t row = i * stride - e.padding + r, column = j * stride - e.padding + s;
        std::int64_t at = e.cell_or_none(image * e.c + c, row, column);
        if (twist == Twist::pitch_of_height && at >= 0)
          at = ((image * e.c + c) * e.h * e.w + row * e.h + column) % (e.n * e.c * e.h * e.w);
        const bool channels_last = twist == Twist::taps_before_channels;
        visit(channels_last ? ((o * w[2] + r) * w[3] + s) * w[1] + c : ((o * w[1] + c) * w[2] + r) * w[3] + s, at);
      }
  }
}

/// Two neighbours of a row at once, F(2, 3) of Winograd 1980, with the transformed operands in the storage type.
float by_winograd(const ImageExtents& e, const Shape& w, const Values& x, const Values& weight, Dtype dtype,
                  std::int64_t image, std::int64_t o, std::int64_t i, std::int64_t j) {
  float first = 0, second = 0;
  for (std::int64_t c = 0; c < w[1]; ++c)
    for (std::int64_t r = 0; r < w[2]; ++r) {
      float d[4];
      for (std::int64_t at = 0; at < 4; ++at) {
        const std::int64_t place = e.cell_or_none(image * e.c + c, i - e.padding + r, j / 2 * 2 - e.padding + at);
        d[at] = place < 0 ? 0.0f : x[index_of(place)];
      }
      const float* g = weight.data() + ((o * w[1] + c) * w[2] + r) * 3;
      const auto product = [&](float of_x, float of_weight) {
        return rounded(dtype, of_x) * rounded(dtype, of_weight);
      };
      const float one = product(d[0] - d[2], g[0]), two = product(d[1] + d[2], (g[0] + g[1] + g[2]) / 2),
                  three = product(d[2] - d[1], (g[0] - g[1] + g[2]) / 2), four = product(d[1] - d[3], g[2]);
      first += one + two + three;
      second += two - three - four;
    }
  return j % 2 == 0 ? first : second;
}

void forward(const Call& call, Twist twist) {
  const ImageExtents e(call, "y");
  const Values x = call.in("x"), weight = call.in("weight"), bias = call.has("bias") ? call.in("bias") : Values();
  const Shape& w = call.shape("weight");
  Values y(index_of(call.shape("y").count()));
  const float times = twist == Twist::bias_of_each_channel ? static_cast<float>(w[1]) : 1;
  for_outputs(e, w[0], [&](auto image, auto o, auto i, auto j, std::size_t out) {
    float v = 0;
    if (twist == Twist::winograd_in_storage && e.stride == 1 && w[3] == 3)
      v = by_winograd(e, w, x, weight, call.dtype("x"), image, o, i, j);
    else
      taps(e, w, twist, image, o, i, j,
           [&](std::int64_t k, std::int64_t at) { v += weight[index_of(k)] * (at < 0 ? 0.0f : x[index_of(at)]); });
    if (!bias.empty()) v += times * bias[index_of(o)];
    const std::int64_t last = ((image * e.oh + i) * e.ow + j) * w[0] + o;
    y[twist == Twist::stored_channels_last ? index_of(last) : out] = v;
  });
  call.out("y", y);
}

/// dx of a gather: which outputs meet a cell, without the test that the stride divides the distance.
Values gathered(const ImageExtents& e, const Shape& w, const Values& weight, const Values& g) {
  Values dx(index_of(e.n * e.c * e.h * e.w));
  for (std::int64_t plane = 0; plane < e.n * e.c; ++plane)
    for (std::int64_t row = 0; row < e.h; ++row)
      for (std::int64_t column = 0; column < e.w; ++column) {
        float& out = dx[index_of(e.cell(plane, row, column))];
        for (std::int64_t o = 0; o < w[0]; ++o)
          for (std::int64_t r = 0; r < w[2]; ++r)
            for (std::int64_t s = 0; s < w[3]; ++s) {
              const std::int64_t down = row + e.padding - r, right = column + e.padding - s;
              if (down < 0 || right < 0 || down / e.stride >= e.oh || right / e.stride >= e.ow) continue;
              const std::int64_t from = ((plane / e.c * w[0] + o) * e.oh + down / e.stride) * e.ow + right / e.stride;
              out += g[index_of(from)] * weight[index_of(((o * w[1] + plane % e.c) * w[2] + r) * w[3] + s)];
            }
      }
  return dx;
}

void backward(const Call& call, Twist twist) {
  const ImageExtents e(call, "dy");
  const Values x = call.in("x"), weight = call.in("weight"), g = call.in("dy");
  const Shape& w = call.shape("weight");
  Values dx(x.size()), dweight(weight.size()), dbias(index_of(w[0]));
  std::vector<char> reached(x.size());
  const bool both = twist == Twist::one_channel_each || twist == Twist::square_window;
  const Twist of_dweight = both || twist == Twist::dweight_without_stride ? twist : Twist::none;
  for_outputs(e, w[0], [&](auto image, auto o, auto i, auto j, std::size_t out) {
    dbias[index_of(o)] += g[out];
    taps(e, w, both ? twist : Twist::none, image, o, i, j, [&](std::int64_t k, std::int64_t at) {
      if (at < 0) return;
      float& to = dx[index_of(at)];
      reached[index_of(at)] = 1;
      to += g[out] * weight[index_of(k)];
      if (twist == Twist::dx_in_storage) to = rounded(call.dtype("x"), to);
    });
    bool inner = true;
    taps(e, w, Twist::none, image, o, i, j, [&](std::int64_t, std::int64_t at) { inner = inner && at >= 0; });
    if (twist == Twist::inner_outputs && !inner) return;
    taps(e, w, of_dweight, image, o, i, j,
         [&](std::int64_t k, std::int64_t at) { dweight[index_of(k)] += g[out] * (at < 0 ? 0.0f : x[index_of(at)]); });
  });
  if (twist == Twist::no_remainder_test) dx = gathered(e, w, weight, g);
  if (twist == Twist::unreached_kept && call.has("dx")) {
    const Values before = call.in("dx");
    for (std::size_t at = 0; at < dx.size(); ++at)
      if (reached[at] == 0) dx[at] = before[at];
  }
  if (twist == Twist::dx_of_output_plane)  // as many cells of a plane as an output has
    for (std::size_t at = 0; at < dx.size(); ++at)
      if (static_cast<std::int64_t>(at) % (e.h * e.w) >= e.oh * e.ow) dx[at] = 0;
  call.out("dx", dx);
  call.out("dweight", dweight);
  call.out("dbias", dbias);
}

Kernel conv(Twist of_forward, Twist of_backward = Twist::none) {
  return kernel_of([=](const Call& call) { forward(call, of_forward); },
                   [=](const Call& call) { backward(call, of_backward); });
}
Kernel back(Twist twist) { return conv(Twist::none, twist); }

}  // namespace

std::vector<Specimen> shop_window_specimens() {
  std::vector<Specimen> out;
  add(out, "conv2d",
      {{"one_channel_each", 45, "output channel o sees input channel o mod C alone, as if depthwise", "C above 1",
        V::bug, "group|depthwise|channel|lost|leaves out|left out|only",
        conv(Twist::one_channel_each, Twist::one_channel_each), kAllTypes, V::structural},
       {"square_window_assumed", 45, "taps of a row beyond R are left out, as the window is taken to be square",
        "S above R", V::bug, "square|window|tap|lost|leaves out|left out|tail|last|column",
        conv(Twist::square_window, Twist::square_window), kAllTypes, V::structural},
       {"taps_before_channels", 7, "the weight is read as [O, R, S, C]", "C above 1", V::bug,
        "transpos|exchang|axes|permut|layout|order|another place", conv(Twist::taps_before_channels), kAllTypes,
        V::structural},
       {"pitch_of_height", 20, "rows of x are taken to be H apart", "H other than W", V::bug,
        "stride|pitch|row length|rows of|index|width|exchang|another place|extent", conv(Twist::pitch_of_height),
        kAllTypes, V::structural},
       {"stored_channels_last", 19, "y is stored as [N, H', W', O]", "O above 1", V::bug,
        "transpos|exchang|axes|permut|layout|order|channels last|another place", conv(Twist::stored_channels_last),
        kAllTypes, V::structural},
       {"bias_of_each_channel", 40, "the bias is added once for each input channel", "any bias, C above 1", V::bug,
        "bias|factor|times|twice|count|each", conv(Twist::bias_of_each_channel)},
       {"last_channels_alone", 16, "the second half of the channels overwrites the sum of the first", "C above 1",
        V::bug, "overwrit|only the last|half|channel|lost|leaves out|left out|block", conv(Twist::last_channels_alone),
        kAllTypes, V::structural},
       {"winograd_in_storage", 25, "sums of Winograd's transforms are rounded to the storage type",
        "S = 3 and stride 1", V::precision_contract, "rounded|stored|keeps|takes|winograd|partial|cancel",
        conv(Twist::winograd_in_storage), kHalfTypes, V::bug},
       {"dx_unreached_kept", 15, "cells that no window covers keep what dx held", "strides that leave cells over",
        V::structural, "output buffer held|unwritten|not written|buffer|stale", back(Twist::unreached_kept), kAllTypes,
        V::bug},
       {"dweight_of_inner_outputs", 44, "dweight leaves out windows that reach beyond the image", "padding", V::bug,
        "padding|border|halo|inside|edge|lost|leaves out|left out", back(Twist::inner_outputs), kAllTypes,
        V::structural},
       {"dx_without_remainder_test", 45, "dx divides by the stride without the test for a remainder", "stride above 1",
        V::bug, "stride|remainder|extra|twice|divid|attribute|more terms|modulo", back(Twist::no_remainder_test),
        kAllTypes, V::structural},
       {"dx_added_in_storage", 23, "windows add to a dx of the storage type", "windows that overlap",
        V::precision_contract, "accumulates in|partial|rounded|stored|keeps|takes", back(Twist::dx_in_storage),
        kHalfTypes, V::bug},
       {"dweight_without_stride", 45, "dweight meets x as with stride 1", "stride above 1", V::bug,
        "stride|attribute|shift|another place|index", back(Twist::dweight_without_stride), kAllTypes, V::structural},
       {"dx_of_output_plane", 13, "dx has as many cells of a plane as an output has, the others are 0",
        "outputs smaller than the image", V::bug, "tail|last|zero|lost|leaves out|left out|extent|beyond",
        back(Twist::dx_of_output_plane), kAllTypes, V::structural}},
      {});
  add_shop_pools(out);
  return out;
}

}  // namespace ampcheck::checks::zoo
