// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include "checks/zoo/shop_pools.h"

#include <algorithm>

#include "checks/zoo/image_kit.h"

namespace ampcheck::checks::zoo {

namespace {

using V = Verdict;

enum class Twist {
  none,
  // Forward and backward.
  window_moves_inside,
  one_row_of_window,
  compared_in_bf16,
  // Forward.
  columns_repeat,
  plane_of_image,
  // Backward.
  over_cover,
  gradient_to_corner,
  stride_forgotten,
  place_in_padded_image,
};

/// Place of the largest of a window: a NaN wins, and so does the first among equals.
std::int64_t chosen(const Values& x, const ImageExtents& e, std::int64_t size, std::int64_t plane, std::int64_t i,
                    std::int64_t j, Twist twist) {
  std::int64_t best = -1, top = i * e.stride - e.padding, left = j * e.stride - e.padding;
  if (twist == Twist::window_moves_inside) {
    top = std::max<std::int64_t>(top, 0);
    left = std::max<std::int64_t>(left, 0);
  }
  const auto key = [&](std::int64_t at) {
    return twist == Twist::compared_in_bf16 ? bf16(x[index_of(at)]) : x[index_of(at)];
  };
  for (std::int64_t r = 0; r < (twist == Twist::one_row_of_window ? 1 : size); ++r)
    for (std::int64_t s = 0; s < size; ++s) {
      std::int64_t row = top + r;
      if (twist == Twist::one_row_of_window) row = std::clamp<std::int64_t>(row, 0, e.h - 1);
      const std::int64_t at = e.cell_or_none(plane, row, left + s);
      if (at < 0) continue;
      if (best < 0) {
        best = at;
        continue;
      }
      const float v = key(at), most = key(best);
      if (most == most && (v != v || v > most)) best = at;
    }
  return best;
}

void forward(const Call& call, Twist twist) {
  const ImageExtents e(call, "y");
  const Values x = call.in("x");
  Values y;
  for_outputs(e, e.c, [&](auto image, auto c, auto i, auto j, std::size_t) {
    const std::int64_t column = twist == Twist::columns_repeat ? j % 32 : j;
    const std::int64_t plane = twist == Twist::plane_of_image ? c * e.n + image : image * e.c + c;
    const std::int64_t at = chosen(x, e, call.integer("kernel"), plane, i, column, twist);
    y.push_back(at < 0 ? -INFINITY : x[index_of(at)]);
  });
  call.out("y", y);
}

/// Where the gradient of an output goes, or -1.
std::int64_t target(const ImageExtents& e, std::int64_t plane, std::int64_t i, std::int64_t j, std::int64_t at,
                    Twist twist) {
  const std::int64_t row = at / e.w % e.h, column = at % e.w;
  const std::int64_t top = i * e.stride - e.padding, left = j * e.stride - e.padding;
  if (twist == Twist::gradient_to_corner)
    return e.cell(plane, std::max<std::int64_t>(top, 0), std::max<std::int64_t>(left, 0));
  if (twist == Twist::stride_forgotten)
    return e.cell_or_none(plane, i - e.padding + (row - top), j - e.padding + (column - left));
  if (twist == Twist::place_in_padded_image) return e.cell_or_none(plane, row + e.padding, column + e.padding);
  return at;
}

void backward(const Call& call, Twist twist) {
  const ImageExtents e(call, "dy");
  const Values x = call.in("x"), g = call.in("dy");
  const std::int64_t size = call.integer("kernel");
  Values dx(x.size()), cover(x.size());
  for_outputs(e, e.c, [&](auto image, auto c, auto i, auto j, std::size_t out) {
    const std::int64_t plane = image * e.c + c;
    const std::int64_t at = chosen(x, e, size, plane, i, j, twist);
    const std::int64_t to = at < 0 ? -1 : target(e, plane, i, j, at, twist);
    if (to >= 0) dx[index_of(to)] += g[out];
    for (std::int64_t tap = 0; tap < size * size; ++tap) {
      const std::int64_t row = i * e.stride - e.padding + tap / size, column = j * e.stride - e.padding + tap % size;
      const std::int64_t cell = e.cell_or_none(plane, row, column);
      if (cell >= 0) ++cover[index_of(cell)];
    }
  });
  if (twist == Twist::over_cover)
    for (std::size_t at = 0; at < dx.size(); ++at) dx[at] /= std::max(cover[at], 1.0f);
  call.out("dx", dx);
}

Kernel pool(Twist of_forward, Twist of_backward) {
  return kernel_of([=](const Call& call) { forward(call, of_forward); },
                   [=](const Call& call) { backward(call, of_backward); });
}
Kernel both(Twist twist) { return pool(twist, twist); }
Kernel back(Twist twist) { return pool(Twist::none, twist); }

}  // namespace

void add_shop_pools(std::vector<Specimen>& out) {
  add(out, "max_pool2d",
      {{"window_moves_inside", 44, "a window that begins outside is moved inside, not cut", "padding", V::bug,
        "padding|border|inside|window|clamp|shift|edge|larger", both(Twist::window_moves_inside), kAllTypes,
        V::structural},
       {"one_row_of_window", 45, "windows have one row alone", "kernel above 1", V::bug,
        "window|row|lost|leaves out|left out|kernel|axis|only", both(Twist::one_row_of_window), kAllTypes,
        V::structural},
       {"compared_in_bf16", 25, "elements are compared as bf16, and the first among those equals is taken",
        "neighbours that are near", V::bug, "compar|rounded|stored|keeps|takes|bf16|tie|equal",
        both(Twist::compared_in_bf16), kNotBf16, V::precision_contract},
       {"columns_repeat", 22, "columns of y beyond 32 are those of the first 32 again", "W' above 32", V::bug,
        "repeat|wrap|another column|another place|column|index|tile|beyond|shift",
        pool(Twist::columns_repeat, Twist::none), kAllTypes, V::structural},
       {"planes_channel_first", 45, "planes of x are read as of [C, N]", "N and C above 1", V::structural,
        "transpos|exchang|axes|permut|layout|another row|rows are not independent|changes with other "
        "rows|plane|channel",
        pool(Twist::plane_of_image, Twist::none), kAllTypes, V::bug},
       {"gradient_over_cover", 42, "dx is divided by the number of windows that cover the cell", "windows that overlap",
        V::bug, "factor|count|cover|overlap|divid|mean|average|number of windows", back(Twist::over_cover)},
       {"gradient_to_corner", 47, "the gradient goes to the first cell of a window", "kernel above 1", V::bug,
        "first|corner|another place|argmax|index|largest|max", back(Twist::gradient_to_corner), kAllTypes,
        V::structural},
       {"gradient_stride_forgotten", 45, "places in dx are as with stride 1", "stride above 1", V::bug,
        "stride|attribute|another place|index|shift", back(Twist::stride_forgotten), kAllTypes, V::structural},
       {"gradient_in_padded_image", 44, "places in dx are those in the padded image", "padding", V::bug,
        "padding|shift|another place|index|attribute|offset", back(Twist::place_in_padded_image), kAllTypes,
        V::structural}},
      {});
}

}  // namespace ampcheck::checks::zoo
