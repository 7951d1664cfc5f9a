// SPDX-License-Identifier: Apache-2.0
// One case while it runs: its tensors, its launches, its reference, and the findings so far. The value checks
// (checks/judge/judge.h) and the exact relations (checks/judge/relations.h) are written on top of it.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "checks/case/case_reference.h"
#include "checks/case/launch.h"
#include "checks/case/options.h"
#include "checks/data/cotangents.h"

namespace ampcheck::checks {

/// A tensor that a kernel writes.
struct Written {
  std::string name;
  Dtype dtype;
  Shape shape;
  bool saved = false;
  bool to_backward = false;  ///< an output that backward reads as forward wrote it

  /// Whether backward reads what forward wrote there.
  bool reaches_backward() const { return saved || to_backward; }
};

/// One backward launch: what it was given and what it wrote.
struct BackwardRun {
  LaunchTensors tensors;
  LaunchResult result;
};

class FreshCases;  // checks/case/fresh_case.h

class CaseRun {
 public:
  CaseRun(const OpDef& op, const OpCall& call, const RunOptions& options);
  /// At other values than the call's own.
  CaseRun(const OpDef& op, const OpCall& call, const RunOptions& options, NamedValues inputs);

  const OpDef& op;
  const OpCall& call;
  const RunOptions& options;
  CaseReference reference;
  std::vector<Written> outputs;  ///< outputs and saved tensors
  std::vector<Written> gradients;
  std::vector<Written> tangents;  ///< of the outputs, "y.tangent"; empty without forward mode
  std::vector<CheckResult> checks;

  /// Tensors of a forward or backward launch. `fill`: which poison the written buffers hold. Accumulating ones hold
  /// `held()` instead. Backward: with the saved tensors of `saved` and the given cotangents.
  /// Of these tensors the ones that overwrite what the launch reads: an input, in backward a cotangent.
  std::map<std::string, std::string> overwritten(const std::vector<Written>& written) const;
  LaunchTensors forward_tensors(const NamedValues& inputs, int fill) const;
  LaunchTensors backward_tensors(const NamedValues& inputs, const LaunchResult& forward, const NamedValues& cotangents,
                                 int fill) const;
  /// The tensors of a launch with its written buffers made anew.
  LaunchTensors refilled(const LaunchTensors& tensors, const std::vector<Written>& written, int fill) const;
  LaunchResult run_forward(const LaunchTensors& tensors);
  LaunchResult run_backward(const LaunchTensors& tensors);
  LaunchResult run_jvp(const LaunchTensors& tensors);
  /// The cotangents of a probe, which the reference gets too. Valid until the next call.
  const NamedValues& cotangents(int probe);
  /// Whose cotangents the reference has; -1 before there are any.
  int probe() const { return cotangents_probe_; }

  CaseRun* part_of = nullptr;                   ///< of some rows: the case that they are rows of
  std::shared_ptr<FreshCases> fresh = nullptr;  ///< the kernel at other data, once somebody asked

  bool accumulates(const std::string& name) const;
  /// What an accumulating buffer holds before the call: known finite values.
  std::vector<double> held(const Written& tensor) const;

  /// Records a check; a finding keeps the worst elements it was given.
  CheckResult& add(CheckResult check);
  /// A check that only says what went wrong, for relations; `worst`: elements that break it (see broken()).
  void add_relation(const CheckId& id, Code code, std::int64_t compared, std::int64_t failed, const std::string& cause,
                    std::vector<Element> worst = {});

 private:
  GuardedTensor input_tensor(const TensorSpec& spec, const NamedValues& inputs) const;
  GuardedTensor cotangent_tensor(const Written& output, const NamedValues& cotangents) const;
  Layout cotangent_layout(const std::string& cotangent) const;
  void stop_if_cancelled() const;
  LaunchResult launched(const kernels::KernelFn& kernel, const LaunchTensors& tensors, const char* pass);
  void note_memory(const LaunchResult& result, const std::string& where);
  NamedValues release_cotangents();

  std::map<std::string, GuardedTensor> input_tensors_;  ///< of the case's own inputs: launches copy what they read
  std::map<std::string, GuardedTensor>
      cotangent_tensors_;  ///< of the cotangents that the reference has, if it has not got others since
  int cotangent_tensors_of_ = -1;
  mutable std::map<std::pair<std::string, int>, GuardedTensor>
      poisoned_;  ///< what launches copy before they write, by fill; nobody writes here
  LaunchCopies copies_;
  int cotangents_probe_ = -1;
  Ranges cotangent_ranges_;
  std::map<int, std::map<std::string, Drawn>> drawn_;  ///< cotangents of probes that later ones are like
  std::vector<GuardedTensor> drawn_tensors_;           ///< their bits
};

/// One written tensor that is to be judged.
struct Subject {
  CheckId id;  ///< of the check
  const Written* tensor;
  TensorView got;
};

}  // namespace ampcheck::checks
