// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include "checks/diagnose/equality.h"

#include <algorithm>

#include "checks/models/bound_call.h"
#include "reference/replay/changes.h"
#include "src/error.h"
#include "src/op_call.h"

namespace ampcheck::checks::diagnose {

namespace {

using reference::Primitive;
using reference::Recording;

/// Node by node, in the order of recording: whether it follows from a floating input.
std::vector<bool> from_inputs(const reference::Graph& graph) {
  std::vector<bool> out;
  for (const reference::Node& node : graph.nodes()) {
    bool follows = node.primitive == Primitive::input;
    for (const int arg : node.args) follows = follows || out[static_cast<std::size_t>(arg)];
    out.push_back(follows);
  }
  return out;
}

/// Node by node, whether the outputs go by it, and not adjoints alone.
std::vector<bool> of_outputs(const Recording& recording) {
  const reference::Graph& graph = *recording.graph;
  std::vector<bool> out(graph.nodes().size(), false);
  for (const auto& [name, output] : recording.outputs) out[static_cast<std::size_t>(output.id)] = true;
  for (int id = static_cast<int>(out.size()) - 1; id >= 0; --id)
    if (out[static_cast<std::size_t>(id)])
      for (const int arg : graph.node(id).args) out[static_cast<std::size_t>(arg)] = true;
  return out;
}

std::vector<int> equalities(const Recording& recording) {
  const reference::Graph& graph = *recording.graph;
  std::vector<int> out;
  const std::vector<bool> follows = from_inputs(graph), forward = of_outputs(recording);
  for (int id = static_cast<int>(forward.size()) - 1; id >= 0; --id) {
    const reference::Node& node = graph.node(id);
    if (forward[static_cast<std::size_t>(id)] && node.primitive == Primitive::equal &&
        std::all_of(node.args.begin(), node.args.end(),
                    [&](int arg) { return follows[static_cast<std::size_t>(arg)]; }))
      out.push_back(id);
  }
  return out;
}

bool adds_up(const Recording& recording) {
  const std::vector<bool> forward = of_outputs(recording);
  for (std::size_t id = 0; id < forward.size(); ++id) {
    if (!forward[id]) continue;
    switch (recording.graph->node(static_cast<int>(id)).primitive) {
      case Primitive::sum:
      case Primitive::cumsum:
      case Primitive::matmul:
      case Primitive::put_add: return true;
      default: break;
    }
  }
  return false;
}

Recording recorded(const OpDef& op, const OpCall& call) {
  reference::CaseInputs inputs;
  for (const TensorSpec& spec : op.signature.inputs) {
    if (!call.has(spec)) continue;
    if (is_float(dtype_of(spec.type, Dtype::fp32)))
      inputs.shapes[spec.name] = call.shape(spec);
    else
      throw Error("integers");  // no op that is told by its numbers
  }
  return reference::record(op.signature, op.forms.front(), call.attributes, inputs);
}

}  // namespace

bool compares_inputs(const OpDef& op) {
  if (op.forms.empty()) return false;
  try {
    return !equalities(recorded(op, default_call(op.signature, Dtype::fp32))).empty();
  } catch (const EnvironmentError&) {
    throw;
  } catch (const Error&) {
    return false;
  }
}

bool sums_inputs(const OpDef& op) {
  if (op.forms.empty()) return true;
  try {
    return adds_up(recorded(op, default_call(op.signature, Dtype::fp32)));
  } catch (const EnvironmentError&) {
    throw;
  } catch (const Error&) {
    return true;
  }
}

Compared compared_at(const MetCall& met) {
  const OpDef& op = models::op_of_call(met.op);
  std::vector<std::pair<std::string, models::Var>> inputs;
  std::vector<Shape> shapes;
  for (const MetCall::Input& input : met.inputs) {
    inputs.emplace_back(input.name, models::Var{static_cast<int>(shapes.size())});
    shapes.push_back(input.shape);
  }
  const models::RecordedCall call = models::bind_call(
      met.op, inputs, met.attributes, [&](models::Var var) { return shapes[static_cast<std::size_t>(var.id)]; });
  const Recording recording = recorded(op, call.call);
  std::vector<std::pair<reference::Expr, std::vector<double>>> leaves;
  for (const MetCall::Input& input : met.inputs) leaves.emplace_back(recording.inputs.at(input.name), input.values);
  Compared out;
  for (const int id : equalities(recording)) {
    const std::vector<double> holds = reference::evaluate_plainly(*recording.graph, leaves, recording.graph->at(id));
    out.equality.of += std::ssize(holds);
    out.equality.held += std::count(holds.begin(), holds.end(), 1.0);
  }
  out.result = reference::evaluate_plainly(*recording.graph, leaves, recording.outputs.front().second);
  return out;
}

}  // namespace ampcheck::checks::diagnose
