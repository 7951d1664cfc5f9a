// SPDX-License-Identifier: Apache-2.0
// Which outputs and gradients are sums of one tensor's elements, each times the same power of two.
#include <algorithm>
#include <cmath>
#include <optional>

#include "checks/judge/bias.h"
#include "reference/replay/replay.h"

namespace ampcheck::checks {

namespace {

using reference::Expr;
using reference::Graph;
using reference::Node;
using reference::Primitive;

/// What may stand beside the source: its value is exact where its operands are small whole numbers.
bool plain(Primitive p) { return p < Primitive::exp || (p > Primitive::sigmoid && p != Primitive::own_adjoint); }

/// How a node that depends on the source uses an operand that does not.
enum class Use { factor, addend, choice };
struct Operand {
  Use use;
  int node;
};

/// One step from the source to the target: one operand that depends on the source, the others as said. False: no such
/// step.
bool step(const Node& node, const std::vector<char>& depends, std::vector<Operand>& operands) {
  const auto moving = std::count_if(node.args.begin(), node.args.end(),
                                    [&](int id) { return depends[static_cast<std::size_t>(id)] != 0; });
  if (moving != 1) return false;
  const auto other = [&](Use use) {
    for (const int id : node.args)
      if (depends[static_cast<std::size_t>(id)] == 0) operands.push_back({use, id});
    return true;
  };
  switch (node.primitive) {
    case Primitive::sum:
    case Primitive::take:
    case Primitive::put_add:
    case Primitive::reshape: return true;
    case Primitive::mul:
    case Primitive::matmul: return other(Use::factor);
    case Primitive::div: return depends[static_cast<std::size_t>(node.args[0])] != 0 && other(Use::factor);
    case Primitive::add: return other(Use::addend);
    case Primitive::where:
      if (depends[static_cast<std::size_t>(node.args[0])] != 0) return false;
      operands.push_back({Use::choice, node.args[0]});
      operands.push_back(
          {Use::addend, depends[static_cast<std::size_t>(node.args[1])] != 0 ? node.args[2] : node.args[1]});
      return true;
    default: return false;
  }
}

/// The operands along the way from the source to the target; nothing if the target is no sum of the source's elements.
std::optional<std::vector<Operand>> operands_of(const Graph& graph, Expr source, Expr target) {
  const auto& nodes = graph.nodes();
  std::vector<char> depends(nodes.size(), 0), needed(nodes.size(), 0);
  depends[static_cast<std::size_t>(source.id)] = needed[static_cast<std::size_t>(target.id)] = 1;
  for (std::size_t id = nodes.size(); id-- > 0;)
    for (const int arg : nodes[id].args) needed[static_cast<std::size_t>(arg)] |= needed[id];
  std::vector<Operand> operands;
  bool summed = false;
  for (std::size_t id = 0; id < nodes.size(); ++id) {
    const Node& node = nodes[id];
    if (static_cast<int>(id) != source.id)
      depends[id] = std::any_of(node.args.begin(), node.args.end(),
                                [&](int arg) { return depends[static_cast<std::size_t>(arg)] != 0; });
    if (!needed[id] || static_cast<int>(id) == source.id) continue;
    if (depends[id] == 0 ? !plain(node.primitive) : !step(node, depends, operands)) return std::nullopt;
    summed |= depends[id] != 0 && (node.primitive == Primitive::sum || node.primitive == Primitive::matmul ||
                                   node.primitive == Primitive::put_add);
  }
  if (!summed || depends[static_cast<std::size_t>(target.id)] == 0) return std::nullopt;
  return operands;
}

bool power_of_two(double v) {
  int exponent = 0;
  return std::isfinite(v) && v > 0 && std::frexp(v, &exponent) == 0.5;
}

bool fits(Use use, const std::vector<double>& values) {
  double factor = 0;
  for (const double v : values) {
    if (use == Use::addend && v != 0) return false;
    if (use == Use::choice && v != 0 && v != 1) return false;
    if (use != Use::factor || v == 0) continue;
    if (!power_of_two(v) || (factor != 0 && v != factor)) return false;
    factor = v;
  }
  return true;
}

}  // namespace

Leaves leaves_of(const reference::Recording& recording, const NamedValues& values) {
  Leaves out;
  for (const auto& [name, node] : recording.inputs) out.emplace_back(node, values.at(name));
  for (const auto& [name, node] : recording.cotangents)
    if (values.contains(name)) out.emplace_back(node, values.at(name));
  return out;
}

bool enters_product(const Graph& graph, Expr source, Expr target) {
  const auto& nodes = graph.nodes();
  const auto at = [](int id) { return static_cast<std::size_t>(id); };
  std::vector<char> depends(nodes.size(), 0);
  std::vector<char> needed(nodes.size(), 0);
  depends[at(source.id)] = needed[at(target.id)] = 1;
  for (std::size_t id = nodes.size(); id-- > 0;)
    for (const int arg : nodes[id].args) needed[at(arg)] |= needed[id];
  bool enters = false;
  for (std::size_t id = 0; id < nodes.size(); ++id) {
    for (const int arg : nodes[id].args) depends[id] |= depends[at(arg)];
    enters |= needed[id] != 0 && depends[id] != 0 && nodes[id].primitive == Primitive::matmul;
  }
  return enters;
}

bool is_sum_of(const Graph& graph, Expr source, Expr target) { return operands_of(graph, source, target).has_value(); }

bool sums_alike(const reference::Recording& recording, Expr source, Expr target, const NamedValues& values) {
  const auto operands = operands_of(*recording.graph, source, target);
  if (!operands) return false;
  // A mean may run along as its terms come in, and is no sum then.
  if (recording.one_pass &&
      std::any_of(operands->begin(), operands->end(), [](const Operand& o) { return o.use == Use::factor; }))
    return false;
  const Leaves leaves = leaves_of(recording, values);
  return std::all_of(operands->begin(), operands->end(), [&](const Operand& operand) {
    return fits(operand.use,
                reference::replay(*recording.graph, leaves, {recording.graph->at(operand.node)}, {}).front());
  });
}

}  // namespace ampcheck::checks
