// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include "checks/judge/declared_range.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "src/rounding.h"

namespace ampcheck::checks {

namespace {

/// Sizes that are finite, or normal, in storage by a binade: whatever rounding does to them.
bool surely_finite(Dtype dtype, double value) { return std::fabs(value) <= format(dtype).max_finite() / 2; }
bool surely_normal(Dtype dtype, double value) {
  return std::fabs(value) >= 2 * format(dtype).min_normal() && surely_finite(dtype, value);
}

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
void add_check(CaseRun& run, const CheckId& id, const Written& tensor, const TensorView& got, const Lost& lost,
               const Value& value, const std::string& where) {
  CheckResult check;
  check.id = id;
  check.dtype = tensor.dtype;
  check.compared = tensor.shape.count();
  const std::vector<double> values = to_doubles(got);
  std::int64_t first = -1;
  for (std::int64_t i = 0; i < check.compared; ++i)
    if (lost(i, values[static_cast<std::size_t>(i)])) {
      ++check.failed;
      first = first < 0 ? i : first;
    }
  if (first >= 0) {
    check.find(Code::ac203);
    const double got_first = values[static_cast<std::size_t>(first)];
    check.cause =
        fmt::format("{} is {} where {:.4g} is due, {}: a number on the way {}", tensor.name, number_text(got_first),
                    value(first), where, got_first == 0 ? "is flushed to zero" : "overflows");
  }
  run.add(std::move(check));
}

/// Where some order leaves the range, the judge takes what is not finite; here it is lost if its value is finite.
void check_at_inputs(CaseRun& run, const Written& tensor, Pass pass, const TensorView& got) {
  const Interval interval = run.reference.interval(run.reference.forms().front(), pass, tensor.name, tensor.dtype);
  const auto value = [&](std::int64_t i) { return interval.value[static_cast<std::size_t>(i)]; };
  const auto open = [&](std::int64_t i) {
    const auto at = static_cast<std::size_t>(i);
    return (!interval.how.empty() && interval.how[at] != Judgement::interval) || std::isinf(interval.low[at]) ||
           std::isinf(interval.high[at]);
  };
  add_check(
      run, {CheckId::Kind::range, tensor.name}, tensor, got,
      [&](std::int64_t i, double v) { return open(i) && !std::isfinite(v) && surely_finite(tensor.dtype, value(i)); },
      value, fmt::format("at inputs of at most {} as declared", number_text(run.op.signature.range.largest_input)));
}

/// Elements that are not zero, whatever rounding does: sums that cancel may be zero in one order and not in another.
std::vector<char> surely_not_zero(CaseRun& run, const Written& gradient) {
  std::vector<char> out(static_cast<std::size_t>(gradient.shape.count()), 1);
  for (const std::size_t form : run.reference.forms()) {
    const Interval interval = run.reference.interval(form, Pass::backward, gradient.name, gradient.dtype);
    for (std::size_t i = 0; i < out.size(); ++i) {
      const bool judged = interval.how.empty() || interval.how[i] == Judgement::interval;
      out[i] = out[i] != 0 && judged && std::fabs(interval.value[i]) > 2 * interval.radius[i] ? 1 : 0;
    }
  }
  return out;
}

/// The case's first cotangents at a loss scale; nothing where their types do not hold them exactly: then the scale
/// itself loses them.
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

/// A backward at one end of the window, or at the scale nearest to it that the cotangents of the case allow.
struct AtScale {
  double end, scale;
  std::optional<LaunchResult> result;  ///< none where they allow no other than 1
};

AtScale run_at(CaseRun& run, const LaunchResult& forward, double end, double other_end) {
  const double step = other_end > end ? 2 : 0.5;
  for (double scale = end; scale != 1 && scale >= std::min(end, other_end) && scale <= std::max(end, other_end);
       scale *= step)
    if (const auto given = scaled(run, scale))
      return {end, scale, run.run_backward(run.backward_tensors(run.reference.inputs(), forward, *given, 0))};
  return {end, end, std::nullopt};
}

/// `base`: what the kernel wrote at scale 1; a power of two changes nothing but exponents.
void check_at_scale(CaseRun& run, const Written& gradient, const std::vector<double>& base,
                    const std::vector<char>& not_zero, const AtScale& at) {
  const RangeContract& declared = run.op.signature.range;
  const int exponent = std::ilogb(at.scale);
  const CheckId id{.kind = CheckId::Kind::range, .tensor = gradient.name, .loss_scale = exponent};
  const std::string not_tried =
      at.result && at.scale == at.end
          ? ""
          : fmt::format("not tried at 2^{}, the end of the window: cotangents of this case do not fit their type there",
                        std::ilogb(at.end));
  if (!at.result) {
    CheckResult check;
    check.id = id;
    check.dtype = gradient.dtype;
    check.verdict = Verdict::skipped;
    check.note = not_tried;
    run.add(std::move(check));
    return;
  }
  const auto value = [&](std::int64_t i) { return base[static_cast<std::size_t>(i)] * at.scale; };
  const auto lost = [&](std::int64_t i, double v) {
    return (!std::isfinite(v) && surely_finite(gradient.dtype, value(i))) ||
           (v == 0 && not_zero[static_cast<std::size_t>(i)] != 0 && surely_normal(gradient.dtype, value(i)));
  };
  add_check(run, id, gradient, at.result->written.at(gradient.name).view(), lost, value,
            fmt::format("at loss scale 2^{} of the declared window 2^{} to 2^{}", exponent,
                        std::ilogb(declared.smallest_scale), std::ilogb(declared.largest_scale)));
  run.checks.back().note = not_tried;
}

}  // namespace

void check_declared_range(CaseRun& run, const LaunchResult& forward) {
  const RangeContract& declared = run.op.signature.range;
  if (!declared.declared() || run.op.forms.empty() || !run.reference.inputs_finite()) return;
  const bool within = declared.largest_input > 0 && inputs_within(run);
  for (const Written& output : run.outputs)
    if (within && !output.saved && is_float(output.dtype) && !run.accumulates(output.name))
      check_at_inputs(run, output, Pass::forward, forward.written.at(output.name).view());
  if (run.gradients.empty()) return;
  const NamedValues cotangents = run.cotangents(0);
  const LaunchResult usual = run.run_backward(run.backward_tensors(run.reference.inputs(), forward, cotangents, 0));
  std::vector<AtScale> at_scales;
  const double low = declared.smallest_scale, high = declared.largest_scale;
  if (high > 0 && low != 1) at_scales.push_back(run_at(run, forward, low, high));
  if (high > 0 && high != 1 && high != low) at_scales.push_back(run_at(run, forward, high, low));
  for (const Written& gradient : run.gradients) {
    if (run.accumulates(gradient.name)) continue;
    if (within) check_at_inputs(run, gradient, Pass::backward, usual.written.at(gradient.name).view());
    if (at_scales.empty()) continue;
    const std::vector<double> base = to_doubles(usual.written.at(gradient.name).view());
    const std::vector<char> not_zero = surely_not_zero(run, gradient);
    for (const AtScale& at : at_scales) check_at_scale(run, gradient, base, not_zero, at);
  }
}

}  // namespace ampcheck::checks
