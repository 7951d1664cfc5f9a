// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include "reference/text/formula_evaluator.h"

#include "reference/graph/node_text.h"

namespace ampcheck::reference {

using Kind = FormulaTerm::Kind;

void FormulaEvaluator::statement(const FormulaStatement& statement) {
  Expr out = value(statement.value);
  if (!statement.adjoints.empty()) out = with_adjoint(statement, out);
  at(statement.target) = out;
}

Expr FormulaEvaluator::with_adjoint(const FormulaStatement& statement, Expr inner) {
  std::vector<Expr> arguments;
  std::vector<FormulaAdjoint> present;
  for (const FormulaAdjoint& adjoint : statement.adjoints) {
    const Expr argument = at(adjoint.of);
    if (!argument.defined()) continue;  // an absent optional input
    arguments.push_back(argument);
    present.push_back(adjoint);
  }
  FormulaScope inside = scope_;
  inside.values[static_cast<std::size_t>(source_.slot_of(statement.target))] = inner;
  const auto cotangent = static_cast<std::size_t>(source_.slot_of("d" + statement.target));
  return own_adjoint(
      inner, arguments, [inside = std::move(inside), present = std::move(present), arguments, cotangent](Expr g) {
        FormulaScope at = inside;
        at.graph = g.graph;
        at.values[cotangent] = g;
        FormulaEvaluator evaluator(at);
        std::vector<Expr> parts;
        for (std::size_t i = 0; i < present.size(); ++i) {
          parts.push_back(evaluator.value(present[i].value));
          evaluator.pointed(present[i].at, [&] { return broadcast_shape(parts.back().shape(), arguments[i].shape()); });
        }
        return parts;
      });
}

Expr FormulaEvaluator::value(int index) {
  const FormulaTerm& term = formula_.term(index);
  return pointed(term.at,
                 [&] { return checked(term, constant_value(index, term)); });  // costs nothing unless it throws
}

Expr FormulaEvaluator::checked(const FormulaTerm& term, Expr out) const {
  const std::int64_t most = source_.most_elements;
  if (out.shape().count() > most)
    fail_too_large(
        term.at, "got a value of shape " + out.shape().str() + ", want at most " + std::to_string(most) + " elements");
  for (; facts_.counted < graph().nodes().size(); ++facts_.counted)
    if (const Map& map = graph().nodes()[facts_.counted].map) facts_.listed += static_cast<std::int64_t>(map->size());
  if (facts_.listed > 4 * most)
    fail_too_large(term.at, "got " + std::to_string(facts_.listed) +
                                " elements that are listed or moved one by one so far, want at most " +
                                std::to_string(4 * most));
  return out;
}

Expr FormulaEvaluator::constant_value(int index, const FormulaTerm& term) {
  const FormulaConstant& known = source_.constants[static_cast<std::size_t>(index)];
  switch (known.kind) {
    case FormulaConstant::Kind::none: break;
    case FormulaConstant::Kind::value: return constant(graph(), known.value);
    case FormulaConstant::Kind::named: return named_constant(graph(), known.name);
    case FormulaConstant::Kind::out_of_range:
      formula_.fail(term.at, "got '" + term.text + "', want a number in the range of fp64");
    case FormulaConstant::Kind::division_by_zero: formula_.fail(term.at, "got a division by zero");
  }
  return plain_value(term);
}

Expr FormulaEvaluator::plain_value(const FormulaTerm& term) {
  switch (term.kind) {
    case Kind::name: return name(term);
    case Kind::negate: return -value(term.args[0]);
    case Kind::binary: return binary(term);
    default: return call(term);
  }
}

std::size_t FormulaEvaluator::slot(const FormulaTerm& term) const {
  return static_cast<std::size_t>(source_.slot_of_term[static_cast<std::size_t>(&term - formula_.terms.data())]);
}

Expr FormulaEvaluator::name(const FormulaTerm& term) const {
  if (const Expr found = scope_.values[slot(term)]; found.defined()) return found;
  if (const auto found = facts_.integers.find(term.text); found != facts_.integers.end())
    return named(indicator(graph(), facts_.integer_shapes.at(term.text), found->second), term.text);
  if (const auto found = facts_.numbers.find(term.text); found != facts_.numbers.end())
    return constant(graph(), found->second);
  if (const auto found = facts_.extents.find(term.text); found != facts_.extents.end())
    return constant(graph(), static_cast<double>(found->second));
  absent(term);
}

void FormulaEvaluator::fail_too_large(std::size_t at, const std::string& what) const {
  try {
    formula_.fail(at, what);
  } catch (const Error& error) {
    throw EnvironmentError(error.what());
  }
}

void FormulaEvaluator::absent(const FormulaTerm& term) const {
  if (scope_.source->signature.input(term.text) == nullptr)
    formula_.fail(term.at, "got '" + term.text + "', whose extent no tensor of this case gives");
  formula_.fail(term.at, "got the optional input '" + term.text + "', which is absent in some cases, want given(" +
                             term.text + ", ..., ...)");
}

Expr FormulaEvaluator::binary(const FormulaTerm& term) {
  const Expr a = value(term.args[0]);
  if (term.text == "^") return square(a);
  const Expr b = value(term.args[1]);
  checked(term, Expr(a));
  if (term.text != "@" && broadcast_shape(a.shape(), b.shape()).count() > source_.most_elements)
    fail_too_large(term.at, "got operands of shapes " + a.shape().str() + " and " + b.shape().str() +
                                ", which broadcast to too many elements");
  if (term.text == "+") return a + b;
  if (term.text == "-") return a - b;
  if (term.text == "*") return a * b;
  if (term.text == "/") return a / b;
  if (term.text == "@") return matmul(a, b);
  if (term.text == "<") return less(a, b);
  if (term.text == "<=") return less_equal(a, b);
  if (term.text == ">") return less(b, a);
  if (term.text == ">=") return less_equal(b, a);
  return equal(a, b);
}

}  // namespace ampcheck::reference
