// SPDX-License-Identifier: Apache-2.0
#include "reference/soft_clip.h"

#include "checks/define/op_forms.h"
#include "checks/define/op_list.h"

namespace ampcheck::checks {

OpDef soft_clip_op() {
  OpDef op;
  op.signature = {
      .name = "soft_clip",
      .summary = "y = limit - log(1 + exp(limit - x))",
      .inputs = {{.name = "x", .dims = "N D"}},
      .outputs = {{.name = "y"}},
      .attributes = {{"limit", 1.0, {0.5, 2.0}}},
      .dims = {{"N", {5, 64, 2}}, {"D", {7, 129, 1025}}},
      .precision = {.math = own_math()},
      .launch = {.row_dim = "N", .row_independent = {"y", "dx"}},
      .cast = CastPolicy::fp32,
  };
  op.kernel = kernels::soft_clip_kernel();
  op.forms = {{"limit - softplus(limit - x)", [](reference::FormulaCall& call) {
                 call.output("y", reference::soft_clip(call["x"], call.attribute("limit")));
               }}};
  return op;
}

}  // namespace ampcheck::checks
