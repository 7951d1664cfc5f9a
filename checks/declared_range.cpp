// SPDX-License-Identifier: Apache-2.0
#include "checks/declared_range.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "src/rounding.h"

namespace ampcheck::checks {

namespace {

/// Sizes that are finite, or normal, in storage by a binade: whatever rounding does to them.
bool surely_finite(Dtype dtype, double value) { return std::fabs(value) <= format(dtype).max_finite() / 2; }
bool surely_normal(Dtype dtype, double value) { return std::fabs(value) >= 2 * format(dtype).min_normal() && surely_finite(dtype, value); }

bool inputs_within(const CaseRun& run) {
  const double largest = run.op.signature.range.largest_input;
  for (const TensorSpec& spec : run.op.signature.inputs) {
    if (!run.call.has(spec) || !is_float(run.call.dtype(spec))) continue;
    for (const double v : run.reference.inputs().at(spec.name))
      if (!(std::fabs(v) <= largest)) return false;
  }
  return true;
}

/// Counts the elements that are lost: `lost(i)` of those whose right value is `value(i)`.
template <class Lost, class Value>
void add_check(CaseRun& run, const std::string& name, const Written& tensor, const TensorView& got, const Lost& lost, const Value& value, const std::string& where) {
  CheckResult check;
  check.name = name, check.dtype = tensor.dtype, check.compared = tensor.shape.count();
  const std::vector<double> values = to_doubles(got);
  std::int64_t first = -1;
  for (std::int64_t i = 0; i < check.compared; ++i)
    if (lost(i, values[static_cast<std::size_t>(i)])) ++check.failed, first = first < 0 ? i : first;
  if (first >= 0) {
    check.code = "AC203", check.verdict = find_code("AC203")->verdict;
    const double got_first = values[static_cast<std::size_t>(first)];
    check.cause = fmt::format("{} is {} where {:.4g} is due, {}: a number on the way {}", tensor.name, number_text(got_first), value(first), where,
                              got_first == 0 ? "is flushed to zero" : "overflows");
  }
  run.add(std::move(check));
}

void check_at_inputs(CaseRun& run, const Written& tensor, Pass pass, const TensorView& got) {
  const Interval interval = run.reference.interval(run.reference.forms().front(), pass, tensor.name, tensor.dtype);
  const auto value = [&](std::int64_t i) { return interval.value[static_cast<std::size_t>(i)]; };
  const auto open = [&](std::int64_t i) { return !interval.how.empty() && interval.how[static_cast<std::size_t>(i)] != Judgement::interval; };
  add_check(run, "range " + tensor.name, tensor, got, [&](std::int64_t i, double v) { return open(i) && !std::isfinite(v) && surely_finite(tensor.dtype, value(i)); }, value,
            fmt::format("at inputs of at most {} as declared", number_text(run.op.signature.range.largest_input)));
}

/// The case's first cotangents at a loss scale; nothing where a type does not hold them exactly.
std::optional<NamedValues> scaled(const CaseRun& run, double scale) {
  NamedValues out = run.reference.cotangents();
  for (const Written& output : run.outputs) {
    if (output.saved) continue;
    std::vector<double>& values = out.at(gradient_name(output.name));
    for (double& v : values) v *= scale;
    std::vector<double> stored = values;
    round_values(format(output.dtype), RoundingMode{}, stored, stored);
    if (stored != values) return std::nullopt;  // NaN, too large or too small
  }
  return out;
}

}  // namespace

void check_declared_range(CaseRun& run, const LaunchResult& forward) {
  const RangeContract& declared = run.op.signature.range;
  if (!declared.declared() || run.op.forms.empty() || !run.reference.inputs_finite()) return;
  const bool within = declared.largest_input > 0 && inputs_within(run);
  for (const Written& output : run.outputs)
    if (within && !output.saved && is_float(output.dtype) && !run.accumulates(output.name)) check_at_inputs(run, output, Pass::forward, forward.written.at(output.name).view());
  if (run.gradients.empty()) return;
  const NamedValues cotangents = run.cotangents(0);
  const LaunchResult usual = run.run_backward(run.backward_tensors(run.reference.inputs(), forward, cotangents, 0));
  std::vector<std::pair<double, LaunchResult>> at_scales;
  for (const double scale : {declared.smallest_scale, declared.largest_scale}) {
    if (declared.largest_scale == 0 || scale == 1) continue;
    if (const auto given = scaled(run, scale)) at_scales.emplace_back(scale, run.run_backward(run.backward_tensors(run.reference.inputs(), forward, *given, 0)));
  }
  for (const Written& gradient : run.gradients) {
    if (run.accumulates(gradient.name)) continue;
    if (within) check_at_inputs(run, gradient, Pass::backward, usual.written.at(gradient.name).view());
    const std::vector<double> base = to_doubles(usual.written.at(gradient.name).view());
    for (const auto& [scale, result] : at_scales) {
      const auto value = [&, times = scale](std::int64_t i) { return base[static_cast<std::size_t>(i)] * times; };
      add_check(run, fmt::format("range {} at loss scale 2^{}", gradient.name, std::ilogb(scale)), gradient, result.written.at(gradient.name).view(),
                [&](std::int64_t i, double v) { return (!std::isfinite(v) && surely_finite(gradient.dtype, value(i))) || (v == 0 && surely_normal(gradient.dtype, value(i))); }, value,
                fmt::format("at loss scale 2^{} of the declared window 2^{} to 2^{}", std::ilogb(scale), std::ilogb(declared.smallest_scale), std::ilogb(declared.largest_scale)));
    }
  }
}

}  // namespace ampcheck::checks
