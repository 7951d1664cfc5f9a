// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
// Forward mode: a kernel's J u against the formula's.
#include "checks/judge/forward_mode.h"
#include "checks/data/regimes.h"
#include "checks/judge/judge.h"

namespace ampcheck::checks {

namespace {

/// Tangents of the inputs as the case's cotangents are drawn, at the probe whose mantissas are full.
NamedValues tangents_of(const CaseRun& run) {
  NamedValues out;
  for (const TensorSpec& spec : run.op.signature.inputs)
    if (run.call.has(spec) && spec.has_gradient())
      out[tangent_name(spec.name)] = cotangent_values(run.call, tangent_name(spec.name), run.call.shape(spec),
                                                      run.call.dtype(spec), relations_probe(run.call));
  return out;
}

}  // namespace

LaunchTensors jvp_tensors(const CaseRun& run, const NamedValues& inputs, const LaunchResult& forward,
                          const NamedValues& tangents) {
  LaunchTensors out = run.forward_tensors(inputs, 0);
  out.write.clear();
  out.in_place.clear();
  for (const Written& output : run.outputs)
    if (output.saved) out.read.emplace(output.name, forward.written.at(output.name));
  for (const TensorSpec& spec : run.op.signature.inputs) {
    if (!tangents.contains(tangent_name(spec.name))) continue;
    GuardedTensor tensor(run.call.dtype(spec), run.call.shape(spec), Layout::dense, poison(run.call.dtype(spec), 0));
    tensor.assign(tangents.at(tangent_name(spec.name)));
    out.read.emplace(tangent_name(spec.name), std::move(tensor));
  }
  for (const Written& tangent : run.tangents)
    out.write.emplace(tangent.name,
                      GuardedTensor(tangent.dtype, tangent.shape, Layout::dense, poison(tangent.dtype, 0)));
  return out;
}

void check_forward_mode(CaseRun& run, const LaunchResult& forward, Dump* dump, Notes& notes) {
  if (!run.op.kernel.jvp || run.tangents.empty() || run.op.forms.empty())
    return;  // without a form: checks/judge/black_box.cpp
  const NamedValues tangents = tangents_of(run);
  run.reference.set_tangents(tangents);
  const LaunchResult result = run.run_jvp(jvp_tensors(run, run.reference.inputs(), forward, tangents));
  std::vector<Subject> subjects;
  for (const Written& tangent : run.tangents)
    subjects.push_back({{CheckId::Kind::jvp, tangent.name}, &tangent, result.written.at(tangent.name).view()});
  std::vector<CheckResult> checks = judge(run, subjects, Pass::jvp, notes);
  if (dump != nullptr)
    for (const auto& [name, values] : tangents) {
      const TensorSpec& spec = *run.op.signature.input(name.substr(0, name.find('.')));
      dump->entries.push_back({name, run.call.shape(spec), run.call.dtype(spec), values});
    }
  for (std::size_t k = 0; k < checks.size(); ++k) {
    save(dump, *subjects[k].tensor, subjects[k].got, run, Pass::jvp);
    run.add(std::move(checks[k]));
  }
}

}  // namespace ampcheck::checks
