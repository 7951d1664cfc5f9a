// SPDX-License-Identifier: Apache-2.0
// Changes of constants, operands and saved tensors.
#include <fmt/format.h>

#include <cmath>
#include <set>

#include "reference/replay/formula_changes.h"
#include "reference/replay/value_slips.h"

namespace ampcheck::reference {

namespace {

constexpr double kOfLayouts = 6;  ///< bits of choice, about

}  // namespace

void FormulaChanges::leaf(int id) {
  const Node& node = graph_.node(id);
  if (node.primitive == Primitive::constant) {
    if (is_share(node)) {
      const double n = std::round(1 / node.value);
      if (n > 1) with(id, {1 / (n - 1)}, fmt::format("with 1/{} for 1/{}: the count is off by one", n - 1, n));
      with(id, {1 / (n + 1)}, fmt::format("with 1/{} for 1/{}: the count is off by one", n + 1, n));
      return;
    }
    with(id, {0.0}, "without the constant " + text(id));
    for (const double n : counts_)
      with(id, {node.value / n},
           fmt::format("with 1/{} of the constant {}, as if it were added to a sum of {} and not to its mean", n,
                       text(id), n));
    with(id, {-node.value}, "with the other sign of the constant " + text(id));
    with(id, {2 * node.value}, "with twice the constant " + text(id));
    with(id, {node.value / 2}, "with half the constant " + text(id));
    with(id, {node.value * node.value}, "with the square of the constant " + text(id));
    for (const int digits : {1, 2, 3, 4, 5}) {
      const double scale =
          node.value == 0 ? 1 : std::pow(10.0, digits - 1 - std::floor(std::log10(std::fabs(node.value))));
      for (const double off : {std::round(node.value * scale) / scale, std::trunc(node.value * scale) / scale})
        if (off != node.value)
          with(id, {off}, fmt::format("with {:.6g} for the constant {}, which is slightly off", off, text(id)));
    }
    return;
  }
  if (node.primitive == Primitive::indicator) mask_change(id, node);
  other_rows(id);
  const std::string what = text(id);
  const Values& from = values(id);
  const int rank = node.shape.rank;
  for (int axis = 0; axis < rank; ++axis)
    if (node.shape[axis] > 1)
      with(id, reversed(from, node.shape, axis), fmt::format("with {} reversed along axis {}", what, axis));
  if (rank >= 2)
    with(id, reversed(reversed(from, node.shape, rank - 1), node.shape, rank - 2),
         fmt::format("with {} reversed along both last axes", what));
  if (node.shape.rank >= 2 && node.shape.last(0) == node.shape.last(1))
    with(id, transposed(from, node.shape), "with " + what + " transposed");
  with(id, map(from, [](double v) { return std::fabs(v); }),
       Change{.words = "with |" + what + "| for " + what + ": without its sign", .leaf = node.name, .nonlinear = true});
  with(id, map(from, [](double v) { return std::max(v, 0.0); }),
       Change{.words = "with max(" + what + ", 0) for " + what, .leaf = node.name, .nonlinear = true});
  with(id, map(from, [](double v) { return v * v; }),
       Change{.words = "with the square of " + what, .leaf = node.name, .nonlinear = true});
  if (rank >= 2 && !from.empty())
    with(id, Values(from.size(), from.front()), "with the first element of " + what + " for all of it");
  with(id, map(from, [](double v) { return -v; }), "with the other sign of " + what);
  with(id, Values(from.size(), 0.0), "without " + what);
  with(id, Values(from.size(), 1.0), Change{.words = "with ones for " + what, .leaf = node.name, .nonlinear = true});
}

void FormulaChanges::other_pitches(int id) {
  const Node& node = graph_.node(id);
  const int rank = node.shape.rank;
  if (rank < 2) return;
  const std::int64_t columns = node.shape.last(), all = node.shape.count();
  std::set<std::int64_t> pitches{columns - 1, columns + 1};
  for (const std::int64_t vector : {4, 8, 16, 32, 64, 128}) pitches.insert((columns + vector - 1) / vector * vector);
  for (const int leaf : given_) {
    const Shape& other = graph_.node(leaf).shape;
    for (int axis = 0; axis < other.rank; ++axis) pitches.insert(other[axis]);
  }
  const Values& from = values(id);
  for (const std::int64_t pitch : pitches) {
    if (pitch == columns || pitch < 1) continue;
    Values out(from.size(), 0.0);
    for (std::int64_t i = 0; i < all; ++i)
      if (const std::int64_t at = i / columns * pitch + i % columns; at < all)
        out[static_cast<std::size_t>(i)] = from[static_cast<std::size_t>(at)];
    with(id, std::move(out),
         chosen(fmt::format("with {} read as if its rows were {} numbers apart, not {}: another pitch, a stride",
                            text(id), pitch, columns),
                kOfLayouts));
  }
}

void FormulaChanges::axes_in_turn(int id) {
  const Node& node = graph_.node(id);
  const int rank = node.shape.rank;
  const Values& from = values(id);
  for (int first = 0; first + 2 < rank; ++first)
    for (const int by : {1, 2}) {
      Shape stored = node.shape;
      int axes[3] = {};
      for (int k = 0; k < 3; ++k) {
        axes[k] = first + (k + by) % 3;
        stored[first + k] = node.shape[axes[k]];
      }
      const Shape own = row_major_strides(stored);
      Shape strides = own;
      for (int k = 0; k < 3; ++k) strides[axes[k]] = own[first + k];
      Values out(from.size());
      for (std::size_t i = 0; i < out.size(); ++i) {
        std::int64_t left = static_cast<std::int64_t>(i), at = 0;
        for (int axis = rank; axis-- > 0; left /= node.shape[axis]) at += left % node.shape[axis] * strides[axis];
        out[i] = from[static_cast<std::size_t>(at)];
      }
      with(id, std::move(out),
           chosen(fmt::format("with {} read as if its axes lay in memory in the order {}, {}, {}: another layout",
                              text(id), axes[0], axes[1], axes[2]),
                  kOfLayouts));
    }
}

void FormulaChanges::tiles_transposed(int id) {
  const Node& node = graph_.node(id);
  if (node.shape.rank < 2) return;
  const std::int64_t rows = node.shape.last(1), columns = node.shape.last();
  const Values& from = values(id);
  for (const std::int64_t tile : {2, 4, 8, 16, 32}) {
    if (tile > rows || tile > columns) break;
    Change change = chosen(fmt::format("with each tile of {0} x {0} of {1} transposed", tile, text(id)), kOfLayouts);
    if (!may_try(change.words)) continue;
    Values out = from;
    for (std::int64_t i = 0; i < std::ssize(out); ++i) {
      const std::int64_t column = i % columns, row = i / columns % rows, r = row / tile * tile,
                         c = column / tile * tile;
      if (r + tile > rows || c + tile > columns) continue;
      out[static_cast<std::size_t>(i)] =
          from[static_cast<std::size_t>(i - row * columns - column + (r + column - c) * columns + c + row - r)];
    }
    with(id, std::move(out), std::move(change));
  }
}

void FormulaChanges::other_layouts(int id) {
  other_pitches(id);
  axes_in_turn(id);
  tiles_transposed(id);
  const Node& node = graph_.node(id);
  const Values& from = values(id);
  const int rank = node.shape.rank;
  for (int a = 0; a < rank; ++a)
    for (int b = a + 1; b < rank; ++b) {
      if (node.shape[a] < 2 || node.shape[b] < 2 || (b == rank - 1 && rank == 2 && node.shape[a] == node.shape[b]))
        continue;
      std::string words =
          fmt::format("with {} read as if its axes {} and {} were exchanged in memory: transposed", text(id), a, b);
      if (!may_try(words)) continue;
      Shape stored = node.shape;
      std::swap(stored[a], stored[b]);
      Shape strides = row_major_strides(stored);
      std::swap(strides[a], strides[b]);
      Values out(from.size());
      for (std::size_t i = 0; i < out.size(); ++i) {
        std::int64_t left = static_cast<std::int64_t>(i), at = 0;
        for (int axis = rank; axis-- > 0; left /= node.shape[axis]) at += left % node.shape[axis] * strides[axis];
        out[i] = from[static_cast<std::size_t>(at)];
      }
      with(id, std::move(out), std::move(words));
    }
  for (int axis = 0; axis < rank; ++axis) {
    const Axis a = split(node.shape, axis);
    if (a.n < 3) continue;
    Values out = from;
    for (std::int64_t line = 0; line < a.outer * a.inner; ++line) {
      const std::int64_t first = line / a.inner * a.n * a.inner + line % a.inner;
      double sum = 0;
      for (std::int64_t k = 0; k < a.n; ++k) sum += from[static_cast<std::size_t>(first + k * a.inner)];
      for (std::int64_t k = 0; k < a.n; ++k)
        out[static_cast<std::size_t>(first + k * a.inner)] -= sum / static_cast<double>(a.n);
    }
    with(id, std::move(out),
         fmt::format("with {0} less its mean along axis {1} for {0}: it is centred", text(id), axis));
  }
}

void FormulaChanges::mask_change(int id, const Node& node) {
  with(id, Values(values(id).size(), 1.0), "without the mask: what is hidden, as the future, is seen");
  if (node.shape.rank < 1) return;
  const std::int64_t n = node.shape.last();
  for (const int by : {1, -1}) {
    const Values& from = values(id);
    Values out = from;
    for (std::size_t i = 0; i < out.size(); ++i) {
      const auto at = static_cast<std::int64_t>(i), neighbour = at % n - by;
      if (neighbour >= 0 && neighbour < n) out[i] = from[static_cast<std::size_t>(at - by)];
    }
    Values some = out;
    const std::string words =
        fmt::format("with a mask that is off by one: its edge is one column {}", by > 0 ? "later" : "earlier");
    with(id, std::move(out), words);
    if (by > 0) continue;
    // A mask that begins a column later hides a row whose first element alone is seen; it may keep that.
    for (std::size_t row = 0; row < some.size(); row += static_cast<std::size_t>(n)) {
      const auto begin = some.begin() + static_cast<std::ptrdiff_t>(row);
      for (std::int64_t k = 0; k < n; ++k) begin[k] = k + 1 < n ? from[row + static_cast<std::size_t>(k) + 1] : 0;
      if (std::all_of(begin, begin + n, [](double v) { return v == 0; }))
        std::copy_n(from.begin() + static_cast<std::ptrdiff_t>(row), n, begin);
    }
    with(id, std::move(some), words + ", but for rows that would see nothing");
  }
}

void FormulaChanges::other_rows(int id) {
  const Node& node = graph_.node(id);
  const std::string what = text(id);
  const Values from = values(id);
  first_matrix(id);
  for (int axis = 0; axis < node.shape.rank; ++axis) {
    if (node.shape[axis] < 2) continue;
    const char* const whose = axis + 1 < node.shape.rank ? ": another row's" : ": another element's";
    for (const int by : {1, -1})
      with(id, along(from, node.shape, axis, [by](std::int64_t i, std::int64_t n) { return (i + by + n) % n; }),
           fmt::format("with {} of the {} index along axis {}{}, shifted by one", what, by > 0 ? "next" : "previous",
                       axis, whose));
    with(id, along(from, node.shape, axis, [](std::int64_t, std::int64_t) { return std::int64_t{0}; }),
         fmt::format("with the first {} along axis {} for all{}", what, axis, whose));
  }
}

namespace {

/// "x[.., 3:6]" of a window of a tensor, along the one axis that it cuts; empty if it is none.
std::string window_text(const std::string& tensor, const Node& window, const Shape& whole) {
  if (window.shape.rank != whole.rank || window.shape.count() == 0) return "";
  int cut = -1;
  for (int axis = 0; axis < whole.rank; ++axis) {
    if (window.shape[axis] == whole[axis]) continue;
    if (cut >= 0) return "";
    cut = axis;
  }
  if (cut < 0) return "";
  const Shape strides = row_major_strides(whole), own = row_major_strides(window.shape);
  const std::int64_t begin = window.map->front() / strides[cut];
  for (std::int64_t i = 0; i < window.shape.count(); ++i) {
    std::int64_t at = begin * strides[cut];
    for (int axis = 0; axis < whole.rank; ++axis) at += i / own[axis] % window.shape[axis] * strides[axis];
    if ((*window.map)[static_cast<std::size_t>(i)] != at) return "";
  }
  const char* const before = cut == 0 ? "" : ".., ";
  const char* const behind = cut + 1 < whole.rank ? ", .." : "";
  return fmt::format("{}[{}{}:{}{}]", tensor, before, begin, begin + window.shape[cut], behind);
}

}  // namespace

void FormulaChanges::window_change(int id, const Node& node) {
  const Shape& whole = graph_.node(node.args[0]).shape;
  const std::string tensor = text(node.args[0]), own = window_text(tensor, node, whole);
  if (own.empty()) return;
  for (std::size_t k = 0; k < needed_.size(); ++k) {
    const Node& other = graph_.node(static_cast<int>(k));
    if (!needed_[k] || static_cast<int>(k) == id || other.primitive != Primitive::take ||
        other.args[0] != node.args[0] || other.shape != node.shape)
      continue;
    const std::string words = window_text(tensor, other, whole);
    if (words.empty()) continue;
    const Values here = values(id), there = values(static_cast<int>(k));
    with(id, there, fmt::format("with {} for {}", words, own));
    if (static_cast<int>(k) < id)
      all_with({{id, there}, {static_cast<int>(k), here}},
               Change{.words = fmt::format("with {} and {} exchanged", words, own)});
  }
}

void FormulaChanges::first_matrix(int id) {
  const Node& node = graph_.node(id);
  const std::int64_t plane = node.shape.rank < 4 ? 0 : node.shape.last(0) * node.shape.last(1);
  if (plane == 0) return;
  Values out = values(id);
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = out[i % static_cast<std::size_t>(plane)];
  with(id, std::move(out), fmt::format("with the first head or image of {} for all: another row's", text(id)));
}

}  // namespace ampcheck::reference
