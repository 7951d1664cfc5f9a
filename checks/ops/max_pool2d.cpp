// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include "reference/max_pool2d.h"

#include "checks/define/op_list.h"

namespace ampcheck::checks {

OpDef max_pool2d_op() {
  OpDef op;
  op.signature = {
      .name = "max_pool2d",
      .summary = "y = largest element of each window, the first among equals",
      .inputs = {{.name = "x", .dims = "N C H W"}},
      .outputs = {{.name = "y"}},
      .attributes = {{"kernel", 2.0, {3.0, 1.0}, true},
                     {"stride", 2.0, {1.0, 3.0}, true},
                     {"padding", 0.0, {1.0}, true}},
      .dims = {{"N", {2, 3, 1}}, {"C", {3, 5, 2}}, {"H", {5, 16, 33}}, {"W", {7, 17, 129}}},
      .precision = {.math = own_math()},
      .launch = {.row_dim = "N", .row_independent = {"y", "dx"}},
      .torch_op = "max_pool2d",
      .valid =
          [](const Dims& dims, const Attributes& attributes) {
            const std::int64_t kernel = attributes.integer("kernel"), padding = attributes.integer("padding");
            const auto fits = [&](const char* dim) { return dims.at(dim) > 0 && dims.at(dim) + 2 * padding >= kernel; };
            return kernel > 0 && attributes.integer("stride") > 0 && padding >= 0 && 2 * padding <= kernel &&
                   fits("H") && fits("W");
          },
  };
  op.kernel = kernels::max_pool2d_kernel();
  op.forms = {{"windows", [](reference::FormulaCall& call) {
                 const auto whole = [&](const char* name) { return static_cast<int>(call.number(name)); };
                 call.output("y", reference::max_pool2d(call["x"], whole("kernel"), whole("stride"), whole("padding")));
               }}};
  return op;
}

}  // namespace ampcheck::checks
