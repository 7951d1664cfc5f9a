// SPDX-License-Identifier: Apache-2.0
#include "checks/train/double_backward.h"

#include <string>
#include <string_view>

#include "checks/models/bound_call.h"
#include "checks/train/graph_entry.h"
#include "kernels/second_order.h"
#include "src/error.h"

namespace ampcheck::checks::train {

namespace {

using kernels::KernelCall;
using Tensors = std::vector<std::pair<std::string, TensorView>>;

KernelCall call_of(const KernelCall& like, Tensors tensors) {
  return {.tensors = std::move(tensors),
          .attributes = like.attributes,
          .device = like.device,
          .stream = like.stream,
          .cancel = like.cancel};
}
Tensor like(const TensorView& x) { return {x.dtype, x.shape}; }

void rounded_into(const TensorView& to, const Tensor& from) { from_doubles(to_doubles(from.view()), to); }

/// Another op, whose attributes are its defaults.
void forward_of(const char* op, const Tensors& tensors) {
  const OpDef& other = models::op_of_call(op);
  const OpCall plain = default_call(other.signature, Dtype::fp32);
  other.kernel.forward({.tensors = tensors, .attributes = &plain.attributes});
}

TensorView reshaped(TensorView x, const Shape& shape) {
  x.shape = shape;
  x.strides = row_major_strides(shape);
  return x;
}

/// The inner product of each row of a and b [rows, columns], by the kernels of mul and sum.
void row_products(const TensorView& a, const TensorView& b, std::int64_t rows, const TensorView& out) {
  const Shape flat{rows, rows > 0 ? a.count() / rows : 0};
  Tensor products(a.dtype, flat);
  forward_of("mul", {{"x", reshaped(a, flat)}, {"y", reshaped(b, flat)}, {"z", products.view()}});
  forward_of("sum", {{"x", products.view()}, {"y", reshaped(out, {rows, 1})}});
}

/// Of linear and conv2d, which are linear in x and in W alike. dx = dy W, dW = dy^T x, db = sum dy: ddy = gx W^T + x
/// gW^T + gb, dx = dy gW, dW = dy^T gx.
void linear(const OpDef& op, const KernelCall& call) {
  const TensorView &x = call.at("x"), &weight = call.at("weight"), &dy = call.at("dy");
  const TensorView *gx = call.find("dgrad_x"), *gw = call.find("dgrad_weight"), *gb = call.find("dgrad_bias");
  if (const TensorView* ddy = call.find("ddy")) {
    Tensor sum(Dtype::fp32, ddy->shape);  // rounded to storage once
    if (gx != nullptr) op.kernel.forward(call_of(call, {{"x", *gx}, {"weight", weight}, {"y", sum.view()}}));
    if (gw != nullptr || gb != nullptr) {
      const Tensor none = like(weight), more(Dtype::fp32, ddy->shape);
      Tensors tensors = {{"x", x}, {"weight", gw != nullptr ? *gw : none.view()}, {"y", more.view()}};
      if (gb != nullptr) tensors.emplace_back("bias", *gb);
      op.kernel.forward(call_of(call, tensors));
      add_to(sum.view(), more.view());
    }
    rounded_into(*ddy, sum);
  }
  const TensorView *dx = call.find("dx"), *dw = call.find("dweight");
  if (dx != nullptr && gw != nullptr)
    op.kernel.backward(call_of(call, {{"x", x}, {"weight", *gw}, {"dy", dy}, {"dx", *dx}}));
  if (dw != nullptr && gx != nullptr)
    op.kernel.backward(call_of(call, {{"x", *gx}, {"weight", weight}, {"dy", dy}, {"dweight", *dw}}));
}

/// dx = dy [x > 0]: the same for gx.
void relu(const OpDef& op, const KernelCall& call) {
  if (const TensorView* ddy = call.find("ddy"))
    op.kernel.backward(call_of(call, {{"x", call.at("x")}, {"dy", call.at("dgrad_x")}, {"dx", *ddy}}));
}

/// A kernel of kernels/second_order.h, as it is.
template <void (*kernel)(const KernelCall&)>
void by_kernel(const OpDef&, const KernelCall& call) {
  kernel(call);
}

/// A kernel that reads the cotangents of both inputs: zeros for one that nothing depends on.
void with_both(const KernelCall& call, const char* first, const char* second, const char* like_this,
               void (*kernel)(const KernelCall&)) {
  KernelCall all = call;
  const Tensor none = like(call.at(like_this));
  for (const char* name : {first, second})
    if (call.find(name) == nullptr) all.tensors.emplace_back(name, none.view());
  kernel(all);
}

void mul(const OpDef&, const KernelCall& call) {
  with_both(call, "dgrad_x", "dgrad_y", "x", kernels::mul_double_backward);
}
void div(const OpDef&, const KernelCall& call) {
  with_both(call, "dgrad_x", "dgrad_y", "x", kernels::div_double_backward);
}
void swiglu(const OpDef&, const KernelCall& call) {
  with_both(call, "dgrad_gate", "dgrad_up", "gate", kernels::swiglu_double_backward);
}

/// dx = dy = dz.
void add(const OpDef&, const KernelCall& call) {
  const TensorView* ddz = call.find("ddz");
  if (ddz == nullptr) return;
  for (const char* name : {"dgrad_x", "dgrad_y"})
    if (const TensorView* g = call.find(name)) add_to(*ddz, *g);
}

/// y is linear in x (sums or means of rows, running sums): ddy is the op of gx.
void of_cotangent(const OpDef& op, const KernelCall& call) {
  if (const TensorView* ddy = call.find("ddy"))
    op.kernel.forward(call_of(call, {{"x", call.at("dgrad_x")}, {"y", *ddy}}));
}

/// y = rows of the weight, whose backward adds rows of dy to it: ddy is the op of gweight.
void embedding(const OpDef& op, const KernelCall& call) {
  const TensorView* ddy = call.find("ddy");
  if (ddy == nullptr) return;
  KernelCall rows = call_of(call, {{"y", *ddy}});
  for (const auto& [name, view] : call.tensors)
    if (!is_float(view.dtype)) rows.tensors.emplace_back(name, view);
  rows.tensors.emplace_back("weight", call.at("dgrad_weight"));
  op.kernel.forward(rows);
}

/// dx = dloss (2/n) (x - target) is linear in x - target: of gx alone (the targets are not trained) dx is the backward
/// at x = gx, target = 0, ddloss the product of gx and the gradient at dloss = 1.
void mse_loss(const OpDef& op, const KernelCall& call) {
  const TensorView &x = call.at("x"), &dloss = call.at("dloss");
  const TensorView* gx = call.find("dgrad_x");
  if (gx == nullptr || call.find("dgrad_target") != nullptr || call.find("dtarget") != nullptr)
    throw Error("[grad] mse_loss, got a target with a gradient, want data: its double backward is that of x");
  const Tensor zero = like(x);
  if (const TensorView* dx = call.find("dx"))
    op.kernel.backward(call_of(call, {{"x", *gx}, {"target", zero.view()}, {"dloss", dloss}, {"dx", *dx}}));
  if (const TensorView* dd = call.find("ddloss")) {
    const Tensor one = like(dloss), unit = like(x);
    from_doubles(std::vector<double>(1, 1.0), one.view());
    op.kernel.backward(
        call_of(call, {{"x", x}, {"target", call.at("target")}, {"dloss", one.view()}, {"dx", unit.view()}}));
    row_products(*gx, unit.view(), 1, *dd);
  }
}

/// dx = dloss (p - q) row by row, p = softmax(x): dx is softmax's backward of dloss gx, ddloss the product of gx and p
/// - q; a row that is left out has a gradient of exact zeros, and keeps it.
void cross_entropy(const OpDef& op, const KernelCall& call) {
  const TensorView &x = call.at("x"), &target = call.at("target"), &dloss = call.at("dloss"), &gx = call.at("dgrad_x");
  const std::int64_t rows = x.shape[0], columns = x.shape[1];
  if (const TensorView* dx = call.find("dx")) {
    const std::vector<double> g = to_doubles(dloss), classes = to_doubles(target);
    std::vector<double> by_row(static_cast<std::size_t>(rows * columns));
    for (std::size_t i = 0; i < by_row.size(); ++i) {
      const std::size_t row = i / static_cast<std::size_t>(columns);
      by_row[i] = classes[row] == call.number("ignore_index") ? 0 : g[row];
    }
    const Tensor factor = like(x), product = like(x);
    from_doubles(by_row, factor.view());
    forward_of("mul", {{"x", gx}, {"y", factor.view()}, {"z", product.view()}});
    const OpDef& softmax = models::op_of_call("softmax");
    softmax.kernel.backward(call_of(call, {{"x", x}, {"dy", product.view()}, {"dx", *dx}}));
  }
  if (const TensorView* dd = call.find("ddloss")) {
    const Tensor ones = like(dloss), unit = like(x);
    from_doubles(std::vector<double>(static_cast<std::size_t>(rows), 1.0), ones.view());
    op.kernel.backward(call_of(call, {{"x", x}, {"target", target}, {"dloss", ones.view()}, {"dx", unit.view()}}));
    row_products(gx, unit.view(), rows, *dd);
  }
}

struct Known {
  std::string_view op;
  void (*run)(const OpDef&, const KernelCall&);
};
constexpr Known kKnown[] = {{"add", add},
                            {"attention", by_kernel<kernels::attention_double_backward>},
                            {"conv2d", linear},
                            {"cross_entropy", cross_entropy},
                            {"cumsum", of_cotangent},
                            {"div", div},
                            {"embedding", embedding},
                            {"exp", by_kernel<kernels::exp_double_backward>},
                            {"gelu", by_kernel<kernels::gelu_double_backward>},
                            {"gelu_tanh", by_kernel<kernels::gelu_tanh_double_backward>},
                            {"layer_norm", by_kernel<kernels::layer_norm_double_backward>},
                            {"linear", linear},
                            {"log", by_kernel<kernels::log_double_backward>},
                            {"log_softmax", by_kernel<kernels::log_softmax_double_backward>},
                            {"max_pool2d", by_kernel<kernels::max_pool2d_double_backward>},
                            {"mean", of_cotangent},
                            {"mse_loss", mse_loss},
                            {"mul", mul},
                            {"pow", by_kernel<kernels::pow_double_backward>},
                            {"relu", relu},
                            {"rms_norm", by_kernel<kernels::rms_norm_double_backward>},
                            {"sigmoid", by_kernel<kernels::sigmoid_double_backward>},
                            {"silu", by_kernel<kernels::silu_double_backward>},
                            {"softmax", by_kernel<kernels::softmax_double_backward>},
                            {"sum", of_cotangent},
                            {"swiglu", swiglu},
                            {"tanh", by_kernel<kernels::tanh_double_backward>}};

}  // namespace

void double_backward(const OpDef& op, const KernelCall& call) {
  std::string names;
  for (const Known& known : kKnown) {
    if (known.op == op.signature.name) return known.run(op, call);
    names += (names.empty() ? "" : ", ") + std::string(known.op);
  }
  throw Error("[grad] op " + op.signature.name + " has no double backward, known: " + names);
}

}  // namespace ampcheck::checks::train
