// SPDX-License-Identifier: Apache-2.0
// Changes of windows over an image: what lies outside is the nearest number inside, a mirror's, or that of the other
// end; the window begins elsewhere.
#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "reference/graph/row_plan.h"
#include "reference/replay/formula_changes.h"
#include "reference/replay/value_slips.h"

namespace ampcheck::reference {

namespace {

constexpr double kOfWindows = 6;  ///< bits of choice, about

/// Where a number of windows comes from, as coordinates that grow by fixed steps along each axis of the windows.
class Origin {
 public:
  /// Nothing where the map is not of that kind.
  static std::optional<Origin> of(const Node& node, const Shape& image) {
    Origin out(node.shape, image);
    const auto& map = *node.map;
    const Shape strides = row_major_strides(node.shape);
    // Steps: of two numbers inside that differ by one along an axis.
    for (int axis = 0; axis < node.shape.rank; ++axis) {
      bool known = node.shape[axis] < 2;
      for (std::int64_t i = 0; i < std::ssize(map) && !known; ++i) {
        const std::int64_t next = i + strides[axis];
        if (i / strides[axis] % node.shape[axis] + 1 >= node.shape[axis] || map[static_cast<std::size_t>(i)] < 0 ||
            map[static_cast<std::size_t>(next)] < 0)
          continue;
        known = true;
        for (int k = 0; k < image.rank; ++k)
          out.steps_[static_cast<std::size_t>(axis * image.rank + k)] =
              out.coordinate(map[static_cast<std::size_t>(next)], k) -
              out.coordinate(map[static_cast<std::size_t>(i)], k);
      }
      if (!known) return std::nullopt;
    }
    const auto inside = std::find_if(map.begin(), map.end(), [](std::int64_t at) { return at >= 0; });
    if (inside == map.end()) return std::nullopt;
    for (int k = 0; k < image.rank; ++k)
      out.begin_[static_cast<std::size_t>(k)] += out.coordinate(*inside, k) - out.at(inside - map.begin(), k);
    for (std::int64_t i = 0; i < std::ssize(map); ++i)
      for (int k = 0; k < image.rank && map[static_cast<std::size_t>(i)] >= 0; ++k)
        if (out.at(i, k) != out.coordinate(map[static_cast<std::size_t>(i)], k)) return std::nullopt;
    return out;
  }

  /// Coordinate k of element i, inside or not.
  std::int64_t at(std::int64_t i, int k) const {
    std::int64_t out = begin_[static_cast<std::size_t>(k)];
    for (int axis = windows_.rank; axis-- > 0;) {
      out += i % windows_[axis] * steps_[static_cast<std::size_t>(axis * image_.rank + k)];
      i /= windows_[axis];
    }
    return out;
  }
  std::int64_t coordinate(std::int64_t at, int k) const {
    for (int axis = image_.rank; axis-- > k + 1;) at /= image_[axis];
    return at % image_[k];
  }

 private:
  Origin(const Shape& windows, const Shape& image)
      : windows_(windows),
        image_(image),
        steps_(static_cast<std::size_t>(windows.rank * image.rank), 0),
        begin_(static_cast<std::size_t>(image.rank), 0) {}

  Shape windows_, image_;
  std::vector<std::int64_t> steps_, begin_;
};

}  // namespace

void FormulaChanges::other_borders(int id) {
  const Node& node = graph_.node(id);
  if (node.primitive != Primitive::take || node.map == nullptr) return;
  const Shape& image = graph_.node(node.args[0]).shape;
  if (image.rank < 2 || node.shape.count() == 0) return;
  const std::optional<Origin> origin = Origin::of(node, image);
  if (!origin) return;
  const Values from = values(node.args[0]);
  const std::string what = text(node.args[0]);
  // Each coordinate by place(coordinate, extent, axis); a negative one is outside.
  const auto say = [&](auto place, std::string words) {
    Values out(values(id).size(), 0.0);
    for (std::int64_t i = 0; i < std::ssize(out); ++i) {
      std::int64_t at = 0;
      for (int k = 0; k < image.rank && at >= 0; ++k) {
        const std::int64_t c = place(origin->at(i, k), image[k], k);
        at = c < 0 || c >= image[k] ? -1 : at * image[k] + c;
      }
      if (at >= 0) out[static_cast<std::size_t>(i)] = from[static_cast<std::size_t>(at)];
    }
    with(id, std::move(out), chosen(std::move(words), kOfWindows));
  };
  using I = std::int64_t;
  const bool padded = std::ranges::any_of(*node.map, [](I at) { return at < 0; });
  if (padded) {
    say([](I c, I n, int) { return std::clamp<I>(c, 0, n - 1); },
        fmt::format("with the nearest number inside for the zeros of the padding of {}: the border is replicated",
                    what));
    say([](I c, I n, int) { return c < 0    ? -c
                                   : c >= n ? 2 * n - 2 - c
                                            : c; },
        fmt::format("with a mirror's numbers for the zeros of the padding of {}: the border is reflected", what));
    say([](I c, I n, int) { return c < 0    ? -c - 1
                                   : c >= n ? 2 * n - 1 - c
                                            : c; },
        fmt::format("with a mirror's numbers for the zeros of the padding of {}: the border is symmetric", what));
    say([](I c, I n, int) { return (c % n + n) % n; },
        fmt::format("with the numbers of the other end for the zeros of the padding of {}: it is circular", what));
  }
  for (int axis = 0; axis < image.rank; ++axis) {
    if (image[axis] < 2) continue;
    for (const I by : {I{1}, I{-1}})
      say([=](I c, I, int k) { return k == axis ? c + by : c; },
          fmt::format("with windows of {} that begin one place {} along axis {}: off by one", what,
                      by > 0 ? "later" : "earlier", axis));
  }
}

}  // namespace ampcheck::reference
