// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include "checks/define/second_order.h"

#include <algorithm>

#include "kernels/device.h"
#include "kernels/second_order.h"
#include "reference/gelu.h"
#include "reference/gelu_tanh.h"
#include "reference/second_order.h"
#include "src/error.h"

namespace ampcheck::checks {

namespace {

using reference::Expr;
using reference::FormulaCall;

/// Inputs of the op and cotangents of its outputs; every name of a tensor that the backward reads.
std::vector<TensorSpec> inputs_of(const OpSignature& signature) {
  std::vector<TensorSpec> out = signature.inputs;
  for (const OutputSpec& output : signature.outputs)
    out.push_back({.name = gradient_name(output.name),
                   .dims = output.dims.empty() ? signature.inputs.front().dims : output.dims,
                   .type = output.type});
  return out;
}

/// The gradients that a form records, as its outputs.
void record_gradients(const OpSignature& signature, const reference::Form& form, FormulaCall& call) {
  form.formula(call);
  const auto outputs = std::move(call.outputs_);
  call.outputs_.clear();
  std::vector<Expr> values, cotangents, wrt;
  for (const auto& [name, node] : outputs) {
    values.push_back(node);
    cotangents.push_back(call[gradient_name(name)]);
  }
  std::vector<std::string> names;
  for (const TensorSpec& spec : signature.inputs)
    if (spec.has_gradient() && call.has(spec.name)) {
      wrt.push_back(call[spec.name]);
      names.push_back(gradient_as_output(spec.name));
    }
  const std::vector<Expr> gradients = call.graph().vjp(values, cotangents, wrt);
  for (std::size_t i = 0; i < names.size(); ++i) call.output(names[i], gradients[i]);
}

/// The backward, which writes its gradients under its own names.
kernels::KernelFn renamed(const kernels::KernelFn& backward, std::vector<std::string> inputs) {
  return [backward, inputs = std::move(inputs)](const kernels::KernelCall& call) {
    kernels::KernelCall own = call;
    for (auto& [name, view] : own.tensors)
      for (const std::string& input : inputs)
        if (name == gradient_as_output(input)) name = gradient_name(input);
    backward(own);
  };
}

/// Saved tensors of an op at the inputs of a call, computed by its forward.
class Forward {
 public:
  Forward(const OpDef& op, const kernels::KernelCall& call) {
    const OpSignature& s = op.signature;
    reference::CaseInputs inputs;
    Dtype storage = Dtype::fp32;
    kernels::KernelCall own = call;
    own.tensors.clear();
    for (const TensorSpec& spec : s.inputs) {
      const TensorView* const view = call.find(spec.name);
      if (view == nullptr) continue;
      own.tensors.emplace_back(spec.name, *view);
      if (spec.type == TypeRule::storage) storage = view->dtype;
      if (is_float(view->dtype)) {
        inputs.shapes[spec.name] = view->shape;
        continue;
      }
      if (call.device != Device::cpu)
        throw EnvironmentError("[" + s.name + "] saved tensors beside integer inputs, got the device cuda, want cpu");
      const std::vector<double> values = to_doubles(*view);
      inputs.integers[spec.name] = std::vector<std::int64_t>(values.begin(), values.end());
      inputs.integer_shapes[spec.name] = view->shape;
    }
    const reference::Recording recording = reference::record(s, op.forms.front(), *call.attributes, inputs);
    for (const OutputSpec& output : s.outputs)
      for (const auto& [name, node] : recording.outputs)
        if (name == output.name) {
          add(output, node.shape(), storage, call.device, own.tensors);
          if (output.to_backward) saved_.push_back(own.tensors.back());
        }
    for (const OutputSpec& saved : s.saved) {
      add(saved, recording.stored.at(saved.name).shape(), storage, call.device, own.tensors);
      saved_.push_back(own.tensors.back());
    }
    op.kernel.forward(own);
  }
  const std::vector<std::pair<std::string, TensorView>>& saved() const { return saved_; }

 private:
  using Named = std::vector<std::pair<std::string, TensorView>>;
  void add(const OutputSpec& spec, const Shape& shape, Dtype storage, Device device, Named& tensors) {
    const Dtype dtype = dtype_of(spec.type, storage);
    if (device == Device::cpu) {
      tensors.emplace_back(spec.name, host_.emplace_back(dtype, shape).view());
      return;
    }
    device_.push_back(kernels::allocate_on_device(static_cast<std::size_t>(shape.count() * bytes(dtype))));
    tensors.emplace_back(spec.name, TensorView{device_.back().get(), dtype, shape, row_major_strides(shape)});
  }
  std::vector<Tensor> host_;
  std::vector<std::shared_ptr<void>> device_;
  Named saved_;
};

}  // namespace

kernels::KernelFn with_saved(const OpDef& op, kernels::KernelFn kernel) {
  const auto& outputs = op.signature.outputs;
  if (op.signature.saved.empty() &&
      std::none_of(outputs.begin(), outputs.end(), [](const OutputSpec& output) { return output.to_backward; }))
    return kernel;
  return [op, kernel = std::move(kernel)](const kernels::KernelCall& call) {
    const Forward forward(op, call);
    kernels::KernelCall own = call;
    own.tensors.insert(own.tensors.end(), forward.saved().begin(), forward.saved().end());
    kernel(own);
  };
}

OpDef backward_as_op(const OpDef& op, kernels::KernelFn double_backward, std::vector<reference::Form> usual) {
  const OpSignature& s = op.signature;
  std::vector<std::string> differentiable;
  for (const TensorSpec& spec : s.inputs)
    if (spec.has_gradient()) differentiable.push_back(spec.name);
  const bool fp32 =
      std::all_of(s.saved.begin(), s.saved.end(), [](const OutputSpec& saved) { return saved.type == TypeRule::fp32; });
  const bool plain =
      !op.forms.empty() && fp32 && s.launch.accumulates.empty() && s.launch.in_place.empty() && !differentiable.empty();
  if (!plain)
    throw Error("[" + s.name +
                "] backward as an op, got one without a formula or gradients, with accumulating or in-place tensors, "
                "or saved ones that are not fp32, want inputs and gradients alone");
  OpDef out = op;
  out.signature.name = s.name + "_backward";
  out.signature.summary = "the backward of " + s.name;
  out.signature.inputs = inputs_of(s);
  for (TensorSpec& spec : out.signature.inputs)
    if (spec.has_gradient()) spec.optional = false;  // an output that is there at times is none
  out.signature.outputs.clear();
  out.signature.saved.clear();
  out.signature.launch.row_independent.clear();
  out.signature.forward_mode = false;
  out.signature.precision.cublas = false;
  const auto& by_row = s.launch.row_independent;
  for (const std::string& input : differentiable) {
    out.signature.outputs.push_back({.name = gradient_as_output(input), .type = s.input(input)->type});
    if (std::find(by_row.begin(), by_row.end(), gradient_name(input)) == by_row.end()) continue;
    for (const std::string& name : {gradient_as_output(input), gradient_name(input)})
      out.signature.launch.row_independent.push_back(name);
  }
  out.forms = std::move(usual);
  out.tried_first = 0;
  out.of_gradient = true;
  for (const reference::Form& form : op.forms)
    out.forms.push_back({form.name,
                         [signature = s, form](FormulaCall& call) { record_gradients(signature, form, call); },
                         form.one_pass});
  out.kernel = {renamed(with_saved(op, op.kernel.backward), differentiable),
                with_saved(op, std::move(double_backward))};
  return out;
}

namespace {

reference::Form norm_form(bool centred) {
  return {"P c, -r (n mean(c dx) + b P c + a dx)",
          [centred](FormulaCall& call) { reference::norm_backward(call, centred); }};
}

reference::Form silu_form() {
  return {"p (1 - p) (2 + x (1 - 2 p))", [](FormulaCall& call) {
            const Expr x = call["x"], p = sigmoid(x);
            reference::activation_backward(call, p * (1.0 + x * (1.0 - p)),
                                           p * (1.0 - p) * (2.0 + x * (1.0 - 2.0 * p)));
          }};
}

reference::Form gelu_form() {
  return {"2 pdf - x^2 pdf", [](FormulaCall& call) {
            const Expr x = call["x"], pdf = reference::detail::normal_density(x),
                       cdf = 0.5 * (1.0 + erf(x * named_constant(call.graph(), "1/sqrt(2)")));
            reference::activation_backward(call, cdf + x * pdf, 2.0 * pdf - x * (x * pdf));
          }};
}

reference::Form gelu_tanh_form() {
  return {"(1 - t^2) (u' + x u''/2 - x t u'^2)", [](FormulaCall& call) {
            const Expr x = call["x"], t = tanh(reference::detail::gelu_argument(x)),
                       cubic = constant(call.graph(), reference::detail::kGeluCubic);
            const Expr scale = constant(call.graph(), reference::detail::kGeluScale),
                       first = scale * (1.0 + 3.0 * cubic * square(x)), slope = 1.0 - square(t);
            reference::activation_backward(call, 0.5 * (1.0 + t) + 0.5 * x * slope * first,
                                           slope * (first + x * (3.0 * scale * cubic * x) - x * t * square(first)));
          }};
}

}  // namespace

std::span<const OpDef> second_order_ops() {
  static const std::vector<OpDef> kOps = {
      backward_as_op(*find_op("tanh"), kernels::tanh_double_backward),
      backward_as_op(*find_op("mul"), kernels::mul_double_backward),
      backward_as_op(*find_op("gelu"), kernels::gelu_double_backward, {gelu_form()}),
      backward_as_op(*find_op("gelu_tanh"), kernels::gelu_tanh_double_backward, {gelu_tanh_form()}),
      backward_as_op(*find_op("silu"), kernels::silu_double_backward, {silu_form()}),
      backward_as_op(*find_op("layer_norm"), kernels::layer_norm_double_backward, {norm_form(true)}),
      backward_as_op(*find_op("rms_norm"), kernels::rms_norm_double_backward, {norm_form(false)})};
  return kOps;
}

}  // namespace ampcheck::checks
