// SPDX-License-Identifier: Apache-2.0
// Judges one written tensor: the union over the forms of their intervals, then the class and the likely cause.
#include "checks/judge/judge.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "checks/case/case_run.h"
#include "checks/case/form_comparison.h"
#include "checks/case/wrong_tensor.h"
#include "checks/judge/by_rows.h"
#include "checks/judge/classify.h"
#include "checks/judge/one_sided.h"
#include "src/elements.h"
#include "src/error_map.h"
#include "src/rounding.h"

namespace ampcheck::checks {

namespace {

/// Up to three elements, the farthest outside first.
std::vector<Element> worst_elements(const Comparison& comparison, const Interval& interval, const TensorView& got,
                                    const std::vector<double>& values) {
  std::vector<std::pair<double, std::int64_t>> order;
  for (const std::int64_t i : comparison.outside) {
    const double ratio = excess_ratio(interval, i, values[static_cast<std::size_t>(i)]);
    order.emplace_back(std::isnan(ratio) ? INFINITY : ratio, i);
  }
  const std::size_t keep = std::min<std::size_t>(3, order.size());
  std::partial_sort(
      order.begin(), order.begin() + static_cast<std::ptrdiff_t>(keep), order.end(),
      [](const auto& a, const auto& b) { return a.first != b.first ? a.first > b.first : a.second < b.second; });
  std::vector<Element> out;
  for (std::size_t k = 0; k < keep; ++k) {
    const std::int64_t i = order[k].second;
    out.push_back(element_of(interval, i, values[static_cast<std::size_t>(i)], bits_at(got, i)));
  }
  return out;
}

/// Where the elements outside lie.
ErrorMap map_of(const WrongTensor& wrong) {
  const FloatFormat& storage = format(wrong.interval.dtype);
  std::vector<ElementOutside> outside;
  outside.reserve(wrong.comparison.outside.size());
  for (const std::int64_t i : wrong.comparison.outside) {
    const auto at = static_cast<std::size_t>(i);
    const double want = decode_scalar(storage, encode_scalar(storage, wrong.interval.value[at]));
    outside.push_back({i, ulp_distance(storage, wrong.got[at], want)});
  }
  return error_map(wrong.interval.shape, outside);
}

const char* why_open(Comparison::Open open) {
  switch (open) {
    case Comparison::Open::no_value: return "the formula has no value here, such as 0 / 0";
    case Comparison::Open::no_bound:
      return "rounding alone may take the formula to a pole, such as a divisor of zero, so no number can be called "
             "wrong";
    case Comparison::Open::left_range: break;
  }
  return "an intermediate leaves the compute type's range";
}

/// What the comparison of a whole tensor says, where nothing lies outside.
void conclude(const Comparison& comparison, CheckResult& check) {
  check.compared = comparison.compared;
  check.blind = comparison.blind;
  check.range = comparison.range;
  check.by_forms = comparison.by_forms;
  check.by_regrouping = comparison.by_regrouping;
  check.max_ratio = comparison.max_ratio;
  if (check.compared > 0 && check.blind == check.compared) {
    check.code = Code::ac202;
    check.note = "every element is blind here";  // convicts only if no case of the op sees the output (runner)
  } else if (check.compared > 0 && check.range == check.compared) {
    check.code = Code::ac201;
    check.note = std::string("no element is judged: ") + why_open(comparison.open);
    check.verdict = Verdict::range;
  }
}

/// Largest ratio of a tensor without outside elements, in the form that the kernel computes: in another one's interval
/// its elements lie anywhere, up to the end. Which form it is shows in how little one that admits the whole tensor
/// leaves used; worth the evaluation only where the forms taken so far are nearly used up. `seen`: what the union of
/// the forms gave.
double headroom_used(CaseRun& run, const Subject& subject, Pass pass, std::span<const double> held,
                     const Comparison& seen) {
  constexpr double kNearlyUsedUp = 0.5;
  double least = seen.max_ratio;
  if (least <= kNearlyUsedUp) return least;
  const std::vector<double> values = to_doubles(subject.got);
  for (const std::size_t form : run.reference.forms()) {
    if (least <= kNearlyUsedUp) break;
    const Comparison alone =
        compare(values, run.reference.interval(form, pass, subject.tensor->name, subject.tensor->dtype, held));
    if (alone.outside.empty() && alone.range <= seen.range) least = std::min(least, alone.max_ratio);
  }
  return least;
}

/// Where an infinite input makes the formula infinite, a regrouping may take infinity from infinity:
/// a + t (b - a) for (1 - t) a + t b. Where nothing is added up, there is nothing to regroup.
bool infinity_undone(const WrongTensor& wrong, std::size_t i) {
  return !wrong.interval.leaves_finite && std::isinf(wrong.interval.value[i]) && std::isnan(wrong.got[i]) &&
         wrong.run.reference.adds_up(wrong.run.reference.forms().front(), wrong.pass, wrong.tensor.name);
}

/// Whether the formula is NaN by an infinite or NaN input: a kernel may leave out what a mask multiplies by zero, which
/// makes it a number.
bool masked_out(const WrongTensor& wrong, std::size_t i) {
  return !wrong.interval.leaves_finite && std::isnan(wrong.interval.value[i]) && !std::isnan(wrong.got[i]);
}

/// Whether a number may be rounded otherwise than any form's: infinite or NaN where the value is finite, or off by
/// little beside the tensor's largest value. A slip moves most numbers farther.
bool may_be_regrouped(const WrongTensor& wrong) {
  constexpr double kLittle = 0x1p-4;
  double largest = 0;
  for (const double v : wrong.interval.value)
    if (std::isfinite(v)) largest = std::max(largest, std::fabs(v));
  return std::any_of(wrong.comparison.outside.begin(), wrong.comparison.outside.end(), [&](std::int64_t at) {
    const auto i = static_cast<std::size_t>(at);
    const double got = wrong.got[i], value = wrong.interval.value[i];
    if (infinity_undone(wrong, i) || masked_out(wrong, i)) return true;
    return std::isfinite(value) && !(std::fabs(got - value) > kLittle * largest && std::isfinite(got));
  });
}

/// The forms of built-in ops are all that kernels use, and what they leave open is stated. An author's formula says
/// less.
bool forms_are_listed(const CaseRun& run) {
  return !run.op.authored && run.op.plugin.empty() && find_op(run.op.signature.name) != nullptr;
}

/// Drops gradients that the formula leaves open where an input is NaN or infinite.
void drop_open(CaseRun& run, const Written& tensor, Pass pass, const Interval& interval, Comparison& comparison) {
  if (comparison.outside.empty()) return;
  const std::vector<char> behind = run.reference.behind_choices(run.reference.forms().front(), pass, tensor.name);
  if (behind.empty()) return;
  comparison.range += static_cast<std::int64_t>(std::erase_if(comparison.outside, [&](std::int64_t at) {
    const auto i = static_cast<std::size_t>(at);
    return (behind[i] & 2) != 0 || (behind[i] != 0 && std::isnan(interval.value[i]));
  }));
}

/// The comparison if all of it is right for a kernel that regroups a form: then nothing lies outside, and what a
/// grouping may take out of the range counts as such. A tensor of which some elements stay wrong, `unexplained`, is
/// judged as if nothing could be regrouped. `widened`: its ends are moved to those that admit such numbers.
std::optional<Comparison> right_if_regrouped(const WrongTensor& wrong, std::span<const double> held, Notes& notes,
                                             std::vector<std::int64_t>& unexplained, Interval* widened = nullptr) {
  const std::string& name = wrong.tensor.name;
  if (notes.not_regrouped.contains(name) || notes.plainly_wrong.contains(name) || !may_be_regrouped(wrong))
    return std::nullopt;
  Comparison left = wrong.comparison;
  for (const std::size_t form : wrong.run.reference.forms()) {
    const std::optional<reference::Regrouped> bound = wrong.run.reference.regrouped(form, wrong.pass, name, held);
    if (!bound) return std::nullopt;
    std::erase_if(left.outside, [&](std::int64_t at) {
      const auto i = static_cast<std::size_t>(at);
      const double v = bound->value[i], r = bound->radius[i], got = wrong.got[i];
      const auto widen = [&](double low, double high) {
        if (widened == nullptr) return;
        widened->low[i] = std::min(widened->low[i], low);
        widened->high[i] = std::max(widened->high[i], high);
      };
      if (infinity_undone(wrong, i)) {
        ++left.range;
        widen(-HUGE_VAL, HUGE_VAL);
        return true;
      }
      if (masked_out(wrong, i) && std::isinf(v) && got == v) {
        ++left.by_regrouping;
        widen(v, v);
        return true;
      }
      if (!std::isfinite(v) || (!std::isfinite(wrong.interval.value[i]) && !masked_out(wrong, i))) return false;
      const bool left_range =
          bound->overflows[i] && (!std::isfinite(got) || got == 0);  // zero: divided by an overflow, or exp of it
      left.range += left_range;
      if (left_range) {
        widen(-HUGE_VAL, HUGE_VAL);
        return true;
      }
      double ends[2] = {v - r * (1 + 0x1p-40), v + r * (1 + 0x1p-40)};
      round_ends(wrong.tensor.dtype, ends);
      if (!((r > 0 || masked_out(wrong, i)) && got >= ends[0] && got <= ends[1])) return false;
      left.max_ratio = 1;
      ++left.by_regrouping;
      widen(ends[0], ends[1]);
      return true;
    });
    if (left.outside.empty()) return left;
  }
  if (left.outside.size() == wrong.comparison.outside.size())
    notes.not_regrouped.insert(name);  // nor is another probe of it
  unexplained = left.outside;
  return std::nullopt;
}

/// Of one launch: what was judged so far helps with the rest.
struct Launch {
  CaseRun& run;
  const std::vector<Subject>& subjects;
  Pass pass;
  Notes& notes;
};

/// Judges a tensor as a whole, and explains what lies outside.
CheckResult judge_whole(const Launch& of, const Subject& subject, std::span<const double> held) {
  const Written& tensor = *subject.tensor;
  CheckResult check;
  check.id = subject.id;
  check.dtype = tensor.dtype;
  const std::vector<double> values = to_doubles(subject.got);
  FormComparison with_forms = compare_with_forms(of.run, tensor, of.pass, values, held);
  Comparison& comparison = with_forms.comparison;
  const bool else_right = comparison.outside.empty();
  const std::string one_sided = judge_one_sided(of.run, tensor, of.pass, values, with_forms.nearest, comparison);
  const WrongTensor wrong{of.run, tensor, of.pass, values, with_forms.nearest, comparison};
  std::vector<std::int64_t> unexplained = comparison.outside;
  if (!forms_are_listed(of.run)) {
    drop_open(of.run, tensor, of.pass, with_forms.nearest, comparison);
    unexplained = comparison.outside;
    if (!comparison.outside.empty() && !of.run.options.as_written)
      if (auto right = right_if_regrouped(wrong, held, of.notes, unexplained)) comparison = std::move(*right);
    if (comparison.outside.empty()) {
      conclude(comparison, check);
      return check;
    }
  }
  if (comparison.outside.empty()) comparison.max_ratio = headroom_used(of.run, subject, of.pass, held, comparison);
  conclude(comparison, check);
  if (comparison.outside.empty()) return check;
  check.failed = static_cast<std::int64_t>(comparison.outside.size());
  check.max_ratio = 0;
  for (const std::int64_t i : comparison.outside)
    check.max_ratio = std::max(check.max_ratio, excess_ratio(wrong.interval, i, values[static_cast<std::size_t>(i)]));
  check.worst = worst_elements(comparison, wrong.interval, subject.got, values);
  check.map = map_of(wrong);
  if (else_right && !one_sided.empty()) {  // no replay has a number there
    const bool finite = std::isfinite(values[static_cast<std::size_t>(comparison.outside.front())]);
    check.find(finite ? Code::ac101 : Code::ac102);
    check.cause = one_sided;
    return check;
  }
  classify(wrong, unexplained, of.subjects, of.notes, check);
  return check;
}

/// Errors of either sign, in numbers of the storage type; of elements that are zero nothing relative can be said.
std::vector<double> power_of(CaseRun& run, const Written& tensor, Pass pass, std::span<const double> held) {
  const Interval interval =
      run.reference.interval(run.reference.forms().front(), pass, tensor.name, tensor.dtype, held);
  std::vector<double> seen(4, 0);
  double all = 0;
  for (std::size_t i = 0; i < interval.value.size(); ++i) {
    const double v = interval.value[i];
    if ((!interval.how.empty() && interval.how[i] != Judgement::interval) || v == 0 || !std::isfinite(v)) continue;
    ++all;
    for (std::size_t k = 0; k < seen.size(); ++k) {
      const double error = std::pow(10.0, static_cast<double>(k) - 3);
      double ends[2] = {v * (1 - error), v * (1 + error)};
      round_values(format(tensor.dtype), RoundingMode{}, ends, ends);
      const auto at = static_cast<std::int64_t>(i);
      seen[k] += !admits(interval, at, ends[0]) && !admits(interval, at, ends[1]);
    }
  }
  for (double& share : seen) share = all == 0 ? 0 : share / all;
  return all == 0 ? std::vector<double>() : seen;
}

/// Types without infinity hold their largest number, or NaN, where a number is too large: right, and worth knowing.
void count_saturated(const Subject& subject, CheckResult& check) {
  const Dtype dtype = subject.tensor->dtype;
  if (!is_float(dtype) || format(dtype).has_infinity()) return;
  for (const double v : to_doubles(subject.got)) {
    check.saturated += std::fabs(v) == format(dtype).max_finite();
    check.nans += std::isnan(v);
  }
}

}  // namespace

std::vector<CheckResult> judge(CaseRun& run, const std::vector<Subject>& subjects, Pass pass) {
  Notes notes;
  return judge(run, subjects, pass, notes);
}

std::vector<CheckResult> judge(CaseRun& run, const std::vector<Subject>& subjects, Pass pass, Notes& notes) {
  std::vector<std::vector<double>> held(subjects.size());
  for (std::size_t k = 0; k < subjects.size(); ++k)
    if (pass != Pass::forward && run.accumulates(subjects[k].tensor->name)) held[k] = run.held(*subjects[k].tensor);
  std::vector<Comparison> comparisons;
  const bool clear = judge_by_rows(run, subjects, pass, held, comparisons);
  std::vector<CheckResult> out;
  for (std::size_t k = 0; k < subjects.size(); ++k) {
    if (!clear) {
      out.push_back(judge_whole({run, subjects, pass, notes}, subjects[k], held[k]));
      continue;
    }
    CheckResult& check = out.emplace_back();
    check.id = subjects[k].id;
    check.dtype = subjects[k].tensor->dtype;
    conclude(comparisons[k], check);
  }
  for (std::size_t k = 0; k < subjects.size(); ++k) count_saturated(subjects[k], out[k]);
  for (std::size_t k = 0; run.options.power && k < subjects.size(); ++k)
    out[k].power = power_of(run, *subjects[k].tensor, pass, held[k]);
  return out;
}

namespace {

/// Moves the ends of an interval to what a further form admits beyond it.
void widen_by_forms(CaseRun& run, const Written& tensor, Pass pass, std::span<const double> held,
                    const std::vector<double>& got, Comparison& comparison, Interval& out) {
  const std::vector<std::size_t> forms = run.reference.forms();
  for (std::size_t k = 1; k < forms.size() && !comparison.outside.empty(); ++k) {
    const Interval other = run.reference.interval(forms[k], pass, tensor.name, tensor.dtype, held);
    const std::vector<std::int64_t> before = comparison.outside;
    accept_form(got, other, 0, comparison);
    for (const std::int64_t at : before) {
      if (std::binary_search(comparison.outside.begin(), comparison.outside.end(), at)) continue;
      const auto i = static_cast<std::size_t>(at);
      out.low[i] = std::min(out.low[i], other.low[i]);
      out.high[i] = std::max(out.high[i], other.high[i]);
    }
  }
}

}  // namespace

void save(Dump* dump, const Written& tensor, const TensorView& view, CaseRun& run, Pass pass) {
  if (dump == nullptr) return;
  const std::vector<double> held =
      pass != Pass::forward && run.accumulates(tensor.name) ? run.held(tensor) : std::vector<double>();
  const std::vector<double> got = to_doubles(view);
  Interval interval = run.reference.interval(run.reference.forms().front(), pass, tensor.name, tensor.dtype, held);
  Comparison comparison = compare(got, interval);
  judge_one_sided(run, tensor, pass, got, interval, comparison);
  widen_by_forms(run, tensor, pass, held, got, comparison, interval);
  if (!comparison.outside.empty() && !forms_are_listed(run) && !run.options.as_written) {
    Notes notes;
    std::vector<std::int64_t> unexplained;
    Interval widened = interval;
    widened.low = interval.low.separate();
    widened.high = interval.high.separate();
    const WrongTensor wrong{run, tensor, pass, got, interval, comparison};
    if (right_if_regrouped(wrong, held, notes, unexplained, &widened)) interval = widened;
  }
  for (std::size_t i = 0; i < interval.how.size(); ++i)  // an element that is not judged may be anything
    if (unjudged(interval, i)) {
      interval.low[i] = -HUGE_VAL;
      interval.high[i] = HUGE_VAL;
    }
  dump->entries.push_back({tensor.name + ".got", tensor.shape, tensor.dtype, got});
  dump->entries.push_back(
      {tensor.name + ".want", tensor.shape, Dtype::fp64, {interval.value.begin(), interval.value.end()}});
  dump->entries.push_back(
      {tensor.name + ".low", tensor.shape, tensor.dtype, {interval.low.begin(), interval.low.end()}});
  dump->entries.push_back(
      {tensor.name + ".high", tensor.shape, tensor.dtype, {interval.high.begin(), interval.high.end()}});
}

}  // namespace ampcheck::checks
