// SPDX-License-Identifier: Apache-2.0
#include "reference/graph/node_text.h"

#include <fmt/format.h>

#include "reference/graph/row_plan.h"

namespace ampcheck::reference {

Expr named(Expr indicator, const std::string& name) {
  const_cast<Node&>(indicator.graph->node(indicator.id)).name = name;
  return indicator;
}

bool silent(const Graph& graph, const Node& node) {
  if (moves_nothing(node.primitive)) return true;
  return node.primitive == Primitive::take && graph.node(node.args[0]).shape.count() == node.shape.count();
}

namespace {

/// 44715/1000000 or 1/100000, as formulas in text keep 0.044715 and 1e-5. A mean may be over 1000.
bool is_decimal(const std::string& name) {
  const std::size_t over = name.find("/1");
  return over != std::string::npos && (!name.starts_with("1/") || name.size() >= 8) &&
         name.find_first_not_of('0', over + 2) == std::string::npos;
}

}  // namespace

bool is_share(const Node& node) {
  return node.primitive == Primitive::constant && node.name.starts_with("1/") &&
         node.name.find_first_not_of("0123456789", 2) == std::string::npos && !is_decimal(node.name);
}

namespace {

const char* infix(Primitive p) {
  switch (p) {
    case Primitive::add: return " + ";
    case Primitive::sub: return " - ";
    case Primitive::mul: return " * ";
    case Primitive::div: return " / ";
    case Primitive::less: return " < ";
    case Primitive::less_equal: return " <= ";
    default: return nullptr;
  }
}

std::string text_at(const Graph& graph, int id, const NodeNames& names, int depth, bool inner) {
  const Node& node = graph.node(id);
  if (const auto known = names.find(id); known != names.end()) return known->second;
  switch (node.primitive) {
    case Primitive::input: return node.name;
    case Primitive::constant:
      return node.name.empty() || is_decimal(node.name) ? fmt::format("{}", node.value) : node.name;
    case Primitive::indicator: return node.name.empty() ? "mask" : node.name;
    case Primitive::stored:
      if (!node.name.empty()) return node.name;
      return text_at(graph, node.args[0], names, depth, inner);
    default: break;
  }
  if (silent(graph, node)) return text_at(graph, node.args[0], names, depth, inner);
  if (depth == 0) return "...";
  const auto arg = [&](std::size_t k, bool in) { return text_at(graph, node.args[k], names, depth - 1, in); };
  if (node.primitive == Primitive::neg) return "-" + arg(0, true);
  if (const char* between = infix(node.primitive); between != nullptr) {
    // A mean was written as a sum times 1/n.
    const Node &a = graph.node(node.args[0]), &b = graph.node(node.args[1]);
    if (node.primitive == Primitive::mul && a.primitive == Primitive::sum && is_share(b))
      return "mean(" + text_at(graph, a.args[0], names, depth - 1, false) + ")";
    const std::string text = arg(0, true) + between + arg(1, true);
    return inner ? "(" + text + ")" : text;
  }
  std::string text = std::string(name(node.primitive)) + "(";
  for (std::size_t k = 0; k < node.args.size(); ++k) text += (k > 0 ? ", " : "") + arg(k, false);
  return text + ")";
}

}  // namespace

std::string text_of(const Graph& graph, int id, const NodeNames& names) { return text_at(graph, id, names, 4, false); }

}  // namespace ampcheck::reference
