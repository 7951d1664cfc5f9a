// SPDX-License-Identifier: Apache-2.0
// The linear kernel against Eigen's float product, and the reference's balls against Eigen's bare double products.
#include <Eigen/Core>
#include <vector>

#include "checks/case/case_reference.h"
#include "checks/data/regimes.h"
#include "src/rounding.h"
#include "tests/bench/figures.h"

namespace ampcheck::bench {

namespace {

using FloatMatrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using DoubleMatrix = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

void kernel_against_eigen(benchmark::State& state, Dtype dtype) {
  constexpr Eigen::Index n = 1024;
  const checks::OpDef& op = *checks::find_op("linear");
  const FloatMatrix x = FloatMatrix::Random(n, n), w = FloatMatrix::Random(n, n);
  FloatMatrix y(n, n);
  const Tensor kx(dtype, {n, n}), kw(dtype, {n, n}), ky(dtype, {n, n});
  encode(format(dtype), {}, std::span<const float>(x.data(), n * n), kx.data());
  encode(format(dtype), {}, std::span<const float>(w.data(), n * n), kw.data());
  const Attributes attributes;
  kernels::KernelCall call;
  call.attributes = &attributes;
  call.tensors = {{"x", kx.view()}, {"weight", kw.view()}, {"y", ky.view()}};
  const Pair best = interleaved(
      state, 1,
      [&] {
        y.noalias() = x * w.transpose();
        benchmark::ClobberMemory();
      },
      [&] {
        op.kernel.forward(call);
        benchmark::ClobberMemory();
      });
  const double speed = best.baseline / best.subject;
  state.counters["ratio"] = speed;
  record_figure(std::string("speed of linear ") + name(dtype) + " 1024^3 / Eigen float product", Goal::at_least, 0.8,
                speed, "x");
}

void reference_against_eigen(benchmark::State& state) {
  constexpr Eigen::Index n = 4096, batch = 128;
  const checks::OpDef& op = *checks::find_op("linear");
  const OpCall call = parse_call("linear(x=bf16[128,4096],weight=bf16[4096,4096],bias=none)", op.signature);
  checks::NamedValues inputs, cotangents;
  for (const TensorSpec& spec : op.signature.inputs)
    if (call.has(spec)) inputs[spec.name] = checks::input_values(op.signature, call, spec);
  cotangents["dy"] = checks::cotangent_values(call, "y", Shape{batch, n}, Dtype::bf16, 1);
  const Eigen::Map<const DoubleMatrix> x(inputs["x"].data(), batch, n), w(inputs["weight"].data(), n, n),
      dy(cotangents["dy"].data(), batch, n);
  DoubleMatrix y(batch, n), dx(batch, n), dw(n, n);
  const reference::Recording recording = reference::record(op.signature, op.forms.front(), call.attributes,
                                                           checks::case_inputs(op.signature, call, inputs));
  std::vector<reference::Expr> targets = recording.output_nodes();
  for (const reference::Expr& node : recording.gradient_nodes()) targets.push_back(node);
  const Pair best = interleaved(
      state, 1,
      [&] {
        y.noalias() = x * w.transpose();
        dx.noalias() = dy * w;
        dw.noalias() = dy.transpose() * x;
        benchmark::ClobberMemory();
      },
      [&] {
        reference::BallEvaluator balls(*recording.graph, checks::arithmetic_of(op.signature, call), targets);
        for (const auto& [name, node] : recording.inputs) balls.set(node, inputs.at(name));
        for (const auto& [name, node] : recording.cotangents) balls.set(node, cotangents.at(name));
        balls.run(targets);
        benchmark::DoNotOptimize(balls.result(targets.back()).v.get());
      });
  const double ratio = best.subject / best.baseline;
  state.counters["ratio"] = ratio;
  record_figure("reference of linear 4096x4096, batch 128, with radii / Eigen's three products", Goal::at_most, 4,
                ratio, "x");
}

const bool registered = [] {
  for (const Dtype dtype : {Dtype::fp32, Dtype::bf16})
    add_figure(std::string("linear/kernel/") + name(dtype), 7,
               [dtype](benchmark::State& state) { kernel_against_eigen(state, dtype); });
  add_figure("linear/reference", 2, reference_against_eigen);
  return true;
}();

}  // namespace

}  // namespace ampcheck::bench
