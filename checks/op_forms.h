// SPDX-License-Identifier: Apache-2.0
// What several op definitions share: forms given by plain functions, and the definition of y = f(x).
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

}  // namespace ampcheck::checks
