// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
// Whole numbers in a formula: axes, extents, counts.
#include <algorithm>

#include "reference/text/formula_evaluator.h"

namespace ampcheck::reference {

using Kind = FormulaTerm::Kind;

std::int64_t FormulaEvaluator::whole(int index) {
  const FormulaTerm& term = formula_.term(index);
  if (term.kind == Kind::number) {
    const auto exact = decimal_fraction(term.text);
    if (exact && exact->second == 1 && exact->first <= (std::int64_t{1} << 40)) return exact->first;
  } else if (term.kind == Kind::negate) {
    return -whole(term.args[0]);
  } else if (term.kind == Kind::name) {
    if (const auto found = facts_.extents.find(term.text); found != facts_.extents.end()) return found->second;
    const auto found = facts_.numbers.find(term.text);
    if (found != facts_.numbers.end() && found->second >= -0x1p40 && found->second <= 0x1p40 &&
        found->second == static_cast<double>(static_cast<std::int64_t>(found->second)))
      return static_cast<std::int64_t>(found->second);
    if (const std::optional<std::int64_t> named = whole_statement(term.text)) return *named;
  } else if (term.kind == Kind::call && is_whole(term.text)) {
    return whole_call(term);
  } else if (term.kind == Kind::binary) {
    return whole_binary(term);
  }
  formula_.fail(term.at, "got no whole number, want one known from shapes and attributes");
}

std::optional<std::int64_t> FormulaEvaluator::whole_statement(const std::string& name) {
  constexpr int kMostNested = 64;
  const auto found = std::find_if(formula_.statements.begin(), formula_.statements.end(),
                                  [&](const FormulaStatement& s) { return s.target == name; });
  if (found == formula_.statements.end() || !found->adjoints.empty() || nested_ == kMostNested) return std::nullopt;
  if (const auto known = wholes_.find(name); known != wholes_.end()) return known->second;
  ++nested_;
  const std::int64_t out = whole(found->value);
  --nested_;
  return wholes_[name] = out;
}

std::int64_t FormulaEvaluator::whole_binary(const FormulaTerm& term) {
  const std::int64_t a = whole(term.args[0]), b = term.args.size() > 1 ? whole(term.args[1]) : a;
  std::int64_t out = 0;
  bool overflow = false;
  if (term.text == "+")
    overflow = __builtin_add_overflow(a, b, &out);
  else if (term.text == "-")
    overflow = __builtin_sub_overflow(a, b, &out);
  else if (term.text == "*" || term.text == "^")
    overflow = __builtin_mul_overflow(a, b, &out);
  else if (term.text == "/" && b != 0 && a % b == 0)
    out = a / b;
  else
    formula_.fail(term.at, "got '" + term.text + "' of " + std::to_string(a) + " and " + std::to_string(b) +
                               ", want a whole number");
  if (overflow || out > (std::int64_t{1} << 40) || out < -(std::int64_t{1} << 40))
    formula_.fail(term.at, "got a whole number beyond 2^40");
  return out;
}

std::int64_t FormulaEvaluator::whole_call(const FormulaTerm& term) {
  return term.text == "floor" ? floored(term) : size(term);
}

std::int64_t FormulaEvaluator::floored(const FormulaTerm& term) {
  const FormulaTerm& quotient = formula_.term(term.args[0]);
  if (quotient.kind != Kind::binary || quotient.text != "/") return whole(term.args[0]);
  const std::int64_t a = whole(quotient.args[0]), b = whole(quotient.args[1]);
  if (b == 0) formula_.fail(quotient.at, "got a division by zero");
  return a / b - (a % b != 0 && (a < 0) != (b < 0) ? 1 : 0);
}

int FormulaEvaluator::axis(Expr x, int index) {
  const std::int64_t at = whole(index), rank = x.shape().rank;
  if (at < -rank || at >= rank)
    formula_.fail(formula_.term(index).at, "got axis " + std::to_string(at) + " of shape " + x.shape().str() +
                                               ", want one from " + std::to_string(-rank) + " to " +
                                               std::to_string(rank - 1));
  return static_cast<int>(at < 0 ? at + rank : at);
}

std::int64_t FormulaEvaluator::keyword(const FormulaTerm& term, std::string_view key, std::int64_t otherwise) {
  for (const auto& [name, index] : term.keywords)
    if (name == key) return whole(index);
  return otherwise;
}

std::int64_t FormulaEvaluator::size(const FormulaTerm& term) {
  const Expr x = value(term.args[0]);
  return x.shape()[axis(x, term.args[1])];
}

}  // namespace ampcheck::reference
