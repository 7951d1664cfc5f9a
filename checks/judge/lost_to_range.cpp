// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include "checks/judge/lost_to_range.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "checks/case/form_comparison.h"
#include "checks/case/wrong_tensor.h"
#include "src/code.h"
#include "src/rounding.h"

namespace ampcheck::checks {

namespace {

/// What all wrong elements have in common.
enum class Lost {
  nothing,
  to_zero,        ///< zero where numbers are due that storage holds
  to_overflow,    ///< at least one is infinite or NaN, all others zero, where numbers are due
  to_saturation,  ///< finite where the value overflows
  to_largest,     ///< of these, the largest number of the storage type with the value's sign
};

/// The largest size of inputs at which nothing comes near the ends of fp32's range. Zeros are held against larger ones:
/// a function that is cut off at 5 or 10 has lost its tail, and no number of its own is out of range.
/// `another`: numbers of another tensor are known to overflow.
double usual_for(Lost lost, bool another) { return lost == Lost::to_zero && !another ? 16 : 4; }

Lost lost_of(const WrongTensor& wrong) {
  const double largest = format(wrong.tensor.dtype).max_finite(), least = format(wrong.tensor.dtype).min_normal();
  std::size_t non_finite = 0, zero = 0, of_normal = 0, finite = 0, at_largest = 0;
  for (const std::int64_t at : wrong.comparison.outside) {
    const auto i = static_cast<std::size_t>(at);
    const double got = wrong.got[i], v = wrong.interval.value[i];
    if (std::isnan(v)) return Lost::nothing;
    const bool overflows = std::isinf(wrong.interval.low[i]) && wrong.interval.low[i] == wrong.interval.high[i];
    if (overflows || std::isinf(v)) {
      if (!std::isfinite(got)) return Lost::nothing;
      ++finite;
      at_largest += got == std::copysign(largest, v);
    } else if (!std::isfinite(got))
      ++non_finite;
    else if (got == 0 && v != 0) {
      ++zero;
      of_normal += std::fabs(v) >= least;
    } else
      return Lost::nothing;
  }
  if (finite > 0 && non_finite + zero > 0) return Lost::nothing;
  if (non_finite > 0) return Lost::to_overflow;
  if (finite == 0) return zero == of_normal ? Lost::to_zero : Lost::nothing;
  return at_largest == finite ? Lost::to_largest : Lost::to_saturation;
}

/// Brings the finite numbers to at most `usual` by a power of two; true if that changes them.
bool shrink(std::vector<double>& values, Dtype dtype, double usual) {
  double largest = 0;
  for (const double v : values)
    if (std::isfinite(v)) largest = std::max(largest, std::fabs(v));
  if (!(largest > usual)) return false;
  const int down = std::ilogb(usual) - std::ilogb(largest) - 1;
  for (double& v : values) v = std::ldexp(v, down);
  round_values(format(dtype), RoundingMode{}, values, values);
  return true;
}

/// The inputs and the cotangents in use, brought to usual sizes; nothing where they have them.
struct Smaller {
  NamedValues inputs, cotangents;
};
std::optional<Smaller> smaller(const WrongTensor& wrong, double usual) {
  const CaseRun& run = wrong.run;
  Smaller out{run.reference.inputs(), {}};
  bool changed = false;
  for (const TensorSpec& spec : run.op.signature.inputs)
    if (run.call.has(spec) && is_float(run.call.dtype(spec)))
      changed |= shrink(out.inputs.at(spec.name), run.call.dtype(spec), usual);
  if (wrong.pass != Pass::forward) {
    out.cotangents = run.reference.cotangents();
    for (const Written& output : run.outputs)
      if (const auto given = out.cotangents.find(gradient_name(output.name)); given != out.cotangents.end())
        changed |= shrink(given->second, output.dtype, usual);
  }
  return changed ? std::optional(std::move(out)) : std::nullopt;
}

/// Whether the same elements are no longer lost there; of those that are lost to nothing, whether they are right.
bool kept_when_smaller(const WrongTensor& wrong, Lost lost, double usual) {
  std::optional<Smaller> at = smaller(wrong, usual);
  if (!at) return false;
  RunOptions options = wrong.run.options;
  options.relations = options.power = options.explain = false;
  try {
    CaseRun there(wrong.run.op, wrong.run.call, options, std::move(at->inputs));
    const NamedValues& inputs = there.reference.inputs();
    const LaunchResult forward = there.run_forward(there.forward_tensors(inputs, 0));
    const bool backward = wrong.pass != Pass::forward;
    if (backward) there.reference.set_cotangents(at->cotangents);
    const LaunchResult result =
        backward ? there.run_backward(there.backward_tensors(inputs, forward, at->cotangents, 0)) : forward;
    const std::vector<Written>& all = backward ? there.gradients : there.outputs;
    const auto tensor = std::ranges::find(all, wrong.tensor.name, &Written::name);
    if (tensor == all.end() || !(tensor->shape == wrong.tensor.shape)) return false;
    const std::vector<double> got = to_doubles(result.written.at(tensor->name).view());
    const FormComparison seen = compare_with_forms(there, *tensor, backward ? Pass::backward : Pass::forward, got);
    return std::ranges::all_of(wrong.comparison.outside, [&](std::int64_t i) {
      const auto k = static_cast<std::size_t>(i);
      if (unjudged(seen.nearest, k) || !std::isfinite(seen.nearest.value[k]) || !std::isfinite(got[k])) return false;
      return (got[k] != 0 && lost != Lost::nothing) || !std::ranges::binary_search(seen.comparison.outside, i);
    });
  } catch (const std::bad_alloc&) {  // not theirs
    throw;
  } catch (const std::exception&) {  // it does not run so: the finding stays as it is
    return false;
  }
}

/// `another`: a tensor of the case has lost numbers to an overflow.
void name_one(const WrongTensor& wrong, bool another, CheckResult& check) {
  const Lost lost = lost_of(wrong);
  if (lost == Lost::nothing && !another) return;
  const double usual = usual_for(lost, another);
  const bool finite_inputs = wrong.run.reference.inputs_finite();
  if (lost != Lost::to_largest && (!finite_inputs || !kept_when_smaller(wrong, lost, usual))) return;
  check.find(Code::ac203);
  const auto more_surely = [&](std::string_view head, const char* words) {
    if (check.cause.starts_with(head)) check.cause.replace(0, head.size(), words);
  };
  switch (lost) {
    case Lost::nothing:
      check.cause =
          fmt::format("follows from a number that overflows on the way: at inputs of at most {} it is right", usual);
      return;
    case Lost::to_saturation:
    case Lost::to_largest:
      return more_surely("finite where infinity is due",
                         "finite where the value overflows to infinity: it is clamped or saturates");
    default: break;
  }
  more_surely(
      "all of it is zero: nothing is added up or written, or all of it is a tail, behind the last full vector or block",
      "all of it is zero");
  more_surely("NaN: unwritten, or 0/0 or inf-inf on the way", "NaN: inf-inf, inf/inf or 0 times infinity on the way");
  check.cause +=
      fmt::format("{}a number on the way {}: at inputs of at most {} it is not lost", check.cause.empty() ? "" : "; ",
                  lost == Lost::to_zero ? "leaves the range" : "overflows", usual);
}

}  // namespace

void name_range(CaseRun& run, const std::vector<Subject>& subjects, Pass pass, std::vector<CheckResult>& checks) {
  if (!run.options.explain) return;
  const bool another = std::ranges::any_of(
      run.checks, [](const CheckResult& c) { return c.code == Code::ac203 && is_of_pass(c.id) && c.failed > 0; });
  for (std::size_t k = 0; k < checks.size(); ++k) {
    CheckResult& check = checks[k];
    const Written& tensor = *subjects[k].tensor;
    const bool wrong_number = is_wrong_number(check.code) || check.code == Code::ac103;
    if (check.failed == 0 || !wrong_number || run.accumulates(tensor.name)) continue;
    const std::vector<double> got = to_doubles(subjects[k].got);
    const FormComparison seen = compare_with_forms(run, tensor, pass, got);
    if (!seen.comparison.outside.empty())
      name_one({run, tensor, pass, got, seen.nearest, seen.comparison}, another, check);
  }
}

}  // namespace ampcheck::checks
