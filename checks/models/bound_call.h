// SPDX-License-Identifier: Apache-2.0
// A call of an op with its inputs bound by name, and the formula recorded for it, kept from step to step.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "checks/define/op_def.h"
#include "checks/models/tape.h"
#include "src/op_call.h"

namespace ampcheck::checks::models {

/// One call of a built-in op and the tensors it met, by number on the tape.
struct RecordedCall {
  std::string name;  ///< "softmax_1": the op and its count on this tape
  OpCall call;       ///< dims, attributes and absent inputs; the rest as by default
  std::vector<std::pair<std::string, int>> inputs;
  std::string output_name;
  int output = -1;
};

/// Binds inputs by name; `name`, `output_name` and `output` are left to the tape. `shape` says the shape of a tensor.
RecordedCall bind_call(const std::string& op, const std::vector<std::pair<std::string, Var>>& inputs,
                       const std::vector<std::pair<std::string, double>>& attributes,
                       const std::function<Shape(Var)>& shape);

/// The op of a call: one of use_op(), or a built-in one. EnvironmentError if there is none.
const OpDef& op_of_call(const std::string& name);
/// From now on models may call this op, which outlives them: a user's own. Error if it has no backward or no formula,
/// or another op its name.
void use_op(const OpDef& op);

/// A call's gradients differentiated once more: leaves "x", "dy" and for each gradient "dgrad_x"; gradients "dx" and
/// "ddy" of sum <dgrad_x, dx>.
struct SecondOrder {
  reference::Recording first;
  std::map<std::string, reference::Expr> leaves, gradients;
};

/// The first forms of calls, recorded once for all calls that differ in floating values alone. Not thread-safe.
class Recordings {
 public:
  /// `values` gives the exact values of an integer input.
  std::shared_ptr<const reference::Recording> of(const OpDef& op, const OpCall& call,
                                                 const std::function<std::vector<double>(const std::string&)>& values);
  /// The same form differentiated twice.
  std::shared_ptr<const SecondOrder> second_order(const OpDef& op, const OpCall& call,
                                                  const std::function<std::vector<double>(const std::string&)>& values);
  /// Shape of an output or saved tensor of a call; the integer inputs are looked at the first time alone.
  const Shape& shape(const OpDef& op, const OpCall& call, const std::string& tensor,
                     const std::function<std::vector<double>(const std::string&)>& values);

 private:
  std::map<std::string, std::shared_ptr<const reference::Recording>> recordings_;
  std::map<std::string, std::shared_ptr<const SecondOrder>> second_;
  std::map<std::string, std::map<std::string, Shape>> shapes_;
};

}  // namespace ampcheck::checks::models
