// SPDX-License-Identifier: Apache-2.0
// Judges one written tensor: the union over the forms of their intervals, then the class and the likely cause.
#include <algorithm>
#include <cmath>

#include "checks/case_run.h"
#include "src/rounding.h"

namespace ampcheck::checks {

namespace {

Interval interval_for(CaseRun& run, std::size_t form, const Written& tensor, Pass pass) {
  if (pass == Pass::forward) return run.reference.output(form, tensor.name, tensor.dtype);
  const bool at_saved = pass == Pass::backward_at_saved;
  if (run.accumulates(tensor.name)) return run.reference.accumulated(form, tensor.name, tensor.dtype, run.held(tensor), at_saved);
  return run.reference.gradient(form, tensor.name, tensor.dtype, at_saved);
}

/// Largest ratio of a tensor without outside elements, in the form that the kernel computes: in another one's interval its
/// elements lie anywhere, up to the end. Which form it is shows in how little one that admits the whole tensor leaves used;
/// worth the evaluation only where the forms taken so far are nearly used up. `seen`: what the union of the forms gave.
double headroom_used(CaseRun& run, const Written& tensor, Pass pass, const std::vector<double>& values, const Comparison& seen) {
  constexpr double kNearlyUsedUp = 0.5;
  double least = seen.max_ratio;
  for (std::size_t form = 0; form < run.reference.forms() && least > kNearlyUsedUp; ++form) {
    const Comparison alone = compare(values, interval_for(run, form, tensor, pass));
    if (alone.outside.empty() && alone.range <= seen.range) least = std::min(least, alone.max_ratio);
  }
  return least;
}

/// Up to three elements, the farthest outside first.
std::vector<Element> worst_elements(const Comparison& comparison, const Interval& interval, const TensorView& got,
                                    const std::vector<double>& values) {
  std::vector<std::pair<double, std::int64_t>> order;
  for (const std::int64_t i : comparison.outside) {
    const double ratio = excess_ratio(interval, i, values[static_cast<std::size_t>(i)]);
    order.emplace_back(std::isnan(ratio) ? INFINITY : ratio, i);
  }
  const std::size_t keep = std::min<std::size_t>(3, order.size());
  std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(keep), order.end(),
                    [](const auto& a, const auto& b) { return a.first != b.first ? a.first > b.first : a.second < b.second; });
  std::vector<Element> out;
  for (std::size_t k = 0; k < keep; ++k) {
    const std::int64_t i = order[k].second;
    out.push_back(element_of(interval, i, values[static_cast<std::size_t>(i)], bits_at(got, i)));
  }
  return out;
}

void classify(CaseRun& run, const Written& tensor, Pass pass, const std::vector<double>& values, const Comparison& comparison,
              const Interval& interval, CheckResult& check) {
  const std::int64_t first = comparison.outside.front();
  const bool finite_expected = std::isfinite(interval.value[static_cast<std::size_t>(first)]);
  bool any_non_finite = false;
  for (const std::int64_t i : comparison.outside) any_non_finite |= !std::isfinite(values[static_cast<std::size_t>(i)]);
  check.code = any_non_finite && finite_expected ? "AC102" : (finite_expected ? "AC101" : "AC103");
  if (run.accumulates(tensor.name)) check.code = "AC408";
  check.cause = likely_cause(comparison, interval, values);
  if (check.code != "AC101") {
    check.verdict = find_code(check.code)->verdict;
    return;
  }
  std::string words = dropped_terms(run, tensor, pass, values, comparison, interval);
  if (!words.empty()) {
    check.cause = check.cause.empty() ? words : check.cause + "; " + words;
  } else if (explained_by_low_accumulation(run, tensor, pass, values, comparison, interval, words)) {
    check.code = "AC301";
    check.cause = words;
  }
  check.verdict = find_code(check.code)->verdict;
}

}  // namespace

CheckResult& judge(CaseRun& run, const std::string& name, const Written& tensor, const TensorView& got, Pass pass) {
  CheckResult check;
  check.name = name;
  check.dtype = tensor.dtype;
  const std::vector<double> values = to_doubles(got);
  const Interval interval = interval_for(run, 0, tensor, pass);
  Comparison comparison = compare(values, interval);
  Interval nearest = interval;  // the form with the fewest elements outside, for the report
  for (std::size_t form = 1; form < run.reference.forms() && !comparison.outside.empty(); ++form) {
    const std::size_t before = comparison.outside.size();
    const Interval other = interval_for(run, form, tensor, pass);
    accept_form(values, other, comparison);
    if (comparison.outside.size() < before && !comparison.outside.empty()) nearest = other;
  }
  check.compared = comparison.compared;
  check.blind = comparison.blind;
  check.range = comparison.range;
  check.max_ratio = comparison.outside.empty() ? headroom_used(run, tensor, pass, values, comparison) : INFINITY;
  check.failed = static_cast<std::int64_t>(comparison.outside.size());
  if (!comparison.outside.empty()) {
    check.max_ratio = 0;
    for (const std::int64_t i : comparison.outside)
      check.max_ratio = std::max(check.max_ratio, excess_ratio(nearest, i, values[static_cast<std::size_t>(i)]));
    check.worst = worst_elements(comparison, nearest, got, values);
    classify(run, tensor, pass, values, comparison, nearest, check);
  } else if (check.compared > 0 && check.blind == check.compared) {
    check.code = "AC202";
    check.note = "every element is blind here";  // convicts only if no case of the op sees the output (runner)
  } else if (check.compared > 0 && check.range == check.compared) {
    check.code = "AC201";
    check.note = "no element is judged: an intermediate leaves the compute type's range";
    check.verdict = Verdict::range;
  }
  return run.add(std::move(check));
}

}  // namespace ampcheck::checks
