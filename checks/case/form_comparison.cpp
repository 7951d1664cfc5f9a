// SPDX-License-Identifier: Apache-2.0
#include "checks/case/form_comparison.h"

namespace ampcheck::checks {

FormComparison compare_with_forms(CaseRun& run, const Written& tensor, Pass pass, const std::vector<double>& got,
                                  std::span<const double> held) {
  const std::vector<std::size_t> forms = run.reference.forms();
  FormComparison out{run.reference.interval(forms.front(), pass, tensor.name, tensor.dtype, held), {}};
  out.comparison = compare(got, out.nearest);
  for (std::size_t k = 1; k < forms.size() && !out.comparison.outside.empty(); ++k) {
    const std::size_t before = out.comparison.outside.size();
    const Interval other = run.reference.interval(forms[k], pass, tensor.name, tensor.dtype, held);
    accept_form(got, other, 0, out.comparison);
    if (out.comparison.outside.size() < before && !out.comparison.outside.empty()) out.nearest = other;
  }
  return out;
}

}  // namespace ampcheck::checks
