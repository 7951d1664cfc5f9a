// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include "checks/judge/overwriting_twin.h"

#include <algorithm>

#include "checks/case/options.h"
#include "checks/explain/further_causes.h"
#include "checks/explain/notes.h"
#include "checks/judge/judge.h"
#include "src/tensor.h"

namespace ampcheck::checks {

namespace {

/// The op as one that overwrites: its buffers are zeroed before each backward, which adds to them.
OpDef overwriting(const OpDef& op) {
  OpDef out = op;
  out.signature.launch.accumulates.clear();
  out.kernel.backward = [names = op.signature.launch.accumulates,
                         adds = op.kernel.backward](const kernels::KernelCall& call) {
    for (const std::string& name : names)
      if (const TensorView* const buffer = call.find(name))
        from_doubles(std::vector<double>(static_cast<std::size_t>(buffer->shape.count()), 0.0), *buffer);
    adds(call);
  };
  return out;
}

}  // namespace

CheckResult judged_on_zeros(const WrongTensor& wrong) {
  if (wrong.run.options.device != Device::cpu || wrong.pass == Pass::forward || wrong.pass == Pass::jvp) return {};
  RunOptions options = wrong.run.options;
  options.relations = false;
  options.power = false;
  const OpDef op = overwriting(wrong.run.op);
  try {
    CaseRun there(op, wrong.run.call, options);
    const NamedValues& inputs = there.reference.inputs();
    const LaunchResult forward = there.run_forward(there.forward_tensors(inputs, 0));
    const NamedValues cotangents = wrong.run.reference.cotangents();
    there.reference.set_cotangents(cotangents);
    const LaunchResult backward = there.run_backward(there.backward_tensors(inputs, forward, cotangents, 0));
    const auto gradient =
        std::ranges::find(there.gradients, wrong.tensor.name, [](const Written& w) { return w.name; });
    if (gradient == there.gradients.end()) return {};
    const std::vector<Subject> subjects{{{.kind = CheckId::Kind::backward, .tensor = gradient->name},
                                         &*gradient,
                                         backward.written.at(gradient->name).view()}};
    Notes notes;
    std::vector<CheckResult> checks = judge(there, subjects, Pass::backward, notes);
    explain_further(there, subjects, Pass::backward, notes, checks);
    return checks.front();
  } catch (const std::bad_alloc&) {  // not theirs
    throw;
  } catch (const std::exception&) {  // it does not run so: the verdict stands without
    return {};
  }
}

}  // namespace ampcheck::checks
