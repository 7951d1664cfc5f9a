// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include "checks/explain/error_field.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "checks/explain/places.h"
#include "reference/graph/node_text.h"
#include "reference/replay/replay.h"
#include "src/rounding.h"

namespace ampcheck::checks {

namespace {

/// What the formula's own roundings and the storage's leave open at an element, on either side.
double room_at(const WrongTensor& wrong, std::size_t i) {
  if (!std::isfinite(wrong.got[i])) return HUGE_VAL;  // it tells nothing
  return wrong.interval.radius[i] + spacing_at(format(wrong.tensor.dtype), wrong.got[i]) / 2;
}

/// Nine of ten wrong elements and nearly all: a few are right or wrong by chance.
template <class F>
bool explains_most(const WrongTensor& wrong, F explains) {
  std::int64_t outside = 0, all = 0;
  for (const std::int64_t i : wrong.comparison.outside) outside += explains(static_cast<std::size_t>(i));
  if (10 * outside < 9 * std::ssize(wrong.comparison.outside)) return false;
  for (std::size_t i = 0; i < wrong.got.size(); ++i) all += explains(i);
  return 20 * all >= 19 * std::ssize(wrong.got);
}

struct Matrix {
  std::size_t rows, columns;
  std::vector<double> of;
  double at(std::size_t r, std::size_t c) const { return of[r * columns + c]; }
};

/// One number per row times one per column, the nearest to a matrix.
struct Product {
  std::vector<double> row, column;
  double at(std::size_t i) const { return row[i / column.size()] * column[i % column.size()]; }
};

/// By power iteration, which takes a step or two where there is such a product.
Product nearest_product(const Matrix& m) {
  constexpr int kSteps = 16;
  Product out{std::vector<double>(m.rows, 0.0), std::vector<double>(m.columns, 0.0)};
  double largest = -1;
  for (std::size_t r = 0; r < m.rows; ++r) {  // from the largest row on
    double square = 0;
    for (std::size_t c = 0; c < m.columns; ++c) square += m.at(r, c) * m.at(r, c);
    if (square <= largest) continue;
    largest = square;
    for (std::size_t c = 0; c < m.columns; ++c) out.column[c] = m.at(r, c);
  }
  const auto projected = [&](const std::vector<double>& on, std::vector<double>& to, bool rows) {
    double square = 0;
    for (const double v : on) square += v * v;
    for (std::size_t i = 0; i < to.size(); ++i) {
      double sum = 0;
      for (std::size_t k = 0; k < on.size(); ++k) sum += on[k] * (rows ? m.at(i, k) : m.at(k, i));
      to[i] = square == 0 ? 0 : sum / square;
    }
  };
  for (int step = 0; step < kSteps; ++step) {
    projected(out.column, out.row, true);
    projected(out.row, out.column, false);
  }
  return out;
}

/// Means over the columns, or over the rows: a product one side of which is one number.
Product nearest_equal(const Matrix& m, bool in_columns) {
  Product out{std::vector<double>(m.rows, in_columns ? 0.0 : 1.0),
              std::vector<double>(m.columns, in_columns ? 1.0 : 0.0)};
  for (std::size_t r = 0; r < m.rows; ++r)
    for (std::size_t c = 0; c < m.columns; ++c)
      if (in_columns)
        out.row[r] += m.at(r, c) / static_cast<double>(m.columns);
      else
        out.column[c] += m.at(r, c) / static_cast<double>(m.rows);
  return out;
}

/// How much of a matrix a product is, and whether it leaves no more than the roundings, though it has fewer numbers
/// than the matrix.
struct ProductFit {
  bool holds = false;
  double share = 0;
};

ProductFit fit_of(const WrongTensor& wrong, const Matrix& m, const Product& product) {
  constexpr double kFewestBits = 16;
  std::vector<double> rooms;
  double mean = 0;
  for (std::size_t i = 0; i < m.of.size(); ++i) {
    rooms.push_back(room_at(wrong, i));
    mean += rooms[i] / static_cast<double>(m.of.size());
  }
  for (double& room : rooms) room += mean;  // the product's numbers are as rough as the elements that they follow from
  const auto explains = [&](std::size_t i) { return std::fabs(m.of[i] - product.at(i)) <= 2 * rooms[i]; };
  if (!explains_most(wrong, explains)) return {};
  double bits = 0, all = 0, left = 0;
  for (std::size_t i = 0; i < m.of.size(); ++i) {
    const double before = m.of[i], after = before - product.at(i), room = rooms[i];
    bits += std::log2((std::fabs(before) + room) / (std::fabs(after) + room));
    all += before * before;
    left += after * after;
  }
  const double freedom = 1 - static_cast<double>(m.rows + m.columns - 1) / static_cast<double>(m.of.size());
  return {bits * freedom >= kFewestBits, 1 - left / all};
}

bool has_matmul(CaseRun& run) {
  const auto& nodes = run.reference.recording(run.reference.forms().front()).graph->nodes();
  return std::any_of(nodes.begin(), nodes.end(),
                     [](const reference::Node& node) { return node.primitive == reference::Primitive::matmul; });
}

/// Wrong in at least that many rows and columns: of fewer any matrix is a product.
bool spread_out(const WrongTensor& wrong, std::size_t columns) {
  constexpr std::size_t kFewest = 3;
  std::vector<std::int64_t> rows, cols;
  for (const std::int64_t i : wrong.comparison.outside) {
    rows.push_back(i / static_cast<std::int64_t>(columns));
    cols.push_back(i % static_cast<std::int64_t>(columns));
  }
  const auto distinct = [](std::vector<std::int64_t>& of) {
    std::sort(of.begin(), of.end());
    return static_cast<std::size_t>(std::unique(of.begin(), of.end()) - of.begin());
  };
  return distinct(rows) >= kFewest && distinct(cols) >= kFewest;
}

}  // namespace

std::string transposed(const WrongTensor& wrong) {
  const Shape& shape = wrong.tensor.shape;
  if (shape.rank < 2 || wrong.tensor.shape.count() > kLargestExplained) return "";
  const std::int64_t rows = shape[shape.rank - 2], columns = shape.last();
  if (rows < 2 || columns < 2 || wrong.comparison.outside.size() < 3)
    return "";                             // two numbers may be exchanged for another reason
  const auto place = [&](std::size_t i) {  // where the number belongs that stands at i
    const auto at = static_cast<std::int64_t>(i), plane = at / (rows * columns), within = at % (rows * columns);
    return plane * rows * columns + within % rows * columns + within / rows;
  };
  if (!explains_most(wrong, [&](std::size_t i) { return admits(wrong.interval, place(i), wrong.got[i]); })) return "";
  return rows == columns ? "transposed: each element is the one due at its row and column exchanged"
                         : "transposed: written column by column, not row by row";
}

namespace {

double largest(const std::vector<double>& values) {
  double out = 0;
  for (const double v : values) out = std::max(out, std::fabs(v));
  return out;
}

}  // namespace

std::string outer_product(const WrongTensor& wrong) {
  const Shape& shape = wrong.tensor.shape;
  if (shape.rank != 2 || shape.count() > kLargestExplained) return "";
  const auto rows = static_cast<std::size_t>(shape[0]), columns = static_cast<std::size_t>(shape[1]);
  if (rows < 3 || columns < 3 || !spread_out(wrong, columns)) return "";
  Matrix error{rows, columns, {}}, value = error, written{rows, columns, wrong.got};
  for (std::size_t i = 0; i < wrong.got.size(); ++i) {
    if (!std::isfinite(wrong.got[i]) || !std::isfinite(wrong.interval.value[i])) return "";
    error.of.push_back(wrong.got[i] - wrong.interval.value[i]);
    value.of.push_back(wrong.interval.value[i]);
  }
  if (fit_of(wrong, value, nearest_product(value)).holds) return "";  // then so is any multiple of it
  const auto share = [](double of) { return fmt::format("{:.4g} % of it", std::min(100 * of, 100.0)); };
  // Of small errors no term is left out: a number that rows or columns share is off.
  constexpr double kSmall = 0x1p-7;
  const double size = largest(error.of) / largest(value.of);
  if (size <= kSmall)
    return fit_of(wrong, error, nearest_product(error)).holds
               ? fmt::format(
                     "errors of up to {:.2g} of the largest number, a number per row times one per column: as of "
                     "one that a row or column shares and that is rounded on the way",
                     size)
               : "";
  if (const ProductFit fit = fit_of(wrong, error, nearest_equal(error, true)); fit.holds)
    return fmt::format(
        "the error is one number per row ({}): a term that is the same in all columns is left out, added or replaced",
        share(fit.share));
  if (const ProductFit fit = fit_of(wrong, error, nearest_equal(error, false)); fit.holds)
    return fmt::format(
        "the error is one number per column ({}): a term that is the same in all rows, as a bias, is left out, added "
        "or replaced",
        share(fit.share));
  if (const ProductFit fit = fit_of(wrong, error, nearest_product(error)); fit.holds)
    return fmt::format(
        "the error is one outer product ({}), a number per row times one per column: {} is left out, added or replaced",
        share(fit.share), has_matmul(wrong.run) ? "one term of the sum of a matmul" : "such a term");
  if (const ProductFit fit = fit_of(wrong, written, nearest_product(written)); fit.holds)
    return fmt::format(
        "the result is one outer product ({}), a number per row times one per column: {}", share(fit.share),
        has_matmul(wrong.run) ? "the product of two sums for the sum of products" : "the formula's is none");
  return "";
}

namespace {

bool is_condition(reference::Primitive p) {
  return p == reference::Primitive::less || p == reference::Primitive::less_equal || p == reference::Primitive::equal;
}

/// Nodes of the forward that have that shape and follow from data.
std::vector<reference::Expr> numbers_of_shape(const reference::Recording& recording, const Shape& shape) {
  std::vector<reference::Expr> out;
  int last = 0;
  for (const auto& [name, node] : recording.outputs) last = std::max(last, node.id);
  for (int id = 0; id <= last; ++id) {
    const reference::Node& node = recording.graph->node(id);
    if (node.shape == shape && node.primitive != reference::Primitive::constant &&
        node.primitive != reference::Primitive::indicator && !is_condition(node.primitive))
      out.push_back(recording.graph->at(id));
  }
  return out;
}

}  // namespace

std::string zero_where(const WrongTensor& wrong) {
  constexpr double kFewestBits = 10;
  constexpr std::size_t kFewest = 3;
  const std::size_t n = wrong.got.size();
  if (std::ssize(wrong.got) > kLargestExplained || wrong.pass == Pass::jvp) return "";
  std::vector<char> lost(n, 0), kept(n, 0);
  for (const std::int64_t i : wrong.comparison.outside)
    lost[static_cast<std::size_t>(i)] = wrong.got[static_cast<std::size_t>(i)] == 0;
  for (std::size_t i = 0; i < n; ++i) kept[i] = wrong.got[i] != 0;
  const auto zeros = static_cast<std::size_t>(std::count(lost.begin(), lost.end(), 1)),
             others = static_cast<std::size_t>(std::count(kept.begin(), kept.end(), 1));
  if (zeros < kFewest || others < kFewest || bits_of_choice(zeros + others, zeros) < kFewestBits) return "";
  const std::size_t form = wrong.run.reference.forms().front();
  const reference::Recording& recording = wrong.run.reference.recording(form);
  const Leaves leaves = wrong.run.reference.leaves(form, wrong.pass == Pass::forward ? wrong.pass : Pass::backward);
  const std::vector<reference::Expr> targets = numbers_of_shape(recording, wrong.tensor.shape);
  const std::vector<std::vector<double>> values = reference::replay(*recording.graph, leaves, targets, {});
  // The first of them whose sign tells: what follows from it tells as much.
  for (std::size_t k = 0; k < targets.size(); ++k) {
    double lost_ends[2] = {HUGE_VAL, -HUGE_VAL}, kept_ends[2] = {HUGE_VAL, -HUGE_VAL};
    for (std::size_t i = 0; i < n; ++i)
      for (double* const ends : {lost[i] ? lost_ends : nullptr, kept[i] ? kept_ends : nullptr})
        if (ends != nullptr) {
          ends[0] = std::min(ends[0], values[k][i]);
          ends[1] = std::max(ends[1], values[k][i]);
        }
    const std::string text = reference::text_of(*recording.graph, targets[k].id);
    if (lost_ends[1] <= 0 && kept_ends[0] >= 0 && lost_ends[0] < kept_ends[1])
      return fmt::format("zero where {} <= 0", text);
    if (lost_ends[0] >= 0 && kept_ends[1] <= 0 && kept_ends[0] < lost_ends[1])
      return fmt::format("zero where {} >= 0", text);
  }
  return "";
}

}  // namespace ampcheck::checks
