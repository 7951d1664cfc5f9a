// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include "checks/audit/gates.h"

#include <algorithm>

#include "checks/case/case_run.h"
#include "src/rounding.h"

namespace ampcheck::checks::zoo {

namespace {

constexpr Gate kGates[] = {
    {"torch allclose", "torch.testing's default rtol and atol of the type: 1.3e-6 and 1e-5, fp16 1e-3, bf16 1.6e-2"},
    {"KernelBench", "allclose with rtol = atol = 1e-2"},
    {"FlashAttention", "largest error at most twice that of the eager kernel"},
    {"NMSE", "sum of squared errors at most 5e-4 of the sum of squares (ggml)"},
    {"cosine", "cosine of the angle to the reference at least 0.999"},
};

/// Elements that no interval judges are left out; the reference is rounded to the storage type. It stands for the eager
/// kernel where the op has none of this type.
Compared compared(const std::vector<double>& got, const std::vector<double>& eager, const Interval& interval) {
  Compared out{interval.dtype, {}, {}, {}};
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (unjudged(interval, i)) continue;
    out.got.push_back(got[i]);
    if (!eager.empty()) out.eager.push_back(eager[i]);
    out.want.push_back(interval.value[i]);
  }
  if (interval.dtype != Dtype::fp64) round_values(format(interval.dtype), RoundingMode{}, out.want, out.want);
  if (eager.empty()) out.eager = out.want;
  return out;
}

}  // namespace

std::span<const Gate> usual_gates() { return kGates; }

bool rejects(std::size_t gate, const Compared& tensor) {
  using Kind = GateRule::Kind;
  switch (gate) {
    case 0: return !accepts(torch_default(tensor.dtype), tensor);
    case 1: return !accepts({Kind::close, 1e-2, 1e-2, 0}, tensor);
    case 2: return !accepts({Kind::factor, 0, 0, 2}, tensor);
    case 3: return !accepts({Kind::nmse, 0, 0, 5e-4}, tensor);
    case 4: return !accepts({Kind::cosine, 0, 0, 0.999}, tensor);
    default: throw Error("[audit] no gate " + std::to_string(gate));
  }
}

std::vector<char> rejected_by_gates(const OpDef& op, const OpDef& built_in, const OpCall& call) {
  std::vector<char> out(usual_gates().size(), 0);
  const RunOptions options;
  CaseRun run(op, call, options);
  const std::vector<Dtype>& types = built_in.signature.precision.storage;
  const bool has_eager = std::ranges::find(types, call.storage) != types.end();
  const auto judge_tensor = [&](Pass pass, const Written& tensor, const LaunchResult& got, const LaunchResult& eager) {
    const std::vector<double> held =
        pass != Pass::forward && run.accumulates(tensor.name) ? run.held(tensor) : std::vector<double>();
    const Interval interval = run.reference.interval(0, pass, tensor.name, tensor.dtype, held);
    const auto values = [&](const LaunchResult& of) { return to_doubles(of.written.at(tensor.name).view()); };
    const Compared numbers = compared(values(got), has_eager ? values(eager) : std::vector<double>(), interval);
    for (std::size_t gate = 0; gate < out.size(); ++gate) out[gate] = out[gate] || rejects(gate, numbers);
  };
  try {
    const LaunchTensors tensors = run.forward_tensors(run.reference.inputs(), 0);
    const LaunchResult forward = launch(op.kernel.forward, tensors, call.attributes, Device::cpu);
    const OpDef& other = has_eager ? built_in : op;
    const LaunchResult eager = launch(other.kernel.forward, tensors, call.attributes, Device::cpu);
    for (const Written& output : run.outputs)
      if (!output.saved) judge_tensor(Pass::forward, output, forward, eager);
    const NamedValues cotangents = run.cotangents(0);
    const LaunchTensors own = run.backward_tensors(run.reference.inputs(), forward, cotangents, 0);
    const LaunchTensors others = run.backward_tensors(run.reference.inputs(), eager, cotangents, 0);
    const LaunchResult backward = launch(op.kernel.backward, own, call.attributes, Device::cpu);
    const LaunchResult eager_backward = launch(other.kernel.backward, others, call.attributes, Device::cpu);
    for (const Written& gradient : run.gradients) judge_tensor(Pass::backward, gradient, backward, eager_backward);
  } catch (const std::exception&) {  // every test sees a kernel that throws
    out.assign(out.size(), 1);
  }
  return out;
}

}  // namespace ampcheck::checks::zoo
