// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include "reference/graph/formula.h"

#include <algorithm>

#include "reference/graph/unguarded.h"
#include "src/error.h"

namespace ampcheck::reference {

Expr Recording::output(const std::string& name) const {
  for (const auto& [key, node] : outputs)
    if (key == name) return node;
  throw Error("[" + form + "] no output named '" + name + "' in the formula");
}

std::vector<Expr> Recording::output_nodes() const {
  std::vector<Expr> nodes;
  for (const auto& [name, node] : outputs) nodes.push_back(node);
  return nodes;
}

std::vector<Expr> Recording::gradient_nodes() const {
  std::vector<Expr> nodes;
  for (const auto& [name, node] : gradients) nodes.push_back(node);
  return nodes;
}

std::vector<Expr> Recording::jvp_nodes() const {
  std::vector<Expr> nodes;
  for (const auto& [name, node] : jvps) nodes.push_back(node);
  return nodes;
}

namespace {

/// The gradients are linear in the cotangents, so that their own adjoint by the cotangents is forward mode: J u.
void record_jvps(Recording& out, const std::vector<Expr>& inputs) {
  std::vector<Expr> tangents, cotangents;
  for (const Expr& input : inputs) {
    const std::string name = tangent_name(out.graph->node(input.id).name);
    tangents.push_back(out.tangents[name] = out.graph->input(name, input.shape()));
  }
  for (const auto& [name, node] : out.outputs) cotangents.push_back(out.cotangents.at(gradient_name(name)));
  const std::vector<Expr> jvps = out.graph->vjp(out.gradient_nodes(), tangents, cotangents);
  for (std::size_t i = 0; i < jvps.size(); ++i) out.jvps.emplace_back(tangent_name(out.outputs[i].first), jvps[i]);
}

/// Outputs that backward reads as forward wrote them stand in the graph a second time, as saved tensors do; unless the
/// formula says itself where.
void store_outputs(Recording& out, const OpSignature& signature) {
  for (const OutputSpec& spec : signature.outputs) {
    if (!spec.to_backward) continue;
    const auto& nodes = out.graph->nodes();
    const bool said = std::any_of(nodes.begin(), nodes.end(), [&](const Node& node) {
      return node.primitive == Primitive::stored && node.name == spec.name;
    });
    if (!said) stored(spec.name, out.output(spec.name));
  }
}

/// Derivatives in terms of an output (g y of exp, g y (1 - y) of sigmoid) take the one that backward reads.
void read_stored_outputs(Recording& out, int from, int to) {
  Graph& graph = *out.graph;
  for (int id = from; id < to; ++id) {
    if (graph.node(id).primitive != Primitive::stored) continue;
    const int output = graph.node(id).args[0];
    for (int later = to; later < static_cast<int>(graph.nodes().size()); ++later)
      graph.replace_argument(later, output, id);
  }
}

Recording recorded(const OpSignature& signature, const Form& form, const Attributes& attributes,
                   const CaseInputs& inputs, bool guarded) {
  Recording out;
  out.one_pass = form.one_pass;
  out.form = form.name;
  FormulaCall call(*out.graph, attributes);
  call.integers_ = inputs.integers;
  call.integer_shapes_ = inputs.integer_shapes;
  for (const TensorSpec& spec : signature.inputs) {
    const auto shape = inputs.shapes.find(spec.name);
    if (shape != inputs.shapes.end())
      call.inputs_[spec.name] = out.inputs[spec.name] = out.graph->input(spec.name, shape->second);
  }
  form.formula(call);
  if (call.outputs_.size() != signature.outputs.size())
    throw Error("[" + signature.name + "] outputs of form '" + form.name + "', got " +
                std::to_string(call.outputs_.size()) + ", want " + std::to_string(signature.outputs.size()));
  out.outputs = call.outputs_;
  for (const OutputSpec& spec : signature.outputs)
    for (auto& [name, node] : out.outputs)
      if (name == spec.name && !spec.takes_cotangent) node = no_gradient(name + " takes no cotangent", node);
  const int values_end = static_cast<int>(out.graph->nodes().size());
  store_outputs(out, signature);
  const int forward_size = static_cast<int>(out.graph->nodes().size());
  for (int id = 0; id < forward_size; ++id)  // rounded(x) is kept nowhere: it has no name
    if (const Node& node = out.graph->node(id); node.primitive == Primitive::stored && !node.name.empty())
      out.stored[node.name] = out.graph->at(id);
  std::vector<Expr> cotangents, wrt;
  for (const auto& [name, node] : out.outputs) {
    const Shape shape = node.shape();
    cotangents.push_back(out.cotangents[gradient_name(name)] = out.graph->input(gradient_name(name), shape));
  }
  std::vector<std::string> names;
  for (const TensorSpec& spec : signature.inputs) {
    if (!spec.has_gradient() || !out.inputs.contains(spec.name)) continue;
    wrt.push_back(out.inputs.at(spec.name));
    names.push_back(gradient_name(spec.name));
  }
  const std::vector<Expr> gradients = guarded ? out.graph->vjp(out.output_nodes(), cotangents, wrt)
                                              : vjp_unguarded(*out.graph, out.output_nodes(), cotangents, wrt);
  read_stored_outputs(out, values_end, forward_size);
  for (std::size_t i = 0; i < names.size(); ++i) out.gradients.emplace_back(names[i], gradients[i]);
  if (signature.forward_mode) record_jvps(out, wrt);
  return out;
}

}  // namespace

Recording record(const OpSignature& signature, const Form& form, const Attributes& attributes,
                 const CaseInputs& inputs) {
  return recorded(signature, form, attributes, inputs, true);
}

Recording record_unguarded(const OpSignature& signature, const Form& form, const Attributes& attributes,
                           const CaseInputs& inputs) {
  return recorded(signature, form, attributes, inputs, false);
}

}  // namespace ampcheck::reference
