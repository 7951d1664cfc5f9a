// SPDX-License-Identifier: Apache-2.0
// The double backward of each op alone, against the interval of its formula differentiated twice.
#include <gtest/gtest.h>

#include <cmath>

#include "checks/case/case_reference.h"
#include "checks/models/bound_call.h"
#include "checks/train/double_backward.h"
#include "src/random.h"

namespace ampcheck::checks::train {
namespace {

std::vector<double> normals(const char* name, std::size_t n, std::uint64_t batch) {
  std::vector<double> out(n);
  Random(5, name).normals(batch * 1000, out);
  return out;
}

/// One op's double backward at normal data, against the interval of its own formula differentiated twice. `fault`: the
/// tensor to spoil.
struct SecondCase {
  const char* op;
  Dims dims;
  std::vector<std::pair<std::string, double>> attributes;
};
const SecondCase kSecondCases[] = {
    {"gelu", {{"N", 9}, {"D", 13}}, {}},
    {"gelu_tanh", {{"N", 9}, {"D", 13}}, {}},
    {"silu", {{"N", 9}, {"D", 13}}, {}},
    {"sigmoid", {{"N", 9}, {"D", 13}}, {}},
    {"exp", {{"N", 9}, {"D", 13}}, {}},
    {"log", {{"N", 9}, {"D", 13}}, {}},
    {"cumsum", {{"N", 9}, {"D", 13}}, {}},
    {"pow", {{"N", 9}, {"D", 13}}, {}},
    {"pow", {{"N", 9}, {"D", 13}}, {{"exponent", 3}}},
    {"pow", {{"N", 9}, {"D", 13}}, {{"exponent", -1}}},
    {"swiglu", {{"N", 9}, {"D", 13}}, {}},
    {"div", {{"N", 9}, {"D", 13}}, {}},
    {"softmax", {{"N", 9}, {"D", 13}}, {}},
    {"log_softmax", {{"N", 9}, {"D", 13}}, {}},
    {"layer_norm", {{"N", 9}, {"D", 13}}, {}},
    {"rms_norm", {{"N", 9}, {"D", 13}}, {}},
    {"linear", {{"N", 9}, {"K", 13}, {"M", 5}}, {}},
    {"conv2d", {{"N", 2}, {"C", 3}, {"H", 6}, {"W", 5}, {"O", 4}, {"R", 3}, {"S", 2}}, {{"padding", 1}}},
    {"conv2d", {{"N", 2}, {"C", 3}, {"H", 6}, {"W", 7}, {"O", 4}, {"R", 2}, {"S", 3}}, {{"stride", 2}}},
    {"max_pool2d", {{"N", 2}, {"C", 3}, {"H", 6}, {"W", 7}}, {}},
    {"max_pool2d", {{"N", 2}, {"C", 2}, {"H", 7}, {"W", 6}}, {{"kernel", 3}, {"stride", 2}, {"padding", 1}}},
    {"attention", {{"B", 2}, {"H", 2}, {"T", 6}, {"E", 5}}, {{"causal", 0}}},
    {"attention", {{"B", 1}, {"H", 2}, {"T", 7}, {"E", 5}}, {{"causal", 1}}}};

/// Elements outside of their intervals by tensor; with `fault` that output is shrunk by a hundredth.
std::map<std::string, std::size_t> outside_of(const SecondCase& c, Dtype dtype, const std::string& fault = "") {
  const OpDef& op = *find_op(c.op);
  OpCall call = default_call(op.signature, dtype);
  call.dims = c.dims;
  for (const auto& [name, value] : c.attributes) call.attributes.set(name, value);
  models::Recordings recordings;
  const auto second = recordings.second_order(op, call, {});
  std::vector<std::pair<std::string, Tensor>> tensors, written;
  kernels::KernelCall forward{.tensors = {}, .attributes = &call.attributes};
  const auto put = [&](std::vector<std::pair<std::string, Tensor>>& to, const std::string& name, Dtype type,
                       const Shape& shape, bool filled) -> const Tensor& {
    to.emplace_back(name, Tensor(type, shape));
    std::vector<double> values = normals(name.c_str(), static_cast<std::size_t>(shape.count()), 3);
    for (double& v : values)
      if (std::string_view(c.op) == "log") v = std::fabs(v) + 0.125;
    if (filled) from_doubles(values, to.back().second.view());
    return to.back().second;
  };
  for (const TensorSpec& spec : op.signature.inputs)
    forward.tensors.emplace_back(spec.name, put(tensors, spec.name, call.dtype(spec), call.shape(spec), true).view());
  const OutputSpec& output = op.signature.outputs.front();
  const Shape& out_shape = recordings.shape(op, call, output.name, {});
  const Tensor y(dtype, out_shape);
  forward.tensors.emplace_back(output.name, y.view());
  for (const OutputSpec& spec : op.signature.saved)
    forward.tensors.emplace_back(
        spec.name,
        put(tensors, spec.name, dtype_of(spec.type, dtype), recordings.shape(op, call, spec.name, {}), false).view());
  op.kernel.forward(forward);
  const std::string dy = gradient_name(output.name);
  put(tensors, dy, dtype, out_shape, true);
  for (const TensorSpec& spec : op.signature.inputs) {
    put(tensors, "dgrad_" + spec.name, call.dtype(spec), call.shape(spec), true);
    put(written, gradient_name(spec.name), call.dtype(spec), call.shape(spec), false);
  }
  put(written, gradient_name(dy), dtype, out_shape, false);
  kernels::KernelCall kernel{.tensors = {}, .attributes = &call.attributes};
  std::vector<reference::Expr> targets;
  for (const auto& [name, node] : second->gradients) targets.push_back(node);
  reference::BallEvaluator balls(*second->first.graph, arithmetic_of(op.signature, call), targets);
  for (const auto& [name, tensor] : tensors) {
    kernel.tensors.emplace_back(name, tensor.view());
    if (const auto leaf = second->leaves.find(name); leaf != second->leaves.end())
      balls.set(leaf->second, to_doubles(tensor.view()));
  }
  for (const auto& [name, tensor] : written) kernel.tensors.emplace_back(name, tensor.view());
  double_backward(op, kernel);
  balls.run(targets);
  std::map<std::string, std::size_t> out;
  for (const auto& [name, tensor] : written) {
    std::vector<double> got = to_doubles(tensor.view());
    if (name == fault)
      for (double& v : got) v *= 0.99;
    const Comparison comparison =
        compare(got, interval_of(balls.result(second->gradients.at(name)), tensor.dtype(), "", true));
    EXPECT_EQ(comparison.compared, std::ssize(got)) << c.op << " " << name;
    out[name] = comparison.outside.size();
  }
  return out;
}

TEST(DoubleBackward, EachLiesInTheIntervalsOfItsFormulaDifferentiatedTwice) {
  for (const SecondCase& c : kSecondCases)
    for (const Dtype dtype : {Dtype::fp32, Dtype::fp16, Dtype::bf16})
      for (const auto& [name, count] : outside_of(c, dtype)) {
        EXPECT_EQ(count, 0u) << c.op << " " << name << " in " << ampcheck::name(dtype);
        if (dtype == Dtype::fp32) {
          const bool zero = name == "dbias" || (std::string_view(c.op) == "cumsum" && name == "dx") ||
                            (std::string_view(c.op) == "max_pool2d" && name == "dx");
          EXPECT_EQ(outside_of(c, dtype, name).at(name) > 0, !zero)
              << c.op << " " << name << ": one per cent is seen, of what is not zero";
        }
      }
}

}  // namespace
}  // namespace ampcheck::checks::train
