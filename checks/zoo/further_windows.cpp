// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
// conv2d and max_pool2d: padding, strides, layouts and windows that are not the ones that are due.
#include "checks/zoo/image_kit.h"

namespace ampcheck::checks::zoo {

namespace {

using V = Verdict;

// ---- conv2d ----

enum class Conv {
  none,
  padding_wraps,
  stride_of_rows_alone,
  weight_by_input_first,
  padding_on_one_side,
  bias_of_image,
  dx_without_padding,
  dweight_of_last_image,
  dx_of_one_channel,
  dilated,
};

/// Calls visit(place in weight, place in x or -1) for each tap of an output.
template <class F>
void taps(const ImageExtents& e, const Shape& weight, Conv twist, std::int64_t image, std::int64_t o, std::int64_t i,
          std::int64_t j, F visit) {
  const std::int64_t across = twist == Conv::stride_of_rows_alone ? 1 : e.stride;
  const std::int64_t padding = twist == Conv::dx_without_padding ? 0 : e.padding;
  const std::int64_t left = twist == Conv::padding_on_one_side ? 0 : padding;
  const std::int64_t apart = twist == Conv::dilated ? 2 : 1;
  for (std::int64_t c = 0; c < weight[1]; ++c)
    for (std::int64_t r = 0; r < weight[2]; ++r)
      for (std::int64_t s = 0; s < weight[3]; ++s) {
        const std::int64_t filter = twist == Conv::weight_by_input_first ? c * weight[0] + o : o * weight[1] + c;
        std::int64_t row = i * e.stride - padding + r * apart, column = j * across - left + s * apart;
        if (twist == Conv::padding_wraps) {
          row = (row + e.h * e.padding) % e.h;
          column = (column + e.w * e.padding) % e.w;
        }
        visit((filter * weight[2] + r) * weight[3] + s, e.cell_or_none(image * e.c + c, row, column));
      }
}

void conv_forward(const Call& call, Conv twist) {
  const ImageExtents e(call, "y");
  const Values x = call.in("x"), w = call.in("weight"), bias = call.has("bias") ? call.in("bias") : Values();
  const Shape& shape = call.shape("weight");
  Values y;
  for_outputs(e, shape[0], [&](auto image, auto o, auto i, auto j, std::size_t) {
    float v = 0;
    taps(e, shape, twist, image, o, i, j,
         [&](std::int64_t k, std::int64_t at) { v += w[index_of(k)] * (at < 0 ? 0.0f : x[index_of(at)]); });
    y.push_back(bias.empty() ? v : v + bias[index_of(twist == Conv::bias_of_image ? image % shape[0] : o)]);
  });
  call.out("y", y);
}

void conv_backward(const Call& call, Conv twist) {
  const ImageExtents e(call, "dy");
  const Values x = call.in("x"), w = call.in("weight"), g = call.in("dy");
  const Shape& shape = call.shape("weight");
  Values dx(x.size()), dweight(w.size()), dbias(index_of(shape[0]));
  for_outputs(e, shape[0], [&](auto image, auto o, auto i, auto j, std::size_t out) {
    dbias[index_of(o)] += g[out];
    taps(e, shape, twist, image, o, i, j, [&](std::int64_t k, std::int64_t at) {
      if (at >= 0 && (twist != Conv::dx_of_one_channel || o == 0)) dx[index_of(at)] += g[out] * w[index_of(k)];
    });
    taps(e, shape, Conv::none, image, o, i, j, [&](std::int64_t k, std::int64_t at) {
      if (twist == Conv::dweight_of_last_image && image + 1 < e.n) return;
      dweight[index_of(k)] += g[out] * (at < 0 ? 0.0f : x[index_of(at)]);
    });
  });
  call.out("dx", dx);
  call.out("dweight", dweight);
  call.out("dbias", dbias);
}

Kernel conv(Conv of_forward, Conv of_backward = Conv::none) {
  return kernel_of([=](const Call& call) { conv_forward(call, of_forward); },
                   [=](const Call& call) { conv_backward(call, of_backward); });
}

// ---- max_pool2d ----

enum class Pool {
  none,
  window_one_more,
  by_size,
  rows_not_padded,
  least,
  gradient_shared,
  gradient_by_output_width,
  gradient_halved,
};

/// Place of the largest of a window: a NaN wins, and so does the first among equals.
std::int64_t chosen(const Values& x, const ImageExtents& e, std::int64_t window, std::int64_t plane, std::int64_t i,
                    std::int64_t j, Pool twist) {
  std::int64_t best = -1;
  const auto key = [&](float v) { return twist == Pool::by_size ? std::fabs(v) : twist == Pool::least ? -v : v; };
  const std::int64_t above = twist == Pool::rows_not_padded ? 0 : e.padding;
  for (std::int64_t r = 0; r < window; ++r)
    for (std::int64_t s = 0; s < window; ++s) {
      const std::int64_t at = e.cell_or_none(plane, i * e.stride - above + r, j * e.stride - e.padding + s);
      if (at < 0) continue;
      const float v = x[index_of(at)], most = best < 0 ? v : x[index_of(best)];
      if (best < 0 || (most == most && (v != v || key(v) > key(most)))) best = at;
    }
  return best;
}

Kernel pool(Pool of_forward, Pool of_backward) {
  const auto window = [](const Call& call, Pool twist) {
    return call.integer("kernel") + (twist == Pool::window_one_more ? 1 : 0);
  };
  const auto forward = [=](const Call& call) {
    const ImageExtents e(call, "y");
    const Values x = call.in("x");
    Values y;
    for_outputs(e, e.c, [&](auto image, auto c, auto i, auto j, std::size_t) {
      const std::int64_t at = chosen(x, e, window(call, of_forward), image * e.c + c, i, j, of_forward);
      y.push_back(at < 0 ? -INFINITY : x[index_of(at)]);
    });
    call.out("y", y);
  };
  const auto backward = [=](const Call& call) {
    const ImageExtents e(call, "dy");
    const Values x = call.in("x"), g = call.in("dy");
    const std::int64_t size = window(call, of_backward);
    Values dx(x.size());
    for_outputs(e, e.c, [&](auto image, auto c, auto i, auto j, std::size_t out) {
      const std::int64_t plane = image * e.c + c;
      std::int64_t at = chosen(x, e, size, plane, i, j, of_backward);
      if (at < 0) return;
      if (of_backward == Pool::gradient_shared) {
        for (std::int64_t r = 0; r < size; ++r)
          for (std::int64_t s = 0; s < size; ++s) {
            const std::int64_t cell = e.cell_or_none(plane, i * e.stride - e.padding + r, j * e.stride - e.padding + s);
            if (cell >= 0) dx[index_of(cell)] += g[out] / static_cast<float>(size * size);
          }
        return;
      }
      if (of_backward == Pool::gradient_by_output_width) {
        const std::int64_t in_plane = at % (e.h * e.w);
        at = e.cell(plane, 0, 0) + (in_plane / e.w * e.ow + in_plane % e.w) % (e.h * e.w);
      }
      dx[index_of(at)] += of_backward == Pool::gradient_halved ? 0.5f * g[out] : g[out];
    });
    call.out("dx", dx);
  };
  return kernel_of(forward, backward);
}

void add_pool(std::vector<Specimen>& out) {
  add(out, "max_pool2d",
      {{"window_one_more", 14, "windows are one larger than kernel in forward", "any", V::bug,
        "window|off by one|kernel|attribute|one more|another", pool(Pool::window_one_more, Pool::none), kAllTypes,
        V::structural},
       {"by_size", 30, "the largest |x| of each window", "negative x", V::bug, "absolute|sign|another|size",
        pool(Pool::by_size, Pool::by_size)},
       {"rows_not_padded", 44, "padding shifts columns, not rows", "padding", V::bug, "padding|shift|attribute|another",
        pool(Pool::rows_not_padded, Pool::rows_not_padded), kAllTypes, V::structural},
       {"least", 30, "the least of each window", "kernel above 1", V::bug, "min|least|smallest|sign|another",
        pool(Pool::least, Pool::least)},
       {"gradient_shared", 30, "dx is shared by the whole window, as of an average", "kernel above 1", V::bug,
        "mean|average|another|every|shared", pool(Pool::none, Pool::gradient_shared)},
       {"gradient_by_output_width", 20, "rows of dx are as long as rows of y", "W other than W'", V::bug,
        "another|stride|index|shift|width", pool(Pool::none, Pool::gradient_by_output_width), kAllTypes, V::structural},
       {"gradient_halved", 1, "dx = g/2 at the largest", "any", V::bug, "factor|half|0.5|twice",
        pool(Pool::none, Pool::gradient_halved)}},
      {});
}

}  // namespace

std::vector<Specimen> further_window_specimens() {
  std::vector<Specimen> out;
  add(out, "conv2d",
      {{"padding_wraps", 44, "cells outside are those of the other side", "padding", V::bug,
        "padding|border|halo|wrap|inside|circular|another", conv(Conv::padding_wraps), kAllTypes, V::structural},
       {"stride_of_rows_alone", 45, "columns are read with stride 1", "stride above 1", V::bug,
        "stride|attribute|another|shift", conv(Conv::stride_of_rows_alone), kAllTypes, V::structural},
       {"weight_by_input_first", 7, "the weight is read as [C, O, R, S]", "O and C above 1", V::bug,
        "transpos|exchang|axes|permut|another|swap|order", conv(Conv::weight_by_input_first), kAllTypes, V::structural},
       {"padding_above_alone", 44, "padding shifts rows, not columns", "padding", V::bug,
        "padding|shift|attribute|another", conv(Conv::padding_on_one_side), kAllTypes, V::structural},
       {"bias_of_image", 8, "the bias is broadcast over images", "any bias", V::bug, "bias|axis|broadcast|another",
        conv(Conv::bias_of_image), kAllTypes, V::structural},
       {"dx_without_padding", 44, "dx is written as without padding", "padding", V::bug,
        "padding|attribute|shift|another", conv(Conv::none, Conv::dx_without_padding), kAllTypes, V::structural},
       {"dweight_overwritten", 16, "images overwrite each other's dweight", "more than one image", V::bug,
        "overwrit|lost|only the last|image|leaves out|left out", conv(Conv::none, Conv::dweight_of_last_image),
        kAllTypes, V::structural},
       {"dx_of_first_filter", 8, "dx takes the first output channel alone", "O above 1", V::bug,
        "lost|leaves out|left out|only|first|channel|axis|missing", conv(Conv::none, Conv::dx_of_one_channel),
        kAllTypes, V::structural},
       {"taps_two_apart", 45, "taps are two cells apart, as with dilation 2", "R or S above 1", V::bug,
        "dilat|apart|stride|attribute|window|another|shift|inside", conv(Conv::dilated), kAllTypes, V::structural}},
      {});
  add_pool(out);
  return out;
}

}  // namespace ampcheck::checks::zoo
