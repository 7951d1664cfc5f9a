// SPDX-License-Identifier: Apache-2.0
// What several op definitions share: forms given by plain functions, and the definitions of y = f(x) and z = f(x, y).
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "checks/op_def.h"

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

/// An elementwise op y = f(x) over [N, D]. To be completed: kernel and forms.
inline OpDef unary_op(std::string name, std::string summary, CastPolicy cast) {
  OpDef op;
  op.signature = {
      .name = std::move(name),
      .summary = std::move(summary),
      .inputs = {{.name = "x", .dims = "N D"}},
      .outputs = {{.name = "y"}},
      .dims = {{"N", {5, 64, 2}}, {"D", {7, 129, 1025}}},
      .precision = {.math = own_math()},
      .launch = {.row_dim = "N", .row_independent = {"y", "dx"}},
      .cast = cast,
  };
  return op;
}

/// An elementwise op z = f(x, y) over [N, D], whose rows do not mix: the definition that checks/ops/add.cpp writes out. To be
/// completed: kernel and forms.
inline OpDef binary_op(std::string name, std::string summary) {
  OpDef op;
  op.signature = {
      .name = std::move(name),
      .summary = std::move(summary),
      .inputs = {{.name = "x", .dims = "N D"}, {.name = "y", .dims = "N D"}},
      .outputs = {{.name = "z"}},
      .dims = {{"N", {5, 64, 2}}, {"D", {7, 129, 1025}}},
      .precision = {.math = own_math()},
      .launch = {.row_dim = "N", .row_independent = {"z", "dx", "dy"}},
      .cast = CastPolicy::promote,
  };
  return op;
}

}  // namespace ampcheck::checks
