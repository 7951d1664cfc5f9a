// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
// conv2d and max_pool2d of the unseen part of the zoo: written after public fixes of kernels, without a look at the
// rules.
#include <algorithm>

#include "checks/zoo/image_kit.h"

namespace ampcheck::checks::zoo {

namespace {

using V = Verdict;

// ---- conv2d ----

enum class Conv {
  plain,
  // Correct.
  rows_of_window_apart,
  // Wrong.
  edge_wraps,
  padding_ignored_in_dx,
  dweight_of_last_image,
  first_bias_for_all,
  racing_dweight,
};

/// A tap of an output: its place in weight, and where it looks. `at` is -1 where it counts as 0.
struct Tap {
  std::int64_t weight, at, row;
};

std::vector<Tap> taps(const ImageExtents& e, const Shape& weight, std::int64_t image, std::int64_t o, std::int64_t i,
                      std::int64_t j, std::int64_t padding, bool wraps) {
  std::vector<Tap> out;
  for (std::int64_t c = 0; c < weight[1]; ++c)
    for (std::int64_t r = 0; r < weight[2]; ++r)
      for (std::int64_t s = 0; s < weight[3]; ++s) {
        const std::int64_t row = i * e.stride - padding + r, column = j * e.stride - padding + s;
        // Without a test of columns, a cell beyond the edge is one of the next row or of the row before.
        bool inside = e.inside(row, column);
        const std::int64_t at = e.cell(image * e.c + c, row, column);
        if (wraps && row >= 0 && row < e.h) inside = at >= 0 && at < e.n * e.c * e.h * e.w;
        out.push_back({((o * weight[1] + c) * weight[2] + r) * weight[3] + s, inside ? at : -1, c * weight[2] + r});
      }
  return out;
}

void conv_forward(const Call& call, Conv twist) {
  const ImageExtents e(call, "y");
  const Values x = call.in("x"), w = call.in("weight"), bias = call.has("bias") ? call.in("bias") : Values();
  const Shape& shape = call.shape("weight");
  Values y;
  for_outputs(e, shape[0], [&](auto image, auto o, auto i, auto j, std::size_t) {
    float v = 0, part = 0;
    std::int64_t row = 0;
    for (const Tap& tap : taps(e, shape, image, o, i, j, e.padding, twist == Conv::edge_wraps)) {
      if (twist == Conv::rows_of_window_apart && tap.row != row) {
        v += part;
        part = 0;
        row = tap.row;
      }
      part += w[index_of(tap.weight)] * (tap.at < 0 ? 0.0f : x[index_of(tap.at)]);
    }
    v += part;
    const std::int64_t own = twist == Conv::first_bias_for_all ? 0 : o;
    y.push_back(bias.empty() ? v : v + bias[index_of(own)]);
  });
  call.out("y", y);
}

void conv_backward(const Call& call, Conv twist) {
  const ImageExtents e(call, "dy");
  const Values x = call.in("x"), w = call.in("weight"), g = call.in("dy");
  const Shape& shape = call.shape("weight");
  Values dx(x.size()), dbias(index_of(shape[0]));
  std::vector<Terms> dweight(w.size());
  for_outputs(e, shape[0], [&](auto image, auto o, auto i, auto j, std::size_t out) {
    dbias[index_of(o)] += g[out];
    for (const Tap& tap : taps(e, shape, image, o, i, j, e.padding, false)) {
      if (twist == Conv::dweight_of_last_image && image + 1 < e.n) continue;
      dweight[index_of(tap.weight)].push_back({g[out], tap.at < 0 ? 0.0f : x[index_of(tap.at)]});
    }
    const std::int64_t padding = twist == Conv::padding_ignored_in_dx ? 0 : e.padding;
    for (const Tap& tap : taps(e, shape, image, o, i, j, padding, false))
      if (tap.at >= 0) dx[index_of(tap.at)] += g[out] * w[index_of(tap.weight)];
  });
  const Sum sum = twist == Conv::racing_dweight ? racing : in_order;
  Values sums;
  for (const Terms& terms : dweight) sums.push_back(sum(terms));
  call.out("dx", dx);
  call.out("dweight", sums);
  call.out("dbias", dbias);
}

Kernel conv(Conv twist) {
  return kernel_of([twist](const Call& call) { conv_forward(call, twist); },
                   [twist](const Call& call) { conv_backward(call, twist); });
}

void add_conv(std::vector<Specimen>& out) {
  add(out, "conv2d",
      {{"edge_wraps", 44, "columns beyond the edge are cells of the next row or of the one before", "padding", V::bug,
        "padding|border|halo|outside|edge|neighbour|wrap|another|rows are not independent|inside|column",
        conv(Conv::edge_wraps), kAllTypes, V::structural},
       {"padding_ignored_in_dx", 45, "dx as if there were no padding", "padding", V::bug,
        "padding|attribute|shift|border|index", conv(Conv::padding_ignored_in_dx), kAllTypes, V::structural},
       {"dweight_of_last_image", 16, "images overwrite each other's dweight", "more than one image", V::bug,
        "overwrit|only the last|lost|image|accumul|leaves out|left out|axis|block|zero",
        conv(Conv::dweight_of_last_image), kAllTypes, V::structural},
       {"first_bias_for_all", 8, "all channels have the bias of the first", "more than one output channel", V::bug,
        "bias|broadcast|another|first", conv(Conv::first_bias_for_all), kAllTypes, V::structural},
       {"dweight_race", 38, "a missing barrier: every third dweight loses a term", "repeats", V::structural,
        "repeats differ", conv(Conv::racing_dweight), kAllTypes, V::bug}},
      {{"rows_of_window_apart", "each row of a window apart, then their sums", conv(Conv::rows_of_window_apart)}});
}

// ---- max_pool2d ----

enum class Pool {
  plain,
  // Correct.
  columns_then_windows,
  // Wrong.
  gradient_of_average,
  place_without_padding,
  gradient_at_corner,
};

struct Found {
  float value = -INFINITY;
  std::int64_t row = -1, column = -1;
};

bool stands_before(const Found& a, const Found& b) { return a.row < b.row || (a.row == b.row && a.column < b.column); }
/// Whether b, which is looked at behind a, takes its place: the first NaN of the window wins, and of equals the one
/// that was looked at first.
bool wins(const Found& a, const Found& b) {
  if (b.row < 0 || a.row < 0) return b.row >= 0;
  if (a.value != a.value) return b.value != b.value && stands_before(b, a);
  return b.value > a.value || b.value != b.value;
}

Found largest_of_window(const Values& x, const ImageExtents& e, std::int64_t kernel, std::int64_t plane, std::int64_t i,
                        std::int64_t j, Pool twist) {
  Found best;
  const auto cell = [&](std::int64_t r, std::int64_t s) {
    const std::int64_t row = i * e.stride - e.padding + r, column = j * e.stride - e.padding + s;
    return e.inside(row, column) ? Found{x[index_of(e.cell(plane, row, column))], row, column} : Found{};
  };
  if (twist == Pool::columns_then_windows) {
    for (std::int64_t s = 0; s < kernel; ++s) {
      Found of_column;
      for (std::int64_t r = 0; r < kernel; ++r)
        if (wins(of_column, cell(r, s))) of_column = cell(r, s);
      if (wins(best, of_column)) best = of_column;
    }
    return best;
  }
  for (std::int64_t r = 0; r < kernel; ++r)
    for (std::int64_t s = 0; s < kernel; ++s)
      if (wins(best, cell(r, s))) best = cell(r, s);
  return best;
}

Kernel pool(Pool twist) {
  const auto forward = [twist](const Call& call) {
    const ImageExtents e(call, "y");
    const Values x = call.in("x");
    Values y;
    for_outputs(e, e.c, [&](auto image, auto c, auto i, auto j, std::size_t) {
      y.push_back(largest_of_window(x, e, call.integer("kernel"), image * e.c + c, i, j, twist).value);
    });
    call.out("y", y);
  };
  const auto backward = [twist](const Call& call) {
    const ImageExtents e(call, "dy");
    const Values x = call.in("x"), g = call.in("dy");
    const std::int64_t kernel = call.integer("kernel");
    Values dx(x.size());
    for_outputs(e, e.c, [&](auto image, auto c, auto i, auto j, std::size_t out) {
      Found best = largest_of_window(x, e, kernel, image * e.c + c, i, j, twist);
      if (twist == Pool::gradient_at_corner) {  // the place was never saved
        best.row = std::max<std::int64_t>(i * e.stride - e.padding, 0);
        best.column = std::max<std::int64_t>(j * e.stride - e.padding, 0);
      }
      if (twist ==
          Pool::place_without_padding) {  // the place within the window, from where that begins without padding
        best.row += e.padding;
        best.column += e.padding;
      }
      if (best.row < 0 || !e.inside(best.row, best.column)) return;
      const float share = twist == Pool::gradient_of_average ? static_cast<float>(kernel * kernel) : 1.0f;
      dx[index_of(e.cell(image * e.c + c, best.row, best.column))] += g[out] / share;
    });
    call.out("dx", dx);
  };
  return kernel_of(forward, backward);
}

void add_pool(std::vector<Specimen>& out) {
  add(out, "max_pool2d",
      {{"gradient_divided", 42, "dx has dy / kernel^2 at the largest, as of an average", "kernel above 1", V::bug,
        "factor|count|mean|average|kernel|attribute|divid", pool(Pool::gradient_of_average), kAllTypes, V::non_smooth},
       {"place_without_padding", 45, "the gradient goes to a place too far down and right by the padding", "padding",
        V::bug, "padding|shift|another|border|index|attribute|place|neighbour|off by one",
        pool(Pool::place_without_padding), kAllTypes, V::structural},
       {"gradient_at_corner", 46, "the gradient goes to the first cell of the window", "kernel above 1", V::bug,
        "first|another|corner|place|index|shift|subgradient|permut|border", pool(Pool::gradient_at_corner), kAllTypes,
        V::non_smooth}},
      {{"columns_then_windows", "the largest of each column of a window, then of these",
        pool(Pool::columns_then_windows)}});
}

}  // namespace

std::vector<Specimen> unseen_image_specimens() {
  std::vector<Specimen> out;
  add_conv(out);
  add_pool(out);
  return out;
}

}  // namespace ampcheck::checks::zoo
