// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
// Functions that move elements: shapes, slices, windows.
#include <algorithm>

#include "reference/graph/strided.h"
#include "reference/text/formula_evaluator.h"

namespace ampcheck::reference {

Expr FormulaEvaluator::moved(const FormulaTerm& term, Expr x) {
  const std::string& f = term.text;
  if (f == "reshape") return reshaped(term, x);
  if (f == "transpose") return transposed(term, x);
  if (f == "squeeze") {
    const int at = axis(x, term.args[1]);
    Shape shape;
    for (int i = 0; i < x.shape().rank; ++i)
      if (i != at) shape[shape.rank++] = x.shape()[i];
    if (x.shape()[at] != 1)
      formula_.fail(term.at, "got extent " + std::to_string(x.shape()[at]) + " in squeeze, want 1");
    return reshape(x, shape);
  }
  if (f == "slice") return sliced(term, x);
  if (f == "concat") return joined(term, x);
  if (f == "pad" || f == "repeat") return extended(term, x);
  const auto small = [&](std::int64_t v) {
    if (v < 0 || v > 4096) formula_.fail(term.at, "got " + std::to_string(v) + " in unfold, want 0 to 4096");
    return static_cast<int>(v);
  };
  const int kh = small(whole(term.args[1])), kw = small(whole(term.args[2]));
  const int stride = small(keyword(term, "stride", 1)), padding = small(keyword(term, "padding", 0));
  if (x.shape().rank != 4 || kh == 0 || kw == 0 || stride == 0)
    formula_.fail(term.at, "got shape " + x.shape().str() + ", want unfold of [N,C,H,W] with positive extents");
  const Shape& s = x.shape();
  const std::int64_t windows = window_extent(s[2], kh, stride, padding) * window_extent(s[3], kw, stride, padding);
  const double all = static_cast<double>(s[0]) * static_cast<double>(s[1]) * kh * kw *
                     static_cast<double>(std::max<std::int64_t>(windows, 1));
  if (all > static_cast<double>(source_.most_elements)) fail_too_large(term.at, "got too many windows in unfold");
  return unfold(x, kh, kw, stride, padding);
}

Expr FormulaEvaluator::reshaped(const FormulaTerm& term, Expr x) {
  Shape shape;
  int inferred = -1;
  std::int64_t known = 1;
  for (std::size_t i = 1; i < term.args.size(); ++i) {
    const std::int64_t extent = whole(term.args[i]);
    if (shape.rank == kMaxRank) formula_.fail(term.at, "got more than 8 dimensions in reshape");
    if (extent < -1 || (extent == -1 && inferred >= 0))
      formula_.fail(formula_.term(term.args[i]).at,
                    "got extent " + std::to_string(extent) + " in reshape, want one -1 at most");
    if (extent == -1)
      inferred = shape.rank;
    else if (__builtin_mul_overflow(known, extent, &known))
      formula_.fail(term.at, "got too many elements in reshape");
    shape[shape.rank++] = extent;
  }
  if (inferred >= 0) {
    if (known == 0 || x.shape().count() % known != 0)
      formula_.fail(term.at, "got no extent for -1 in reshape of " + x.shape().str());
    shape[inferred] = x.shape().count() / known;
  }
  return reshape(x, shape);
}

Expr FormulaEvaluator::transposed(const FormulaTerm& term, Expr x) {
  const int rank = x.shape().rank;
  std::vector<int> order;
  for (std::size_t i = 1; i < term.args.size(); ++i) order.push_back(axis(x, term.args[i]));
  if (order.empty()) {
    for (int i = 0; i < rank; ++i) order.push_back(i);
    if (rank >= 2) std::swap(order[static_cast<std::size_t>(rank) - 1], order[static_cast<std::size_t>(rank) - 2]);
  }
  std::vector<int> sorted = order;
  std::sort(sorted.begin(), sorted.end());
  for (int i = 0; i < rank; ++i)
    if (static_cast<int>(sorted.size()) != rank || sorted[static_cast<std::size_t>(i)] != i)
      formula_.fail(term.at, "got an order of axes for " + x.shape().str() + ", want each axis once");
  return transpose(x, order);
}

Expr FormulaEvaluator::sliced(const FormulaTerm& term, Expr x) {
  const int at = axis(x, term.args[1]);
  const std::int64_t extent = x.shape()[at];
  std::int64_t begin = whole(term.args[2]), end = whole(term.args[3]);
  if (begin < 0) begin += extent;
  if (end < 0) end += extent;
  if (begin < 0 || begin > end || end > extent)
    formula_.fail(term.at, "got slice [" + std::to_string(begin) + ", " + std::to_string(end) + ") of extent " +
                               std::to_string(extent));
  return slice(x, at, begin, end);
}

/// Zeros before and after along an axis, or each element n times.
Expr FormulaEvaluator::extended(const FormulaTerm& term, Expr x) {
  const bool pads = term.text == "pad";
  const int at = axis(x, term.args[1]);
  const std::int64_t extent = x.shape()[at], first = whole(term.args[2]), second = pads ? whole(term.args[3]) : 0;
  const auto most = static_cast<double>(source_.most_elements);
  for (const std::int64_t given : {first, second})
    if (given < 0) formula_.fail(term.at, "got " + std::to_string(given) + " in " + term.text + ", want 0 or more");
  const double elements =
      static_cast<double>(std::max<std::int64_t>(x.shape().count(), 1)) *
      (pads ? 1 + static_cast<double>(first) + static_cast<double>(second) : static_cast<double>(first));
  if (elements > most) fail_too_large(term.at, "got too many elements in " + term.text);
  Shape shape = x.shape();
  shape[at] = pads ? extent + first + second : extent * first;
  if (pads) {
    const Shape strides = row_major_strides(shape);
    return put_add(x, strided_offsets(x.shape(), strides, first * strides[at]), shape);
  }
  std::vector<std::int64_t> map(static_cast<std::size_t>(shape.count()));
  std::int64_t inner = 1;
  for (int axis = at + 1; axis < shape.rank; ++axis) inner *= shape[axis];
  for (std::size_t i = 0; i < map.size(); ++i) {
    const auto to = static_cast<std::int64_t>(i);
    map[i] = to / (inner * first) * inner + to % inner;
  }
  return take(x, std::move(map), shape);
}

Expr FormulaEvaluator::joined(const FormulaTerm& term, Expr x) {
  std::vector<Expr> parts = {x};
  for (std::size_t i = 1; i < term.args.size(); ++i) parts.push_back(value(term.args[i]));
  const std::int64_t rank = x.shape().rank, wanted = keyword(term, "axis", -1),
                     at = wanted < 0 ? wanted + rank : wanted;
  if (at < 0 || at >= rank)
    formula_.fail(term.at, "got axis " + std::to_string(wanted) + " of shape " + x.shape().str());
  std::int64_t elements = 0;
  for (const Expr& part : parts) elements += part.shape().count();
  if (elements > source_.most_elements)
    fail_too_large(term.at, "got " + std::to_string(elements) + " elements in concat");
  for (const Expr& part : parts)
    for (int i = 0; i < rank; ++i)
      if (part.shape().rank != rank || (i != at && part.shape()[i] != x.shape()[i]))
        formula_.fail(term.at, "got parts of shapes " + x.shape().str() + " and " + part.shape().str() + " in concat");
  return concat(parts, static_cast<int>(at));
}

}  // namespace ampcheck::reference
