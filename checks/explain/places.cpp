// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include "checks/explain/places.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "checks/case/sign_test.h"

namespace ampcheck::checks {

namespace {

/// Which indices elements have: how many, the first and the last, and how far apart all of them are.
struct Marks {
  std::int64_t count = 0, first = 0, last = -1, step = 0;
  template <class F>
  Marks(std::int64_t extent, const std::vector<std::int64_t>& elements, F index) : first(extent) {
    std::vector<char> seen(static_cast<std::size_t>(extent), 0);
    for (const std::int64_t i : elements) {
      const std::int64_t at = index(i);
      count += !seen[static_cast<std::size_t>(at)];
      seen[static_cast<std::size_t>(at)] = 1;
      first = std::min(first, at);
      last = std::max(last, at);
    }
    for (const std::int64_t i : elements) step = std::gcd(step, index(i) - first);
  }
};

/// A tensor as planes of rows and columns.
struct Grid {
  std::int64_t rows, columns, planes;
  explicit Grid(const Shape& shape)
      : rows(shape.rank > 1 ? shape[shape.rank - 2] : 1),
        columns(shape.last()),
        planes(rows * columns == 0 ? 0 : shape.count() / (rows * columns)) {}
  std::int64_t row(std::int64_t i) const { return i / columns % rows; }
  std::int64_t column(std::int64_t i) const { return i % columns; }
};

/// Patterns that hold of the wrong elements and of no others, but for a few that are right there by chance: a number
/// may be right by any formula.
class Patterns {
 public:
  Patterns(const Comparison& comparison, const Grid& grid)
      : wrong_(comparison.outside), grid_(grid), count_(grid.rows * grid.columns * grid.planes) {}

  std::string words() const {
    constexpr std::size_t kFewest = 3;  // two always lie on some line
    if (wrong_.size() < kFewest || bits_of_choice(static_cast<std::size_t>(count_), wrong_.size()) < kFewestBits)
      return "";
    for (const auto& pattern : {&Patterns::lines, &Patterns::by_diagonal, &Patterns::elements, &Patterns::tile})
      if (const std::string found = (this->*pattern)(); !found.empty()) return found;
    return "";
  }

  /// Of lines, each counts once: what goes wrong in a row may go wrong in all of it.
  bool regular() const {
    const Marks rows(grid_.rows, wrong_, [&](std::int64_t i) { return grid_.row(i); }),
        columns(grid_.columns, wrong_, [&](std::int64_t i) { return grid_.column(i); });
    const bool one_way = rows.step > 1 || columns.step > 1;
    const Marks& marks = columns.step > 1 ? columns : rows;
    const std::int64_t of = columns.step > 1 ? grid_.columns : grid_.rows;
    return one_way &&
           bits_of_choice(static_cast<std::size_t>(of), static_cast<std::size_t>(marks.count)) >= kFewestBits &&
           !lines().empty();
  }

 private:
  static constexpr double kFewestBits = 8;

  template <class F>
  bool holds(F in) const {
    if (!std::all_of(wrong_.begin(), wrong_.end(), in)) return false;
    std::int64_t all = 0;
    for (std::int64_t i = 0; i < count_; ++i) all += in(i);
    return 10 * std::ssize(wrong_) >= 9 * all;
  }

  /// Of two indices the next one would lie beyond the end: they may stand for every k-th.
  static std::string every(const Marks& marks, const char* of) {
    const std::string step = marks.step == 2 ? "2nd" : marks.step == 3 ? "3rd" : fmt::format("{}th", marks.step);
    if (marks.count == 2)
      return fmt::format("only in {0}s {1} and {2}, as of every {3} {0}", of, marks.first, marks.last, step);
    return fmt::format("only in every {} {} from {} on", step, of, marks.first);
  }

  std::string lines() const {
    const auto row = [&](std::int64_t i) { return grid_.row(i); };
    const auto column = [&](std::int64_t i) { return grid_.column(i); };
    const Marks rows(grid_.rows, wrong_, row), columns(grid_.columns, wrong_, column);
    if (columns.step > 1 &&
        holds([&](std::int64_t i) { return column(i) % columns.step == columns.first % columns.step; }))
      return every(columns, grid_.rows > 1 ? "column" : "element");
    if (rows.step > 1 && holds([&](std::int64_t i) { return row(i) % rows.step == rows.first % rows.step; }))
      return every(rows, "row");
    if (rows.count < 2 || columns.count < 2) return "";
    const std::int64_t odd = (row(wrong_.front()) + column(wrong_.front())) % 2;
    if (holds([&](std::int64_t i) { return (row(i) + column(i)) % 2 == odd; }))
      return fmt::format("only where row + column is {}: every other element, as of a checkerboard",
                         odd == 1 ? "odd" : "even");
    return "";
  }

  /// Of a whole plane, row by row.
  std::string elements() const {
    const std::int64_t size = grid_.rows * grid_.columns;
    const Marks marks(size, wrong_, [&](std::int64_t i) { return i % size; });
    if (marks.count < 3 || marks.step < 2 ||
        !holds([&](std::int64_t i) { return i % size % marks.step == marks.first % marks.step; }))
      return "";
    return every(marks, "element");
  }

  std::string by_diagonal() const {
    if (grid_.rows < 2 || grid_.columns < 2) return "";  // a vector has no diagonal
    const auto beyond = [&](std::int64_t i) { return grid_.column(i) - grid_.row(i); };
    if (holds([&](std::int64_t i) { return beyond(i) == 0; })) return "only on the diagonal";
    if (holds([&](std::int64_t i) { return beyond(i) > 0; })) return "only above the diagonal: the upper triangle";
    if (holds([&](std::int64_t i) { return beyond(i) < 0; })) return "only below the diagonal: the lower triangle";
    if (holds([&](std::int64_t i) { return beyond(i) >= 0; }))
      return "only on and above the diagonal: the upper triangle";
    if (holds([&](std::int64_t i) { return beyond(i) <= 0; }))
      return "only on and below the diagonal: the lower triangle";
    return "";
  }

  std::string tile() const {
    const auto row = [&](std::int64_t i) { return grid_.row(i); };
    const auto column = [&](std::int64_t i) { return grid_.column(i); };
    const Marks rows(grid_.rows, wrong_, row), columns(grid_.columns, wrong_, column);
    const bool all_rows = rows.count == grid_.rows, all_columns = columns.count == grid_.columns;
    if (rows.count < 2 || columns.count < 2 || (all_rows && all_columns)) return "";
    if (!holds([&](std::int64_t i) {
          return row(i) >= rows.first && row(i) <= rows.last && column(i) >= columns.first && column(i) <= columns.last;
        }))
      return "";
    if (all_rows) return fmt::format("only in columns {} to {}", columns.first, columns.last);
    if (all_columns) return fmt::format("only in rows {} to {}", rows.first, rows.last);
    return fmt::format("only in rows {} to {} of columns {} to {}: a tile", rows.first, rows.last, columns.first,
                       columns.last);
  }

  const std::vector<std::int64_t>& wrong_;
  Grid grid_;
  std::int64_t count_;
};

}  // namespace

double bits_of_choice(std::size_t n, std::size_t k) {
  return log_choose(static_cast<double>(n), static_cast<double>(k)) / std::log(2.0);
}

bool on_regular_lines(const Comparison& comparison, const Shape& shape) {
  return shape.rank > 0 && !comparison.outside.empty() && Patterns(comparison, Grid(shape)).regular();
}

namespace {

using Elements = std::vector<std::int64_t>;

/// In one column, or in the tail of each row.
std::string in_columns(const Marks& columns, std::int64_t width, bool one_row) {
  // A tail where it alone follows full vectors of 4 or more; otherwise it may be one column as well as another.
  if (width > 1 && columns.count == 1 && columns.first == width - 1 && one_row)
    return width % 4 == 1 ? "only the last element: a tail" : "only the last element";
  if (width > 1 && columns.count == 1 && columns.first == width - 1)
    return width % 4 == 1 ? "only in the last column: the tail of each row" : "only in the last column";
  for (const std::int64_t vector : {8, 4, 16, 32, 64, 128})
    if (width > vector && width % vector != 0 && columns.first >= width / vector * vector)
      return "only after the last full vector of " + std::to_string(vector) + ": the tail of each row";
  if (width < 2 || columns.count != 1) return "";
  return fmt::format("only {} {}", one_row ? "element" : "in column", columns.first);
}

/// In nearly all of the full vectors of a row, and nowhere behind them, so many that chance would not spare these.
std::string in_full_vectors(const Marks& columns, std::int64_t width, std::int64_t rows, std::size_t outside) {
  constexpr double kFewestBits = 8;
  for (const std::int64_t vector : {4, 8, 16, 32, 64, 128}) {
    const std::int64_t full = width / vector * vector;
    if (width - full < 2 || full < 16 || columns.last >= full) continue;
    const double bits = bits_of_choice(static_cast<std::size_t>(rows * width), outside) -
                        bits_of_choice(static_cast<std::size_t>(rows * full), outside);
    if (columns.last >= full - vector && 10 * columns.count >= 9 * full && bits >= kFewestBits)
      return fmt::format("only in full vectors of {}: the tail behind them is right", vector);
  }
  return "";
}

/// Most of what lies beyond an element, and nothing before.
std::string from_on(const Elements& outside, std::int64_t count) {
  const std::int64_t first = outside.front();
  if (first < 1024 || 2 * std::ssize(outside) <= count - first) return "";
  return fmt::format("only from element {} on{}", first,
                     (first & (first - 1)) == 0 || first % 65535 == 0 ? ": an index or grid overflows" : "");
}

/// At one index of an axis other than the last.
std::string at_one_index(const Elements& outside, const Shape& shape) {
  for (int axis = 0; axis + 1 < shape.rank && shape.rank > 2; ++axis) {
    std::int64_t inner = 1;
    for (int k = axis + 1; k < shape.rank; ++k) inner *= shape[k];
    const std::int64_t at = outside.front() / inner % shape[axis];
    const bool one = shape[axis] > 1 && std::all_of(outside.begin(), outside.end(),
                                                    [&](std::int64_t i) { return i / inner % shape[axis] == at; });
    if (!one) continue;
    if (axis == shape.rank - 2)
      return at == shape[axis] - 1 ? "only in the last row of each plane"
                                   : fmt::format("only in row {} of each plane", at);
    return at == shape[axis] - 1 ? fmt::format("only at the last index of axis {}", axis)
                                 : fmt::format("only at index {} of axis {}", at, axis);
  }
  return "";
}

}  // namespace

std::string place(const Comparison& comparison, const Shape& shape) {
  if (shape.rank == 0) return "";
  const Elements& outside = comparison.outside;
  const std::int64_t width = shape.last(), rows = width > 0 ? shape.count() / width : 0;
  const Marks columns(width, outside, [&](std::int64_t i) { return i % width; }),
      failed_rows(rows, outside, [&](std::int64_t i) { return i / width; });
  if (rows > 1 && outside.size() == 1) return "";  // one element is in some row and column
  for (const auto& words :
       {in_columns(columns, width, rows < 2), in_full_vectors(columns, width, rows, outside.size())})
    if (!words.empty()) return words;
  if (rows > 1 && failed_rows.count == 1)
    return failed_rows.first == rows - 1 ? "only in the last row" : "only in row " + std::to_string(failed_rows.first);
  if (std::string words = from_on(outside, shape.count()); !words.empty()) return words;
  if (std::string words = at_one_index(outside, shape); !words.empty()) return words;
  if (std::string words = Patterns(comparison, Grid(shape)).words(); !words.empty()) return words;
  if (rows > 2 && failed_rows.first == 1 && failed_rows.count == rows - 1) return "in every row but the first";
  return "";
}

}  // namespace ampcheck::checks
