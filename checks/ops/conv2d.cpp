// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include "reference/conv2d.h"

#include "checks/define/op_list.h"

namespace ampcheck::checks {

OpDef conv2d_op() {
  OpDef op;
  op.signature = {
      .name = "conv2d",
      .summary = "y = cross-correlation of x with weight + bias",
      .inputs = {{.name = "x", .dims = "N C H W"},
                 {.name = "weight", .dims = "O C R S", .role = Role::weight},
                 {.name = "bias", .dims = "O", .role = Role::bias, .optional = true}},
      .outputs = {{.name = "y"}},
      .attributes = {{"stride", 1.0, {2.0, 3.0}, true}, {"padding", 0.0, {1.0, 2.0}, true}},
      .dims = {{"N", {2, 1, 3}},
               {"C", {3, 5, 2}},
               {"H", {5, 13, 7}},
               {"W", {7, 17, 65}},
               {"O", {2, 9, 5}},
               {"R", {3, 2, 3}},
               {"S", {3, 3, 5}}},
      .precision = {.math = own_math()},
      .launch = {.row_dim = "N", .row_independent = {"y", "dx"}},
      .torch_op = "conv2d",
      .valid =
          [](const Dims& dims, const Attributes& attributes) {
            const std::int64_t padding = attributes.integer("padding");
            const auto fits = [&](const char* dim, const char* tap) {
              return dims.at(dim) > 0 && dims.at(tap) > 0 && dims.at(dim) + 2 * padding >= dims.at(tap);
            };
            return attributes.integer("stride") > 0 && padding >= 0 && fits("H", "R") && fits("W", "S");
          },
  };
  op.kernel = kernels::conv2d_kernel();
  using reference::Expr;
  const auto form = [](Expr (*formula)(Expr, Expr, Expr, reference::Window)) {
    return [formula](reference::FormulaCall& call) {
      const auto whole = [&](const char* name) { return static_cast<int>(call.number(name)); };
      // Without padding nothing is outside, and the forms are one.
      const auto chosen = whole("padding") > 0 ? formula : reference::conv2d;
      call.output("y", chosen(call["x"], call["weight"], call["bias"], {whole("stride"), whole("padding")}));
    };
  };
  op.forms = {{"unfold", form(reference::conv2d)}, {"inside only", form(reference::conv2d_inside_only)}};
  return op;
}

}  // namespace ampcheck::checks
