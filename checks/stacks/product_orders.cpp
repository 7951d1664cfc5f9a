// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
// The same products in another order: x * (rsqrt(...) * weight) for x * rsqrt(...) * weight. In exact arithmetic they
// are equal; with a rounding in between they are not.
#include <algorithm>

#include "checks/stacks/ways.h"
#include "reference/graph/node_text.h"

namespace ampcheck::checks::stacks {

namespace {

using reference::Expr;
using reference::Graph;
using reference::Node;
using reference::Primitive;

constexpr std::size_t kMostFactors = 4;

void factors_of(Expr e, std::vector<Expr>& out) {
  const Node& node = e.graph->node(e.id);
  if (node.primitive != Primitive::mul) {
    out.push_back(e);
    return;
  }
  // A mean is a sum times 1/n: one factor.
  if (reference::is_share(e.graph->node(node.args[1]))) {
    out.push_back(e);
    return;
  }
  const int left = node.args[0], right = node.args[1];
  factors_of(e.graph->at(left), out);
  factors_of(e.graph->at(right), out);
}

/// The product in which factors i and j meet first, then the others in their order.
Expr pair_first(const std::vector<Expr>& factors, std::size_t i, std::size_t j) {
  Expr out = factors[i] * factors[j];
  for (std::size_t k = 0; k < factors.size(); ++k)
    if (k != i && k != j) out = factors[k] * out;
  return out;
}

/// The pairs of factors that may meet first, but for the one that does in the formula.
std::vector<std::pair<std::size_t, std::size_t>> other_pairs(std::size_t count) {
  std::vector<std::pair<std::size_t, std::size_t>> out;
  if (count < 3 || count > kMostFactors) return out;
  for (std::size_t j = 1; j < count; ++j)
    for (std::size_t i = 0; i < j; ++i)
      if (i != 0 || j != 1) out.emplace_back(i, j);
  return out;
}

/// An output's top product, or that of the left operand where the output is a sum or difference.
Expr reordered(Expr e, std::size_t which, std::string& words) {
  const Node& node = e.graph->node(e.id);
  if (node.primitive == Primitive::add || node.primitive == Primitive::sub) {
    const Primitive p = node.primitive;
    const int left = node.args[0], right = node.args[1];
    const Expr other = reordered(e.graph->at(left), which, words);
    if (!other.defined()) return {};
    return p == Primitive::add ? other + e.graph->at(right) : other - e.graph->at(right);
  }
  std::vector<Expr> factors;
  factors_of(e, factors);
  const auto pairs = other_pairs(factors.size());
  if (which >= pairs.size()) return {};
  const Expr out = pair_first(factors, pairs[which].first, pairs[which].second);
  words = reference::text_of(*out.graph, out.id);
  return out;
}

/// Runs the formula on a scratch recording to see what the form would be called; empty if it has no such order.
reference::Form reordered_form(const reference::Form& first, std::size_t which) {
  reference::Form out = first;
  out.name = "";
  out.formula = [formula = first.formula, which](reference::FormulaCall& call) {
    formula(call);
    for (auto& [name, value] : call.outputs_) {
      std::string words;
      if (const Expr other = reordered(value, which, words); other.defined()) value = other;
    }
  };
  return out;
}

}  // namespace

OpDef with_orders_of_products(const OpDef& op) {
  OpDef out = op;
  if (op.forms.empty()) return out;
  const OpCall call = default_call(op.signature, op.signature.precision.storage.front());
  NamedValues zeros;
  for (const TensorSpec& spec : op.signature.inputs)
    if (call.has(spec)) zeros[spec.name] = std::vector<double>(static_cast<std::size_t>(call.shape(spec).count()), 0.0);
  const reference::CaseInputs inputs = case_inputs(op.signature, call, zeros);
  for (std::size_t which = 0;; ++which) {
    const reference::Recording recording = reference::record(op.signature, op.forms.front(), call.attributes, inputs);
    std::string words;
    for (const auto& [name, value] : recording.outputs) {
      std::string own;
      if (reordered(value, which, own).defined()) words += (words.empty() ? "" : ", ") + own;
    }
    if (words.empty()) break;
    reference::Form form = reordered_form(op.forms.front(), which);
    form.name = words;
    out.forms.push_back(std::move(form));
  }
  return out;
}

}  // namespace ampcheck::checks::stacks
