// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
// Functions that a formula calls.
#include <algorithm>

#include "reference/graph/node_text.h"
#include "reference/softplus.h"
#include "reference/text/formula_evaluator.h"

namespace ampcheck::reference {

Expr FormulaEvaluator::call(const FormulaTerm& term) {
  const std::string& f = term.text;
  if (f == "given") {
    const FormulaTerm& input = formula_.term(term.args[0]);
    return value(term.args[scope_.values[slot(input)].defined() || facts_.integers.contains(input.text) ? 1 : 2]);
  }
  if (f == "stored") return stored(formula_.term(term.args[0]).text, value(term.args[1]));
  if (is_whole(f)) return constant(graph(), static_cast<double>(whole_call(term)));
  if (f == "arange" || f == "one_hot") return whole_tensor(term);
  const Expr x = value(term.args[0]);
  if (f == "sum" || f == "mean" || f == "max" || f == "min" || f == "first_max") return reduce(term, x);
  if (f == "cumsum") return cumsum(x, axis(x, term.args[1]), keyword(term, "reversed", 0) != 0);
  if (f == "matmul")
    return matmul(x, value(term.args[1]), keyword(term, "transpose_a", 0) != 0, keyword(term, "transpose_b", 0) != 0);
  if (f == "gather" || f == "scatter_add") return indexed(term, x);
  if (term.args.size() == 1 && f != "reshape" && f != "transpose" && f != "concat") return unary(f, x);
  if (f == "pow") return pow(x, value(term.args[1]));
  if (f == "maximum") return maximum(x, value(term.args[1]));
  if (f == "minimum") return -maximum(-x, -value(term.args[1]));
  if (f == "where") {
    const Expr yes = value(term.args[1]);
    return where(x, yes, value(term.args[2]));
  }
  return moved(term, x);
}

namespace {

Expr plain_softplus(Expr x) { return softplus(x, constant(*x.graph, 1.0)); }
Expr rounded(Expr x) { return stored("", x); }  // no tensor has this name

}  // namespace

Expr FormulaEvaluator::unary(const std::string& f, Expr x) {
  static const std::map<std::string, Expr (*)(Expr)> kUnary = {{"exp", exp},
                                                               {"expm1", expm1},
                                                               {"log", log},
                                                               {"log1p", log1p},
                                                               {"tanh", tanh},
                                                               {"erf", erf},
                                                               {"erfc", erfc},
                                                               {"sin", sin},
                                                               {"cos", cos},
                                                               {"sqrt", sqrt},
                                                               {"rsqrt", rsqrt},
                                                               {"sigmoid", sigmoid},
                                                               {"softplus", plain_softplus},
                                                               {"abs", abs},
                                                               {"square", square},
                                                               {"rounded", rounded},
                                                               {"stop_gradient", stop_gradient}};
  return kUnary.at(f)(x);
}

Expr FormulaEvaluator::reduce(const FormulaTerm& term, Expr x) {
  if (term.args.size() == 1) {
    const Expr total = sum_all(x);
    return term.text == "sum" ? total : total * named_constant(graph(), "1/" + std::to_string(x.shape().count()));
  }
  for (std::size_t i = 1; i < term.args.size(); ++i) {
    const int at = axis(x, term.args[i]);
    if (term.text == "sum")
      x = sum(x, at);
    else if (term.text == "mean")
      x = mean(x, at);
    else if (term.text == "max")
      x = max(x, at);
    else if (term.text == "min")
      x = -max(-x, at);
    else
      x = first_max(x, at);
  }
  return x;
}

Expr FormulaEvaluator::whole_tensor(const FormulaTerm& term) {
  const bool hot = term.text == "one_hot";
  const std::string index = hot ? formula_.term(term.args[0]).text : "";
  if (hot && !facts_.integers.contains(index)) absent(formula_.term(term.args[0]));
  const std::int64_t n = whole(term.args[hot ? 1 : 0]);
  Shape shape = hot ? facts_.integer_shapes.at(index) : Shape{};
  if (n < 0) formula_.fail(term.at, "got " + std::to_string(n) + " elements in " + term.text);
  if (n > source_.most_elements || shape.count() * n > source_.most_elements)
    fail_too_large(term.at, "got " + std::to_string(n) + " elements in " + term.text);
  if (shape.rank == kMaxRank) formula_.fail(term.at, "got more than 8 dimensions");
  shape[shape.rank++] = n;
  std::vector<std::int64_t> values;
  if (hot)
    for (const std::int64_t at : facts_.integers.at(index))
      for (std::int64_t i = 0; i < n; ++i) values.push_back(i == at);
  else
    for (std::int64_t i = 0; i < n; ++i) values.push_back(i);
  return named(indicator(graph(), shape, std::move(values)),
               term.text + "(" + (hot ? index : formula_.term(term.args[0]).text) + ")");
}

Expr FormulaEvaluator::indexed(const FormulaTerm& term, Expr x) {
  const FormulaTerm& index = formula_.term(term.args[1]);
  if (!facts_.integers.contains(index.text)) absent(index);
  const std::vector<std::int64_t>& at = facts_.integers.at(index.text);
  if (x.shape().rank < 2) formula_.fail(term.at, "got shape " + x.shape().str() + ", want at least 2 dimensions");
  const bool gathers = term.text == "gather";
  const std::int64_t rows = gathers ? x.shape()[0] : whole(term.args[2]), width = x.shape().last();
  for (const std::int64_t row : at)
    if (row >= rows)
      formula_.fail(index.at, "got index " + std::to_string(row) + " of " + std::to_string(rows) + " rows");
  if (gathers) {
    if (x.shape().rank != 2) formula_.fail(term.at, "got a table of shape " + x.shape().str() + ", want 2 dimensions");
    Shape shape = facts_.integer_shapes.at(index.text);
    if (shape.rank == kMaxRank) formula_.fail(term.at, "got more than 8 dimensions");
    shape[shape.rank++] = width;
    return reshape(gather_rows(x, at), shape);
  }
  if (x.shape().count() != static_cast<std::int64_t>(at.size()) * width || rows < 0 || rows > source_.most_elements ||
      rows * std::max<std::int64_t>(width, 1) > source_.most_elements)
    formula_.fail(term.at, "got " + x.shape().str() + " and " + std::to_string(at.size()) +
                               " indices, want one index for each row");
  std::vector<std::int64_t> map;
  for (const std::int64_t row : at)
    for (std::int64_t d = 0; d < width; ++d) map.push_back(row < 0 ? -1 : row * width + d);
  return put_add(x, std::move(map), Shape{rows, width});
}

}  // namespace ampcheck::reference
