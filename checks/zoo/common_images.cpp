// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
// conv2d and max_pool2d of the zoo that were its unseen part once; rules have followed from them since.
#include <cfloat>

#include "checks/zoo/image_kit.h"

namespace ampcheck::checks::zoo {

namespace {

using V = Verdict;

// ---- conv2d: taps run over the window first, over channels last. ----

enum class Conv { plain, taps_transposed, dbias_mean };

/// Calls visit(place in weight, place in x or -1) for each tap of an output.
template <class F>
void taps(const ImageExtents& e, const Shape& weight, std::int64_t image, std::int64_t o, std::int64_t i,
          std::int64_t j, F visit) {
  for (std::int64_t r = 0; r < weight[2]; ++r)
    for (std::int64_t s = 0; s < weight[3]; ++s)
      for (std::int64_t c = 0; c < weight[1]; ++c)
        visit(((o * weight[1] + c) * weight[2] + r) * weight[3] + s,
              e.cell_or_none(image * e.c + c, i * e.stride - e.padding + r, j * e.stride - e.padding + s));
}

Kernel conv(Conv twist) {
  const auto forward = [twist](const Call& call) {
    const ImageExtents e(call, "y");
    const Values x = call.in("x"), w = call.in("weight"), bias = call.has("bias") ? call.in("bias") : Values();
    const Shape& shape = call.shape("weight");
    const std::int64_t width = shape[3], window = shape[2] * width;
    Values y;
    for_outputs(e, shape[0], [&](auto image, auto o, auto i, auto j, std::size_t) {
      float v = 0;
      taps(e, shape, image, o, i, j, [&](std::int64_t k, std::int64_t at) {
        const std::int64_t tap = k % window;
        if (twist == Conv::taps_transposed && shape[2] == width) k += tap % width * width + tap / width - tap;
        v = std::fma(w[index_of(k)], at < 0 ? 0.0f : x[index_of(at)], v);
      });
      y.push_back(bias.empty() ? v : v + bias[index_of(o)]);
    });
    call.out("y", y);
  };
  const auto backward = [twist](const Call& call) {
    const ImageExtents e(call, "dy");
    const Values x = call.in("x"), w = call.in("weight"), g = call.in("dy");
    const Shape& shape = call.shape("weight");
    Values dx(x.size()), dweight(w.size()), dbias(index_of(shape[0]));
    for_outputs(e, shape[0], [&](auto image, auto o, auto i, auto j, std::size_t out) {
      dbias[index_of(o)] += g[out];
      taps(e, shape, image, o, i, j, [&](std::int64_t k, std::int64_t at) {
        if (at >= 0) dx[index_of(at)] = std::fma(g[out], w[index_of(k)], dx[index_of(at)]);
        dweight[index_of(k)] = std::fma(g[out], at < 0 ? 0.0f : x[index_of(at)], dweight[index_of(k)]);
      });
    });
    if (twist == Conv::dbias_mean)
      for (float& v : dbias) v /= static_cast<float>(e.oh * e.ow);
    call.out("dx", dx);
    call.out("dweight", dweight);
    call.out("dbias", dbias);
  };
  return kernel_of(forward, backward);
}

// ---- max_pool2d ----

enum class Pool { plain, by_rows, plane_forgotten, finite_start };

struct Found {
  float value = -INFINITY;
  std::int64_t at = -1;
};

/// Whether b, which stands behind a, is the larger one: a NaN wins, and the first among equals stays.
bool wins(const Found& a, const Found& b) {
  if (b.at < 0 || a.value != a.value) return false;
  return a.at < 0 ? b.value >= a.value || b.value != b.value : b.value > a.value || b.value != b.value;
}

Found largest_of_window(const Values& x, const ImageExtents& e, std::int64_t kernel, std::int64_t plane, std::int64_t i,
                        std::int64_t j, Pool twist) {
  Found best;
  if (twist == Pool::finite_start) best.value = -FLT_MAX;
  for (std::int64_t r = 0; r < kernel; ++r) {
    Found of_row = twist == Pool::by_rows ? Found{} : best;
    for (std::int64_t s = 0; s < kernel; ++s) {
      const std::int64_t at = e.cell_or_none(plane, i * e.stride - e.padding + r, j * e.stride - e.padding + s);
      const Found cell{at < 0 ? 0.0f : x[index_of(at)], at};
      if (wins(of_row, cell)) of_row = cell;
    }
    if (twist != Pool::by_rows || wins(best, of_row)) best = of_row;
  }
  return best;
}

Kernel pool(Pool twist, Slip slip = {}) {
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
    Values dx(x.size());
    for_outputs(e, e.c, [&](auto image, auto c, auto i, auto j, std::size_t out) {
      const std::int64_t at = largest_of_window(x, e, call.integer("kernel"), image * e.c + c, i, j, twist).at;
      if (at >= 0) dx[index_of(twist == Pool::plane_forgotten ? at % (e.h * e.w) : at)] += g[out];
    });
    call.out("dx", dx);
  };
  return kernel_of(forward, backward, std::move(slip));
}

}  // namespace

std::vector<Specimen> common_image_specimens() {
  std::vector<Specimen> out;
  add(out, "conv2d",
      {{"taps_transposed", 7, "a square window of the weight is read transposed in forward", "R = S above 1", V::bug,
        "transpos|axes|exchang|swap|another|turn|flip|permut", conv(Conv::taps_transposed), kAllTypes, V::structural},
       {"dbias_mean", 42, "dbias is divided by the number of places", "more than one place", V::bug,
        "factor|count|mean", conv(Conv::dbias_mean)}},
      {{"channels_innermost", "fma chains over the window first and channels last", conv(Conv::plain)}});
  add(out, "max_pool2d",
      {{"plane_forgotten", 22, "dx is written by the place in the plane, always of the first plane",
        "more than one plane", V::structural,
        "zero|another|plane|lost|rows are not independent|changes with other rows", pool(Pool::plane_forgotten),
        kAllTypes, V::bug},
       {"finite_start", 44, "the search begins at the smallest finite number, not at -inf", "windows of -inf", V::bug,
        "finite where|not the NaN|infinite|sentinel|constant|limit", pool(Pool::finite_start), kFp32},
       {"dense_store", 19, "y is written as if row-major", "strided y", V::structural,
        "strided|writes outside|output buffer held", pool(Pool::plain, {Io::write_dense, "y"})}},
      {{"rows_then_windows", "the largest of each row of a window, then of these", pool(Pool::by_rows)}});
  return out;
}

}  // namespace ampcheck::checks::zoo
