// SPDX-License-Identifier: Apache-2.0
#include "checks/second_order.h"

#include <algorithm>

#include "kernels/second_order.h"
#include "src/error.h"

namespace ampcheck::checks {

namespace {

using reference::Expr;
using reference::FormulaCall;

std::string output_name(const std::string& input) { return "grad_" + input; }

/// Inputs of the op and cotangents of its outputs; every name of a tensor that the backward reads.
std::vector<TensorSpec> inputs_of(const OpSignature& signature) {
  std::vector<TensorSpec> out = signature.inputs;
  for (const OutputSpec& output : signature.outputs)
    out.push_back({.name = gradient_name(output.name), .dims = output.dims.empty() ? signature.inputs.front().dims : output.dims, .type = output.type});
  return out;
}

/// The gradients that a form records, as its outputs.
void record_gradients(const OpSignature& signature, const reference::Form& form, FormulaCall& call) {
  form.formula(call);
  const auto outputs = std::move(call.outputs_);
  call.outputs_.clear();
  std::vector<Expr> values, cotangents, wrt;
  for (const auto& [name, node] : outputs) values.push_back(node), cotangents.push_back(call[gradient_name(name)]);
  std::vector<std::string> names;
  for (const TensorSpec& spec : signature.inputs)
    if (spec.has_gradient() && call.has(spec.name)) wrt.push_back(call[spec.name]), names.push_back(output_name(spec.name));
  const std::vector<Expr> gradients = call.graph().vjp(values, cotangents, wrt);
  for (std::size_t i = 0; i < names.size(); ++i) call.output(names[i], gradients[i]);
}

/// The backward, which writes its gradients under its own names.
kernels::KernelFn renamed(const kernels::KernelFn& backward, std::vector<std::string> inputs) {
  return [backward, inputs = std::move(inputs)](const kernels::KernelCall& call) {
    kernels::KernelCall own = call;
    for (auto& [name, view] : own.tensors)
      for (const std::string& input : inputs)
        if (name == output_name(input)) name = gradient_name(input);
    backward(own);
  };
}

}  // namespace

OpDef backward_as_op(const OpDef& op, kernels::KernelFn double_backward) {
  const OpSignature& s = op.signature;
  std::vector<std::string> differentiable;
  for (const TensorSpec& spec : s.inputs)
    if (spec.has_gradient()) differentiable.push_back(spec.name);
  const bool plain = !op.forms.empty() && s.saved.empty() && s.launch.accumulates.empty() && s.launch.in_place.empty() && !differentiable.empty();
  if (!plain) throw Error("[" + s.name + "] backward as an op, got one without a formula or gradients, or with saved, accumulating or in-place tensors, want inputs and gradients alone");
  OpDef out = op;
  out.signature.name = s.name + "_backward";
  out.signature.summary = "the backward of " + s.name;
  out.signature.inputs = inputs_of(s);
  out.signature.outputs.clear(), out.signature.launch.row_independent.clear();
  out.signature.forward_mode = false;
  const auto& by_row = s.launch.row_independent;
  for (const std::string& input : differentiable) {
    out.signature.outputs.push_back({.name = output_name(input), .type = s.input(input)->type});
    if (std::find(by_row.begin(), by_row.end(), gradient_name(input)) == by_row.end()) continue;
    for (const std::string& name : {output_name(input), gradient_name(input)}) out.signature.launch.row_independent.push_back(name);
  }
  out.forms.clear();
  for (const reference::Form& form : op.forms)
    out.forms.push_back({form.name, [signature = s, form](FormulaCall& call) { record_gradients(signature, form, call); }, form.one_pass});
  out.kernel = {renamed(op.kernel.backward, differentiable), std::move(double_backward)};
  return out;
}

namespace {

PlantedOp planted(std::string_view op, const char* variant, const char* what, kernels::KernelFn double_backward) {
  PlantedOp out{*find_op(op), what, "AC101"};
  out.op.signature.name += "." + std::string(variant);
  out.op.signature.summary = what;
  out.op.kernel.backward = std::move(double_backward);
  return out;
}

/// As the gradient of 1 - t instead of 1 - t^2.
void tanh_without_two(const kernels::KernelCall& call) {
  kernels::tanh_double_backward(call);
  const TensorView* const dx = call.find("dx");
  if (dx == nullptr) return;
  std::vector<double> values = to_doubles(*dx);
  for (double& v : values) v /= 2;
  from_doubles(values, *dx);
}

/// The gradient by the cotangent, of dx alone.
void mul_one_term(const kernels::KernelCall& call) {
  kernels::mul_double_backward(call);
  const TensorView* const ddz = call.find("ddz");
  if (ddz == nullptr) return;
  const std::vector<double> y = to_doubles(call.at("y")), g = to_doubles(call.at("dgrad_x"));
  std::vector<double> values(y.size());
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<double>(static_cast<float>(y[i] * g[i]));
  from_doubles(values, *ddz);
}

}  // namespace

std::span<const OpDef> second_order_ops() {
  static const std::vector<OpDef> kOps = {backward_as_op(*find_op("tanh"), kernels::tanh_double_backward),
                                          backward_as_op(*find_op("mul"), kernels::mul_double_backward)};
  return kOps;
}

std::vector<PlantedOp> second_order_faults() {
  return {planted("tanh_backward", "without_two", "the double backward leaves out the factor 2 of the gradient by x", tanh_without_two),
          planted("mul_backward", "one_term", "the double backward leaves out the term x dgrad_y of the gradient by dz", mul_one_term)};
}

}  // namespace ampcheck::checks
