// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include "checks/zoo/backwards.h"

#include <algorithm>

#include "checks/define/second_order.h"
#include "kernels/second_order.h"

namespace ampcheck::checks {

namespace {

PlantedOp planted(std::string_view op, const char* variant, const char* what, kernels::KernelFn double_backward) {
  PlantedOp out{*find_op(op), what, Code::ac101};
  out.op.signature.name += "." + std::string(variant);
  out.op.signature.summary = what;
  out.op.kernel.backward = with_saved(*find_op(op.substr(0, op.rfind("_backward"))), std::move(double_backward));
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

/// The cotangent of dweight does not reach dx.
kernels::KernelFn dead_path(kernels::KernelFn whole) {
  return [whole = std::move(whole)](const kernels::KernelCall& call) {
    whole(call);
    kernels::KernelCall own = call;
    std::erase_if(own.tensors, [](const auto& entry) {
      return entry.first == "dgrad_weight" || entry.first == "dgrad_bias" || entry.first == "ddy" ||
             entry.first == "dweight" || entry.first == "dbias";
    });
    whole(own);
  };
}

/// The slope where its derivative is due.
kernels::KernelFn slope_for_derivative(kernels::KernelFn whole) {
  return [whole = std::move(whole)](const kernels::KernelCall& call) {
    whole(call);
    const std::vector<double> dy = to_doubles(call.at("dy"));
    std::vector<double> values = to_doubles(call.at("ddy"));
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = static_cast<double>(static_cast<float>(values[i] * dy[i]));
    from_doubles(values, call.at("dx"));
  };
}

}  // namespace

std::vector<PlantedOp> second_order_faults() {
  return {planted("tanh_backward", "without_two", "the double backward leaves out the factor 2 of the gradient by x",
                  tanh_without_two),
          planted("mul_backward", "one_term", "the double backward leaves out the term x dgrad_y of the gradient by dz",
                  mul_one_term),
          planted("gelu_backward", "slope", "the double backward takes the slope for its derivative",
                  slope_for_derivative(kernels::gelu_double_backward)),
          planted("gelu_tanh_backward", "slope", "the double backward takes the slope for its derivative",
                  slope_for_derivative(kernels::gelu_tanh_double_backward)),
          planted("silu_backward", "slope", "the double backward takes the slope for its derivative",
                  slope_for_derivative(kernels::silu_double_backward)),
          planted("layer_norm_backward", "dead_path", "the cotangent of dweight does not reach dx",
                  dead_path(kernels::layer_norm_double_backward)),
          planted("rms_norm_backward", "dead_path", "the cotangent of dweight does not reach dx",
                  dead_path(kernels::rms_norm_double_backward))};
}

}  // namespace ampcheck::checks
