// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include "checks/audit/form_needed.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

#include "checks/case/case_run.h"

namespace ampcheck::checks::zoo {

namespace {

/// Whether the form's interval leaves what the formula admits, `more` by regrouping. Of an element that the formula
/// does not judge nothing can be asked.
bool leaves(const Interval& of_form, const Interval& of_formula, const std::optional<reference::Regrouped>& more) {
  for (std::size_t i = 0; i < of_formula.value.size(); ++i) {
    if (unjudged(of_formula, i) || !std::isfinite(of_formula.value[i])) continue;
    if (unjudged(of_form, i)) return true;
    double ends[2] = {of_formula.low[i], of_formula.high[i]};
    if (more && std::isfinite(more->value[i])) {
      double wider[2] = {more->value[i] - more->radius[i], more->value[i] + more->radius[i]};
      round_ends(of_form.dtype, wider);
      ends[0] = std::fmin(ends[0], wider[0]);
      ends[1] = std::fmax(ends[1], wider[1]);
    }
    if (of_form.low[i] < ends[0] || of_form.high[i] > ends[1]) return true;
  }
  return false;
}

bool leaves(CaseRun& run, const std::vector<Written>& tensors, Pass pass, std::size_t form) {
  return std::any_of(tensors.begin(), tensors.end(), [&](const Written& tensor) {
    return is_float(tensor.dtype) && leaves(run.reference.interval(form, pass, tensor.name, tensor.dtype),
                                            run.reference.interval(0, pass, tensor.name, tensor.dtype),
                                            run.reference.regrouped(0, pass, tensor.name));
  });
}

}  // namespace

bool form_is_needed(const OpDef& op, const OpCall& call, std::size_t form) {
  constexpr int kProbes = 3;  // as the judge has
  const RunOptions options;
  CaseRun run(op, call, options);
  if (leaves(run, run.outputs, Pass::forward, form)) return true;
  for (int probe = 0; probe < kProbes; ++probe) {
    run.cotangents(probe);
    if (leaves(run, run.gradients, Pass::backward, form)) return true;
  }
  return false;
}

}  // namespace ampcheck::checks::zoo
