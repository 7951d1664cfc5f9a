// SPDX-License-Identifier: Apache-2.0
// The reference side of one case: every form's recording and balls, evaluated only when asked for.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "checks/interval.h"
#include "checks/op_def.h"
#include "reference/ball.h"
#include "src/op_call.h"

namespace ampcheck::checks {

using NamedValues = std::map<std::string, std::vector<double>>;

/// The rules' view of a precision contract for a case stored in `storage`.
reference::Arithmetic arithmetic_of(const OpSignature& signature, const OpCall& call);

/// Shapes of floating inputs and values of integer inputs, from the exact values of all inputs of a case.
reference::CaseInputs case_inputs(const OpSignature& signature, const OpCall& call, const NamedValues& inputs);

class CaseReference {
 public:
  /// `inputs`: exact values of every present input, integers too.
  CaseReference(const OpDef& op, const OpCall& call, NamedValues inputs);

  std::size_t forms() const { return op_.forms.size(); }
  const reference::Recording& recording(std::size_t form = 0) { return form_at(form).recording; }
  Shape output_shape(const std::string& name) { return shape_of(recording().outputs, name); }

  /// Starts a new probe: cotangents by name ("dy"). The same ones again change nothing.
  void set_cotangents(const NamedValues& cotangents);
  /// Evaluates the first form's gradients of the current probe.
  void evaluate_gradients() { evaluate_gradients(0, false); }
  /// Gives the kernel's own saved values; gradients of `at_saved` then start from them.
  void set_saved(NamedValues saved);

  /// Intervals of an output or a saved tensor, and of a gradient of the current probe.
  Interval output(std::size_t form, const std::string& name, Dtype dtype);
  Interval gradient(std::size_t form, const std::string& name, Dtype dtype, bool at_saved = false);
  /// As gradient(), for a buffer that held `held` before.
  Interval accumulated(std::size_t form, const std::string& name, Dtype dtype, const std::vector<double>& held, bool at_saved = false);

  /// Whether every intermediate of the current probe stays far from the ends of the range.
  bool tame();
  bool inputs_finite() const { return inputs_finite_; }
  const NamedValues& inputs() const { return inputs_; }
  const NamedValues& cotangents() const { return cotangents_; }
  const OpDef& op() const { return op_; }
  const OpCall& call() const { return call_; }

  static Shape shape_of(const std::vector<std::pair<std::string, reference::Expr>>& nodes, const std::string& name);

 private:
  struct Evaluated {
    reference::Recording recording;
    std::unique_ptr<reference::BallEvaluator> balls, at_saved;
    int probe = 0, probe_at_saved = 0;
  };
  Evaluated& form_at(std::size_t form);
  reference::BallEvaluator& forward(Evaluated& form);
  reference::BallEvaluator& evaluate_gradients(std::size_t form, bool at_saved);
  const reference::Ball& gradient_ball(std::size_t form, const std::string& name, bool at_saved);

  const OpDef& op_;
  OpCall call_;
  NamedValues inputs_, cotangents_, saved_;
  std::vector<std::unique_ptr<Evaluated>> evaluated_;
  int probe_ = 0;
  bool inputs_finite_ = true, cotangents_finite_ = true;
};

}  // namespace ampcheck::checks
