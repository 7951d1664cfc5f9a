// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include "reference/embedding.h"

#include "checks/define/op_list.h"

namespace ampcheck::checks {

OpDef embedding_op() {
  OpDef op;
  op.signature = {
      .name = "embedding",
      .summary = "y[n] = weight[index[n]]",
      .inputs = {{.name = "weight", .dims = "V D"},
                 {.name = "index", .dims = "N", .role = Role::index, .type = TypeRule::i64, .index_dim = "V"}},
      .outputs = {{.name = "y"}},
      .attributes = {{"padding_idx", -1.0, {1.0}, true}},
      .dims = {{"V", {11, 50, 3}}, {"D", {7, 129, 1025}}, {"N", {5, 64, 7}}},
      .precision = {.math = own_math()},
      .launch = {.accumulates = {"dweight"}, .row_dim = "N", .row_independent = {"y"}},
      .torch_op = "embedding",
      .valid = [](const Dims& dims, const Attributes&) { return dims.at("V") > 0 || dims.at("N") == 0; },
  };
  op.kernel = kernels::embedding_kernel();
  op.forms = {{"gather", [](reference::FormulaCall& call) {
                 call.output("y", reference::embedding(call["weight"], call.integers("index"),
                                                       static_cast<std::int64_t>(call.number("padding_idx"))));
               }}};
  return op;
}

}  // namespace ampcheck::checks
