// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
// Windows over an image [N, C, H, W], as of a convolution or a pooling, with another stride, padding or dilation, with
// taps in another order, and with other numbers in the place of the padding.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>

#include "reference/replay/formula_changes.h"

namespace ampcheck::reference {

namespace {

using I = std::int64_t;
using Indices = std::vector<I>;

constexpr double kOfGeometry = 6;  ///< bits of choice, about

/// What lies outside of the image.
enum class Outside { zero, nearest, mirrored, mirrored_with_edge, other_end, next_in_memory };

/// Windows over an image. Of each pair: along rows of the image (H), along its columns (W).
struct Geometry {
  I images = 0, channels = 0;
  std::array<I, 2> image{}, taps{}, windows{}, stride{1, 1}, begin{}, apart{1, 1};
  std::array<bool, 2> reversed{};
  bool channels_in_windows = true;  ///< [N, H', W'] windows of [C, R, S]; or [N, C, H', W'] of [R, S]
  bool inside_first = false;        ///< cells outside are put last, and repeat the last one inside
  Outside outside = Outside::zero;
  I row = 0;  ///< how far the rows of the image lie apart, as the kernel takes them

  I count() const { return images * channels * windows[0] * windows[1] * taps[0] * taps[1]; }

  /// -1: none.
  I coordinate(int axis, I window, I tap) const {
    const auto k = static_cast<std::size_t>(axis);
    const I n = image[k], c = window * stride[k] + begin[k] + (reversed[k] ? taps[k] - 1 - tap : tap) * apart[k];
    switch (outside) {
      case Outside::zero:
      case Outside::next_in_memory: return c;
      case Outside::nearest: return std::clamp<I>(c, 0, n - 1);
      case Outside::mirrored: return c < 0 ? -c : c >= n ? 2 * n - 2 - c : c;
      case Outside::mirrored_with_edge: return c < 0 ? -c - 1 : c >= n ? 2 * n - 1 - c : c;
      case Outside::other_end: return (c % n + n) % n;
    }
    return c;
  }

  I place(I plane, I i, I j) const {
    const I size = image[0] * image[1], at = plane * size + i * row + j;
    if (outside == Outside::next_in_memory) return at >= 0 && at < images * channels * size ? at : -1;
    const bool inside = i >= 0 && i < image[0] && j >= 0 && j < image[1] && i * row + j < size;
    return inside ? at : -1;
  }

  void add_window(Indices& out, I image_number, I first_channel, I channels_of_it, I i, I j) const {
    const auto begin_at = std::ssize(out);
    for (I c = first_channel; c < first_channel + channels_of_it; ++c)
      for (I r = 0; r < taps[0]; ++r)
        for (I s = 0; s < taps[1]; ++s)
          out.push_back(place(image_number * channels + c, coordinate(0, i, r), coordinate(1, j, s)));
    if (!inside_first) return;
    const auto end = std::stable_partition(out.begin() + begin_at, out.end(), [](I at) { return at >= 0; });
    if (end != out.begin() + begin_at) std::fill(end, out.end(), *(end - 1));
  }

  Indices map() const {
    Indices out;
    out.reserve(static_cast<std::size_t>(count()));
    for (I n = 0; n < images; ++n)
      for (I c = 0; c < (channels_in_windows ? 1 : channels); ++c)
        for (I i = 0; i < windows[0]; ++i)
          for (I j = 0; j < windows[1]; ++j) add_window(out, n, c, channels_in_windows ? channels : 1, i, j);
    return out;
  }
};

/// The geometry that has this map: sought among those of squares of strides and paddings, as ops have them.
std::optional<Geometry> geometry_of(const Indices& map, const Shape& image) {
  constexpr I kMostStride = 4, kMostPadding = 3;
  if (image.rank != 4 || image.count() == 0) return std::nullopt;
  Geometry g{.images = image[0], .channels = image[1], .image = {image[2], image[3]}, .row = image[3]};
  for (I padding = 0; padding <= kMostPadding; ++padding)
    for (I stride = 1; stride <= kMostStride; ++stride)
      for (I r = 1; r <= g.image[0] + 2 * padding; ++r)
        for (I s = 1; s <= g.image[1] + 2 * padding; ++s) {
          g.taps = {r, s};
          g.stride = {stride, stride};
          g.begin = {-padding, -padding};
          g.windows = {(g.image[0] + 2 * padding - r) / stride + 1, (g.image[1] + 2 * padding - s) / stride + 1};
          if (g.count() != std::ssize(map)) continue;
          for (const bool in_windows : {true, false})
            for (const bool first : {false, true}) {
              g.channels_in_windows = in_windows;
              g.inside_first = first;
              if (g.map() == map) return g;
            }
        }
  return std::nullopt;
}

struct Named {
  Geometry geometry;
  std::string words;
};

constexpr const char* kAlong[] = {" along the rows", " along the columns", ""};

/// Calls change(axis) for one axis, the other, and both.
template <class F>
void each_along(const Geometry& from, std::vector<Named>& out, F change) {
  for (int along = 0; along < 3; ++along) {
    Geometry g = from;
    std::string words;
    for (int axis = 0; axis < 2; ++axis)
      if (along == 2 || along == axis) words = change(g, static_cast<std::size_t>(axis));
    if (!words.empty()) out.push_back({g, words + kAlong[along]});
  }
}

std::vector<Named> others(const Geometry& due) {
  std::vector<Named> out;
  for (const I stride : {I{1}, I{2}, I{3}, due.taps[0], due.taps[1]})
    if (stride != due.stride[0])
      each_along(due, out, [&](Geometry& g, std::size_t k) {
        g.stride[k] = stride;
        return fmt::format("with a stride of {}, not {},", stride, due.stride[0]);
      });
  for (const I begin : {I{0}, 2 * due.begin[0]})
    if (begin != due.begin[0])
      each_along(due, out, [&](Geometry& g, std::size_t k) {
        g.begin[k] = begin;
        return fmt::format("with a padding of {}, not {}, in front", -begin, -due.begin[0]);
      });
  for (const I by : {I{1}, I{-1}})
    each_along(due, out, [&](Geometry& g, std::size_t k) {
      g.begin[k] += by;
      return fmt::format("with windows that begin one place {}, off by one,", by > 0 ? "later" : "earlier");
    });
  each_along(due, out, [&](Geometry& g, std::size_t k) {
    g.apart[k] = 2;
    return due.taps[k] > 1 ? std::string("with taps two apart, a dilation of 2, not 1,") : "";
  });
  each_along(due, out, [&](Geometry& g, std::size_t k) {
    g.reversed[k] = true;
    return due.taps[k] > 1 ? std::string("with the taps of each window in the opposite order") : "";
  });
  Geometry rows = due;
  rows.row = due.windows[1];
  if (rows.row != due.row)
    out.push_back({rows, "with rows of the image as long as the output's: an index by another width"});
  struct Border {
    Outside outside;
    const char* words;
  };
  static constexpr Border kBorders[] = {
      {Outside::nearest, "with the nearest number inside for the padding: the border is replicated"},
      {Outside::mirrored, "with a mirror's numbers for the padding: the border is reflected"},
      {Outside::mirrored_with_edge, "with a mirror's numbers for the padding: the border is symmetric"},
      {Outside::other_end, "with the numbers of the other end for the padding: it is circular"},
      {Outside::next_in_memory, "with what lies beside it in memory for the padding: no check of the border"}};
  if (due.begin[0] < 0)
    for (const Border& border : kBorders) {
      Geometry g = due;
      g.outside = border.outside;
      out.push_back({g, border.words});
    }
  return out;
}

}  // namespace

void FormulaChanges::other_geometry() {
  std::vector<const Indices*> seen;
  for (std::size_t first = 0; first < needed_.size() && going_; ++first) {
    const Node& node = graph_.node(static_cast<int>(first));
    const bool take = node.primitive == Primitive::take;
    if (!needed_[first] || node.map == nullptr || !(take || node.primitive == Primitive::put_add)) continue;
    if (std::ranges::any_of(seen, [&](const Indices* one) { return *one == *node.map; })) continue;
    const std::optional<Geometry> due = geometry_of(*node.map, take ? graph_.node(node.args[0]).shape : node.shape);
    if (!due) continue;
    seen.push_back(node.map.get());
    for (const Named& other : others(*due)) in_another_geometry(*node.map, other.geometry.map(), other.words);
  }
}

void FormulaChanges::in_another_geometry(const Indices& due, const Indices& map, const std::string& words) {
  for (const Primitive kind : {Primitive::take, Primitive::put_add}) {  // what is read, or what is written
    std::vector<std::pair<int, Values>> changed;
    std::string what;
    for (std::size_t id = 0; id < needed_.size(); ++id) {
      const Node& node = graph_.node(static_cast<int>(id));
      if (!needed_[id] || node.primitive != kind || node.map == nullptr || *node.map != due) continue;
      const Values from = values(node.args[0]);
      Values out(static_cast<std::size_t>(node.shape.count()), 0.0);
      for (std::size_t i = 0; i < map.size(); ++i) {
        if (map[i] < 0) continue;
        const auto at = static_cast<std::size_t>(map[i]);
        if (kind == Primitive::take)
          out[i] = from[at];
        else
          out[at] += from[i];
      }
      if (what.empty()) what = text(kind == Primitive::take ? node.args[0] : static_cast<int>(id));
      if (out != values(static_cast<int>(id))) changed.emplace_back(static_cast<int>(id), std::move(out));
    }
    if (changed.empty()) continue;
    const std::string said = fmt::format("{} of the windows of {}", words, what);
    if (wanted(said)) all_with(std::move(changed), chosen(said, kOfGeometry));
  }
}

}  // namespace ampcheck::reference
