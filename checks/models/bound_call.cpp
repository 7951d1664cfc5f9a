// SPDX-License-Identifier: Apache-2.0
#include "checks/models/bound_call.h"

#include <algorithm>

#include "src/error.h"

namespace ampcheck::checks::models {

namespace {

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

[[noreturn]] void fail(const std::string& op, const std::string& input, const std::string& got,
                       const std::string& want) {
  throw Error("[tape] input '" + input + "' of " + op + ", got " + got + ", want " + want);
}

/// Binds the symbols of one input to the extents of its tensor.
void bind_dims(const std::string& op, const TensorSpec& spec, const Shape& shape, Dims& dims) {
  const std::vector<std::string> symbols = OpSignature::symbols(spec);
  if (std::ssize(symbols) != shape.rank) fail(op, spec.name, shape.str(), "[" + spec.dims + "]");
  for (int axis = 0; axis < shape.rank; ++axis) {
    const auto [known, fresh] = dims.try_emplace(symbols[at(axis)], shape[axis]);
    if (!fresh && known->second != shape[axis])
      fail(op, spec.name, shape.str(), known->first + "=" + std::to_string(known->second) + " as before");
  }
}

/// What a recording follows from, integer inputs aside.
std::string key_of(const OpCall& call) {
  std::string key = call.op;
  for (const auto& [symbol, extent] : call.dims) key += " " + symbol + "=" + std::to_string(extent);
  for (const auto& [name, value] : call.attributes.all())
    key +=
        " " + name + "=" +
        (std::holds_alternative<double>(value) ? number_text(std::get<double>(value)) : std::get<std::string>(value));
  for (const std::string& name : call.absent) key += " -" + name;
  return key;
}

bool is_integer(const TensorSpec& spec) { return !is_float(dtype_of(spec.type, Dtype::fp32)); }

/// Users' own, by name. Filled before any model runs.
std::map<std::string, const OpDef*>& own_ops() {
  static std::map<std::string, const OpDef*> ops;
  return ops;
}

}  // namespace

void use_op(const OpDef& op) {
  const std::string& name = op.signature.name;
  const auto want = [&](bool holds, const char* got, const char* wanted) {
    if (!holds)
      throw Error("[" + (op.plugin.empty() ? "tape" : op.plugin) + ": op '" + name + "'] got " + got + ", want " +
                  wanted);
  };
  want(op.kernel.backward != nullptr, "no backward", "an op that can be trained through");
  want(!op.forms.empty(), "no formula", "one, by which its shapes are known and fp64 runs");
  want(find_op(name) == nullptr, "the name of a built-in op", "another name");
  const auto [known, fresh] = own_ops().try_emplace(name, &op);
  want(fresh || known->second == &op, "the name of another op in use", "another name");
}

const OpDef& op_of_call(const std::string& name) {
  const auto own = own_ops().find(name);
  const OpDef* op = own != own_ops().end() ? own->second : find_op(name);
  if (op == nullptr)
    throw EnvironmentError("[tape] op '" + name + "', got a build without it, want every op of the real runs");
  return *op;
}

RecordedCall bind_call(const std::string& op_name, const std::vector<std::pair<std::string, Var>>& inputs,
                       const std::vector<std::pair<std::string, double>>& attributes,
                       const std::function<Shape(Var)>& shape) {
  const OpSignature& signature = op_of_call(op_name).signature;
  RecordedCall recorded;
  recorded.call = default_call(signature, Dtype::fp32);
  for (const auto& [name, value] : attributes) recorded.call.attributes.set(name, value);
  recorded.call.dims.clear();
  for (const TensorSpec& spec : signature.inputs) {
    const auto given =
        std::find_if(inputs.begin(), inputs.end(), [&](const auto& input) { return input.first == spec.name; });
    if (given == inputs.end()) {
      if (!spec.optional) fail(op_name, spec.name, "nothing", "[" + spec.dims + "]");
      recorded.call.absent.push_back(spec.name);
      continue;
    }
    bind_dims(op_name, spec, shape(given->second), recorded.call.dims);
    recorded.inputs.emplace_back(spec.name, given->second.id);
  }
  if (recorded.inputs.size() != inputs.size())
    throw Error("[tape] inputs of " + op_name + ", got a name that it does not have");
  return recorded;
}

namespace {

using ValuesOf = std::function<std::vector<double>(const std::string&)>;

/// `by_values`: whether it follows from values of integers, and so holds for this call alone.
reference::Recording recorded(const OpDef& op, const OpCall& call, const ValuesOf& values, bool& by_values) {
  reference::CaseInputs inputs;
  for (const TensorSpec& spec : op.signature.inputs) {
    if (!call.has(spec)) continue;
    if (!is_integer(spec)) {
      inputs.shapes[spec.name] = call.shape(spec);
      continue;
    }
    const std::vector<double> given = values(spec.name);
    inputs.integers[spec.name] = std::vector<std::int64_t>(given.begin(), given.end());
    by_values = true;
  }
  return reference::record(op.signature, op.forms.front(), call.attributes, inputs);
}

}  // namespace

std::shared_ptr<const reference::Recording> Recordings::of(const OpDef& op, const OpCall& call,
                                                           const ValuesOf& values) {
  const std::string key = key_of(call);
  if (const auto known = recordings_.find(key); known != recordings_.end()) return known->second;
  bool by_values = false;
  auto recording = std::make_shared<const reference::Recording>(recorded(op, call, values, by_values));
  if (!by_values) recordings_[key] = recording;
  return recording;
}

std::shared_ptr<const SecondOrder> Recordings::second_order(const OpDef& op, const OpCall& call,
                                                            const ValuesOf& values) {
  const std::string key = key_of(call);
  if (const auto known = second_.find(key); known != second_.end()) return known->second;
  bool by_values = false;
  auto out = std::make_shared<SecondOrder>();
  out->first = recorded(op, call, values, by_values);
  reference::Graph& graph = *out->first.graph;
  std::vector<std::string> names;
  std::vector<reference::Expr> wrt, cotangents;
  for (const auto& [name, node] : out->first.inputs) {
    out->leaves[name] = node;
    if (op.signature.input(name)->has_gradient()) {
      names.push_back(gradient_name(name));
      wrt.push_back(node);
    }
  }
  for (const auto& [name, node] : out->first.cotangents) {
    out->leaves[name] = node;
    names.push_back(gradient_name(name));
    wrt.push_back(node);
  }
  for (const auto& [name, node] : out->first.gradients) {
    const Shape shape = node.shape();
    const std::string leaf = "dgrad_" + name.substr(1);
    cotangents.push_back(out->leaves[leaf] = graph.input(leaf, shape));
  }
  const std::vector<reference::Expr> gradients = graph.vjp(out->first.gradient_nodes(), cotangents, wrt);
  for (std::size_t i = 0; i < names.size(); ++i) out->gradients[names[i]] = gradients[i];
  if (!by_values) second_[key] = out;
  return out;
}

const Shape& Recordings::shape(const OpDef& op, const OpCall& call, const std::string& tensor,
                               const std::function<std::vector<double>(const std::string&)>& values) {
  std::map<std::string, Shape>& known = shapes_[key_of(call)];
  if (known.empty()) {
    const auto recording = of(op, call, values);
    for (const auto& [name, node] : recording->outputs) known[name] = node.shape();
    for (const auto& [name, node] : recording->stored) known[name] = node.shape();
  }
  const auto found = known.find(tensor);
  if (found == known.end())
    throw Error("[tape] tensor of " + call.op + ", got '" + tensor + "', want an output or what its formula stores");
  return found->second;
}

}  // namespace ampcheck::checks::models
