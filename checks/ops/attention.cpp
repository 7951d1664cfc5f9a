// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include "reference/attention.h"

#include "checks/define/op_list.h"

namespace ampcheck::checks {

OpDef attention_op() {
  OpDef op;
  op.signature = {
      .name = "attention",
      .summary = "o = softmax(q k^T / sqrt(E)) v, causal or not",
      .inputs = {{.name = "q", .dims = "B H T E"}, {.name = "k", .dims = "B H T E"}, {.name = "v", .dims = "B H T E"}},
      .outputs = {{.name = "o"}},
      .saved = {{"lse", TypeRule::fp32}},
      .attributes = {{"causal", 1.0, {0.0}, true}},
      .dims = {{"B", {2, 1, 3}}, {"H", {2, 3, 1}}, {"T", {5, 33, 17}}, {"E", {7, 16, 65}}},
      .precision = {.math = own_math()},
      .launch = {.row_dim = "B H", .row_independent = {"o", "dq", "dk", "dv"}},
      .torch_op = "scaled_dot_product_attention",
      .valid =
          [](const Dims&, const Attributes& attributes) {
            return attributes.integer("causal") == 0 || attributes.integer("causal") == 1;
          },
  };
  op.kernel = kernels::attention_kernel();
  using reference::Attention;
  using reference::Expr;
  const auto form = [](Attention::Scale scale, Expr (*output)(const Attention&)) {
    return [scale, output](reference::FormulaCall& call) {
      call.output("o", output(Attention(call["q"], call["k"], call["v"], call.number("causal") != 0, scale)));
    };
  };
  const auto derived = [](const Attention& a) { return a.derived(); };
  const auto by_total = [](const Attention& a) { return a.usual_adjoint(a.p_by_total(), Attention::Delta::p_dp); };
  const auto by_lse = [](const Attention& a) { return a.usual_adjoint(a.p_by_lse(), Attention::Delta::p_dp); };
  const auto flash = [](const Attention& a) { return a.usual_adjoint(a.p_by_lse(), Attention::Delta::g_o); };
  const auto last = [](const Attention& a) {
    return a.usual_adjoint(a.p_by_lse(), Attention::Delta::p_dp, a.divided_last());
  };
  const auto visible = [](const Attention& a) { return a.visible_only(); };
  op.forms = {{"p = e/l", form(Attention::Scale::scores, derived)},
              {"p = e/l, p (dp - sum p dp)", form(Attention::Scale::scores, by_total)},
              {"(e v) / l, p = exp(s - lse), p (dp - sum p dp)", form(Attention::Scale::scores, last)},
              {"p = exp(s - lse), p (dp - sum p dp)", form(Attention::Scale::scores, by_lse)},
              {"p = exp(s - lse), p (dp - sum g o)", form(Attention::Scale::scores, flash)},
              {"scaled q, p = e/l", form(Attention::Scale::queries, derived)},
              {"scaled q, p = exp(s - lse), p (dp - sum g o)", form(Attention::Scale::queries, flash)},
              {"one pass", form(Attention::Scale::scores, last), true},
              {"visible keys only", form(Attention::Scale::scores, visible)}};
  return op;
}

}  // namespace ampcheck::checks
