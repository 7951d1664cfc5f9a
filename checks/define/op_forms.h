// SPDX-License-Identifier: Apache-2.0
// What several op definitions share: forms given by plain functions, and the definitions of y = f(x) and z = f(x, y).
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "checks/define/op_def.h"

namespace ampcheck::checks {

/// A form whose one output follows from one input.
inline reference::Form unary_form(std::string name, const std::string& input, const std::string& output,
                                  reference::Expr (*formula)(reference::Expr)) {
  return {std::move(name), [=](reference::FormulaCall& call) { call.output(output, formula(call[input])); }};
}

/// A form whose one output z follows from x and y.
inline reference::Form binary_form(std::string name, reference::Expr (*formula)(reference::Expr, reference::Expr)) {
  return {std::move(name), [=](reference::FormulaCall& call) { call.output("z", formula(call["x"], call["y"])); }};
}

/// An elementwise op y = f(x) over [N, D], torch's of that name unless given. To be completed: kernel and forms.
inline OpDef unary_op(std::string name, std::string summary, std::string torch_op = {}) {
  OpDef op;
  if (torch_op.empty()) torch_op = name;
  op.signature = {
      .name = std::move(name),
      .summary = std::move(summary),
      .inputs = {{.name = "x", .dims = "N D"}},
      .outputs = {{.name = "y"}},
      .dims = {{"N", {5, 64, 2}}, {"D", {7, 129, 1025}}},
      .precision = {.math = own_math()},
      .launch = {.row_dim = "N", .row_independent = {"y", "dx"}},
      .torch_op = std::move(torch_op),
  };
  return op;
}

/// An elementwise op z = f(x, y) over [N, D], torch's of that name, whose rows do not mix: the definition that
/// checks/ops/add.cpp writes out. To be completed: kernel and forms.
inline OpDef binary_op(std::string name, std::string summary) {
  OpDef op;
  std::string torch_op = name;
  op.signature = {
      .name = std::move(name),
      .summary = std::move(summary),
      .inputs = {{.name = "x", .dims = "N D"}, {.name = "y", .dims = "N D"}},
      .outputs = {{.name = "z"}},
      .dims = {{"N", {5, 64, 2}}, {"D", {7, 129, 1025}}},
      .precision = {.math = own_math()},
      .launch = {.row_dim = "N", .row_independent = {"z", "dx", "dy"}},
      .torch_op = std::move(torch_op),
  };
  return op;
}

}  // namespace ampcheck::checks
