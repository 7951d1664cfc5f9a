// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
// max_pool2d (the first among equals has the gradient) and conv2d, as direct loops over windows.
#include <algorithm>

#include "checks/zoo/image_kit.h"

namespace ampcheck::checks::zoo {

namespace {

enum class Twist {
  none,
  gather,
  backwards_scan,
  ties_share_all,
  ties_to_last,
  padding_is_zero,
  overlap_overwrites,
  drops_nan,
  exchanged_axes,
  stride_is_kernel,
  odd_window_lost,
  flipped,
  halo_counts,
  stride_ignored,
  bias_of_first_image,
  last_output_lost,
  channel_tail,
  no_bias_no_dweight,
  window_one_short,
  turned_weight,
  average,
  replicated,
};

struct Style {
  Twist twist = Twist::none;
  Sum sum = in_order;      ///< conv2d: y and dx
  Sum dweight = in_order;  ///< and its parameters
  Slip slip = {};
};

// ---- max_pool2d ----

/// Whether tap k of a window, in column `column` of the image, is left out.
bool not_read(Twist twist, const ImageExtents& e, std::int64_t kernel, std::int64_t k, std::int64_t column) {
  return (twist == Twist::window_one_short && kernel > 1 && k % kernel == kernel - 1) ||
         (twist == Twist::odd_window_lost && column >= e.w / 2 * 2);
}

/// Index in x of the winner of a window, -1 if none; `value`: its value.
std::int64_t winner(const Values& x, const ImageExtents& e, std::int64_t kernel, std::int64_t plane, std::int64_t i,
                    std::int64_t j, const Style& style, float& value) {
  std::int64_t best = -1;
  value = -INFINITY;
  const std::int64_t stride = style.twist == Twist::stride_is_kernel ? kernel : e.stride;
  for (std::int64_t tap = 0; tap < kernel * kernel; ++tap) {
    const std::int64_t k = style.twist == Twist::backwards_scan ? kernel * kernel - 1 - tap : tap;
    const std::int64_t a = i * stride - e.padding + k / kernel, b = j * stride - e.padding + k % kernel;
    if (not_read(style.twist, e, kernel, k, b)) continue;
    if (a < 0 || a >= e.h || b < 0 || b >= e.w) {
      if (style.twist == Twist::padding_is_zero && 0 > value) {
        value = 0;
        best = -1;
      }
      continue;
    }
    const std::int64_t at = (plane * e.h + a) * e.w + b;
    const float v = x[index_of(at)];
    const bool last_of_equals = style.twist == Twist::ties_to_last || style.twist == Twist::backwards_scan;
    const bool wins =
        v > value || (last_of_equals && v == value) || (best < 0 && v == value) ||
        (v != v && style.twist != Twist::drops_nan && (value == value || style.twist == Twist::backwards_scan));
    if (wins && !(value != value && v == v)) {
      best = at;
      value = v;
    }
  }
  return best;
}

/// Over the cells of a window that are inside.
float average(const Values& x, const ImageExtents& e, std::int64_t kernel, std::int64_t plane, std::int64_t i,
              std::int64_t j) {
  float s = 0, count = 0;
  for (std::int64_t k = 0; k < kernel * kernel; ++k) {
    const std::int64_t a = i * e.stride - e.padding + k / kernel, b = j * e.stride - e.padding + k % kernel;
    if (a < 0 || a >= e.h || b < 0 || b >= e.w) continue;
    s += x[index_of((plane * e.h + a) * e.w + b)];
    ++count;
  }
  return s / count;
}

Kernel pool(Style style) {
  const auto forward = [style](const Call& call) {
    const ImageExtents e(call, "y");
    const Values x = call.in("x");
    Values y(index_of(e.n * e.c * e.oh * e.ow));
    std::size_t at = 0;
    for (std::int64_t plane = 0; plane < e.n * e.c; ++plane)
      for (std::int64_t i = 0; i < e.oh; ++i)
        for (std::int64_t j = 0; j < e.ow; ++j) {
          const bool turned = style.twist == Twist::exchanged_axes && e.oh == e.ow;
          float& v = y[at++];
          winner(x, e, call.integer("kernel"), plane, turned ? j : i, turned ? i : j, style, v);
          if (style.twist == Twist::average) v = average(x, e, call.integer("kernel"), plane, i, j);
        }
    call.out("y", y);
  };
  const auto backward = [style](const Call& call) {
    const ImageExtents e(call, "dy");
    const Values x = call.in("x"), g = call.in("dy");
    const std::int64_t kernel = call.integer("kernel");
    Values dx(x.size());
    std::size_t at = 0;
    for (std::int64_t plane = 0; plane < e.n * e.c; ++plane)
      for (std::int64_t i = 0; i < e.oh; ++i)
        for (std::int64_t j = 0; j < e.ow; ++j, ++at) {
          float value = 0;
          const std::int64_t best = winner(x, e, kernel, plane, i, j, style, value);
          if (best < 0) continue;
          if (style.twist == Twist::overlap_overwrites)
            dx[index_of(best)] = g[at];
          else
            dx[index_of(best)] += g[at];
          if (style.twist != Twist::ties_share_all) continue;
          for (std::int64_t k = 0; k < kernel * kernel; ++k) {
            const std::int64_t a = i * e.stride - e.padding + k / kernel, b = j * e.stride - e.padding + k % kernel;
            if (a < 0 || a >= e.h || b < 0 || b >= e.w) continue;
            const std::int64_t other = (plane * e.h + a) * e.w + b;
            if (other != best && x[index_of(other)] == value) dx[index_of(other)] += g[at];
          }
        }
    call.out("dx", dx);
  };
  return kernel_of(forward, backward, style.slip);
}

// ---- conv2d ----

/// Calls visit(weight index, x index or -1 outside, channel, nearest x index) for each tap of output (image, o, i, j).
template <class F>
void taps(const ImageExtents& e, const Shape& weight, std::int64_t image, std::int64_t o, std::int64_t i,
          std::int64_t j, F visit) {
  for (std::int64_t c = 0; c < weight[1]; ++c)
    for (std::int64_t r = 0; r < weight[2]; ++r)
      for (std::int64_t s = 0; s < weight[3]; ++s) {
        const std::int64_t a = i * e.stride - e.padding + r, b = j * e.stride - e.padding + s;
        const bool any = e.h > 0 && e.w > 0;
        const std::int64_t nearest = any ? e.cell(image * e.c + c, std::clamp<std::int64_t>(a, 0, e.h - 1),
                                                  std::clamp<std::int64_t>(b, 0, e.w - 1))
                                         : 0;
        visit(((o * weight[1] + c) * weight[2] + r) * weight[3] + s, e.cell_or_none(image * e.c + c, a, b), c, nearest);
      }
}

void conv_forward(const Style& style, const Call& call) {
  const ImageExtents e(call, "y");
  const Values x = call.in("x"), w = call.in("weight"), bias = call.has("bias") ? call.in("bias") : Values();
  const Shape& shape = call.shape("weight");
  const std::int64_t tap_count = shape[2] * shape[3];
  const float border = style.twist == Twist::halo_counts ? 1.0f : 0.0f;
  Values y;
  Terms terms;
  for (std::int64_t image = 0; image < e.n; ++image)
    for (std::int64_t o = 0; o < shape[0]; ++o)
      for (std::int64_t i = 0; i < e.oh; ++i)
        for (std::int64_t j = 0; j < e.ow; ++j) {
          terms.clear();
          taps(e, shape, image, o, i, j, [&](std::int64_t k, std::int64_t at, std::int64_t c, std::int64_t nearest) {
            if (style.twist == Twist::replicated) at = nearest;
            if (style.twist == Twist::channel_tail && shape[1] > 4 && c >= shape[1] / 4 * 4) return;
            if (style.twist == Twist::turned_weight) k = k / tap_count * tap_count + tap_count - 1 - k % tap_count;
            terms.push_back({w[index_of(k)], at < 0 ? border : x[index_of(at)]});
          });
          float v = style.sum(terms);
          if (style.twist == Twist::last_output_lost && e.stride > 1 && i + 1 == e.oh) v = 0;
          y.push_back(bias.empty() ? v : v + bias[index_of(o)]);
        }
  call.out("y", y);
}

void conv_backward(const Style& style, const Call& call) {
  const ImageExtents e(call, "dy");
  const Values x = call.in("x"), w = call.in("weight"), g = call.in("dy");
  const Shape& shape = call.shape("weight");
  std::vector<Terms> dx(x.size()), dw(w.size()), db(index_of(shape[0]));
  const std::int64_t tap_count = shape[2] * shape[3];
  std::size_t at_y = 0;
  for (std::int64_t image = 0; image < e.n; ++image)
    for (std::int64_t o = 0; o < shape[0]; ++o)
      for (std::int64_t i = 0; i < e.oh; ++i)
        for (std::int64_t j = 0; j < e.ow; ++j, ++at_y) {
          const float v = g[at_y];
          if (style.twist != Twist::bias_of_first_image || image == 0) db[index_of(o)].push_back({v});
          taps(e, shape, image, o, i, j, [&](std::int64_t k, std::int64_t at, std::int64_t, std::int64_t) {
            const std::int64_t turned = k / tap_count * tap_count + tap_count - 1 - k % tap_count;
            if (at >= 0 && style.twist == Twist::overlap_overwrites) dx[index_of(at)].clear();
            if (at >= 0) dx[index_of(at)].push_back({v, w[index_of(style.twist == Twist::flipped ? turned : k)]});
            if (style.twist == Twist::stride_ignored && e.stride > 1 && at > 0) --at;
            dw[index_of(k)].push_back({v, at < 0 ? 0.0f : x[index_of(at)]});
          });
        }
  const auto added = [](Sum sum, const std::vector<Terms>& lists) {
    Values out;
    for (const Terms& terms : lists) out.push_back(sum(terms));
    return out;
  };
  call.out("dx", added(style.sum, dx));
  if (style.twist == Twist::no_bias_no_dweight && !call.has("bias")) return;
  call.out("dweight", added(style.dweight, dw));
  call.out("dbias", added(style.dweight, db));
}

Kernel conv(Style style) {
  return kernel_of([style](const Call& call) { conv_forward(style, call); },
                   [style](const Call& call) { conv_backward(style, call); }, style.slip);
}

using V = Verdict;

}  // namespace

std::vector<Specimen> image_specimens() {
  std::vector<Specimen> out;
  add(out, "max_pool2d",
      {{"ties_share_all", 36, "every one of equal maxima has the whole gradient", "ties", V::non_smooth,
        "tie|subgradient|twice", pool({Twist::ties_share_all}), kAllTypes, V::bug},
       {"padding_is_zero", 44, "cells outside count as 0", "padding and negative x", V::bug, "padding|border|zero",
        pool({Twist::padding_is_zero}), kAllTypes, V::structural},
       {"overlap_overwrites", 16, "gradients of overlapping windows overwrite each other", "stride below kernel",
        V::bug, "overwrit|lost|only the last", pool({Twist::overlap_overwrites}), kAllTypes, V::structural},
       {"drops_nan", 29, "a NaN in a window is passed over", "NaN", V::bug, "finite where|hides",
        pool({Twist::drops_nan})},
       {"exchanged_axes", 45, "rows and columns are exchanged in square outputs", "H' = W'", V::bug, "transpos|axis",
        pool({Twist::exchanged_axes}), kAllTypes, V::structural},
       {"stride_is_kernel", 45, "the stride is taken for the kernel size", "stride other than kernel", V::bug,
        "attribute|stride", pool({Twist::stride_is_kernel}), kAllTypes, V::structural},
       {"odd_column_lost", 13, "the last column of an odd width is never read", "odd W", V::bug, "tail|last column",
        pool({Twist::odd_window_lost}), kAllTypes, V::structural},
       {"dense_x", 19, "x is read as if row-major", "strided x", V::structural, "strided",
        pool({.slip = {Io::read_dense, "x"}})},
       {"window_one_short", 14, "the last column of each window is not read", "kernel above 1", V::bug,
        "tail|last|window|attribute|kernel|off by one", pool({Twist::window_one_short}), kAllTypes, V::structural},
       {"average", 30, "the average of each window", "kernel above 1", V::bug, "mean|average|another|maximum",
        pool({Twist::average})},
       {"unwritten_row", 15, "the last row of dx is not written", "any", V::structural, "output buffer held|unwritten",
        pool({.slip = {Io::drop_last_row, "dx"}})}},
      {{"plain", "as written", pool({})},
       {"backwards_scan", "windows from the end, the last of equals on the way", pool({Twist::backwards_scan})},
       {"ties_to_last", "the last of equal maxima has the gradient, another subgradient",
        pool({Twist::ties_to_last})}});
  add(out, "conv2d",
      {{"flipped_weight", 7, "dx with the weight turned by 180 degrees", "any", V::bug, "transpos|flip|revers",
        conv({Twist::flipped})},
       {"turned_weight", 7, "y with the weight turned by 180 degrees, a convolution", "any", V::bug,
        "transpos|flip|revers|turn|another", conv({Twist::turned_weight})},
       {"halo_counts", 44, "cells outside count as 1", "padding", V::bug, "padding|border|halo",
        conv({Twist::halo_counts}), kAllTypes, V::structural},
       {"replicated", 44, "cells outside are as their nearest neighbour inside", "padding", V::bug,
        "padding|border|halo|inside", conv({Twist::replicated}), kAllTypes, V::structural},
       {"stride_in_dweight", 45, "dweight meets x a cell too early if strided", "stride above 1", V::bug,
        "attribute|stride|shift", conv({Twist::stride_ignored}), kAllTypes, V::structural},
       {"dbias_of_first_image", 8, "dbias sums over the first image only", "more than one image", V::bug,
        "axis|lost|image", conv({Twist::bias_of_first_image}), kAllTypes, V::structural},
       {"last_row_lost", 13, "the last output row is 0 if strided", "stride above 1", V::bug, "last row|tail|zero",
        conv({Twist::last_output_lost}), kAllTypes, V::structural},
       {"channel_tail", 13, "channels after the last full vector of 4 are left out", "more than 4 channels", V::bug,
        "tail|last full vector", conv({Twist::channel_tail}), kAllTypes, V::structural},
       {"dweight_in_bf16", 23, "dweight and dbias accumulated in bf16", "any", V::precision_contract,
        "accumulates in bf16", conv({.dweight = in_bf16})},
       {"dx_overwrites", 16, "overlapping windows overwrite dx", "stride below the window", V::bug,
        "overwrit|lost|only the last", conv({Twist::overlap_overwrites})},
       {"no_bias_no_dweight", 41, "without bias, dweight is not written", "bias absent", V::structural,
        "output buffer held|unwritten", conv({Twist::no_bias_no_dweight}), kAllTypes, V::bug},
       {"tf32_operands", 29, "fp32 operands are rounded to tf32", "full mantissas", V::precision_contract,
        "tf32|operands", conv({.sum = of_tf32, .dweight = of_tf32}), kFp32}},
      {{"plain", "sums in order", conv({})},
       {"fma", "fma chains", conv({.sum = fused, .dweight = fused})},
       {"pairwise", "pairwise sums", conv({.sum = pairwise, .dweight = pairwise})},
       {"reversed", "backwards", conv({.sum = backwards, .dweight = backwards})}});
  return out;
}

}  // namespace ampcheck::checks::zoo
