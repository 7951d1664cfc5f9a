// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include "checks/explain/another_call.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>

#include "checks/case/case_run.h"
#include "reference/replay/replay.h"
#include "src/rounding.h"

namespace ampcheck::checks {

namespace {

/// Nine of ten wrong elements, and nearly all others, are right for these intervals; what the declared ones admit as
/// well shows nothing.
bool admitted_by(const std::vector<Interval>& forms, const WrongTensor& wrong) {
  const auto right = [&](std::int64_t i) {
    return std::any_of(forms.begin(), forms.end(), [&](const Interval& form) {
      return !unjudged(form, static_cast<std::size_t>(i)) && admits(form, i, wrong.got[static_cast<std::size_t>(i)]);
    });
  };
  std::vector<double> others(forms.back().value.begin(), forms.back().value.end());
  round_values(format(wrong.tensor.dtype), RoundingMode{}, others, others);
  std::int64_t outside = 0, telling = 0, all = 0;
  for (const std::int64_t i : wrong.comparison.outside) {
    outside += right(i);
    telling += !admits(wrong.interval, i, others[static_cast<std::size_t>(i)]);
  }
  const std::int64_t most = std::ssize(wrong.comparison.outside);
  if (10 * outside < 9 * most || 2 * telling < most) return false;
  for (std::int64_t i = 0; i < std::ssize(wrong.got); ++i) all += right(i);
  return 20 * all >= 19 * std::ssize(wrong.got);
}

/// Whether the tensor is right for this call and these inputs.
bool right_for(const WrongTensor& wrong, const OpCall& call, NamedValues inputs) {
  try {
    CaseReference other(wrong.run.op, call, std::move(inputs), wrong.run.options.device);
    if (!(CaseReference::shape_of(nodes_of(other.recording(), wrong.pass), wrong.tensor.name) == wrong.tensor.shape))
      return false;
    if (wrong.pass != Pass::forward) {
      for (const auto& [name, node] : other.recording().cotangents)
        if (const auto given = wrong.run.reference.cotangents().find(name);
            given == wrong.run.reference.cotangents().end() || std::ssize(given->second) != node.shape().count())
          return false;
      other.set_cotangents(wrong.run.reference.cotangents());
    }
    std::vector<Interval> forms;
    for (const std::size_t form : other.forms()) {
      forms.push_back(other.interval(form, wrong.pass, wrong.tensor.name, wrong.tensor.dtype));
      if (admitted_by(forms, wrong)) return true;
    }
  } catch (const std::bad_alloc&) {  // not theirs
    throw;
  } catch (const std::exception&) {  // no such call
  }
  return false;
}

std::string value_text(const AttributeValue& value) {
  if (const double* number = std::get_if<double>(&value)) return number_text(*number);
  return std::get<std::string>(value);
}

/// What kernels make of indices by mistake; of an index that leaves its range the next one inside.
struct Slip {
  const char* words;
  std::int64_t (*of)(std::int64_t index, std::int64_t position, const std::vector<double>& all);
};
constexpr Slip kSlips[] = {
    {"its indices cut to 8 bits: they overflow",
     [](std::int64_t v, std::int64_t, const std::vector<double>&) { return v & 0xff; }},
    {"its indices cut to 8 bits with a sign: they overflow",
     [](std::int64_t v, std::int64_t, const std::vector<double>&) {
       return std::int64_t{static_cast<std::int8_t>(v)};
     }},
    {"its indices cut to 16 bits: they overflow",
     [](std::int64_t v, std::int64_t, const std::vector<double>&) { return v & 0xffff; }},
    {"each index plus 1: another row", [](std::int64_t v, std::int64_t, const std::vector<double>&) { return v + 1; }},
    {"each index less 1: another row", [](std::int64_t v, std::int64_t, const std::vector<double>&) { return v - 1; }},
    {"the first index for all: another row",
     [](std::int64_t, std::int64_t, const std::vector<double>& all) { return static_cast<std::int64_t>(all.front()); }},
    {"the next index: another row's",
     [](std::int64_t, std::int64_t at, const std::vector<double>& all) {
       return static_cast<std::int64_t>(all[static_cast<std::size_t>(at + 1) % all.size()]);
     }},
    {"the previous index: another row's",
     [](std::int64_t, std::int64_t at, const std::vector<double>& all) {
       return static_cast<std::int64_t>(all[(static_cast<std::size_t>(at) + all.size() - 1) % all.size()]);
     }},
    {"index 0 for the negative ones: a sentinel is followed",
     [](std::int64_t v, std::int64_t, const std::vector<double>&) { return std::max<std::int64_t>(v, 0); }},
    {"the largest one less 1: clamped one too early, another row",
     [](std::int64_t v, std::int64_t, const std::vector<double>& all) {
       return std::min(v, static_cast<std::int64_t>(*std::max_element(all.begin(), all.end())) - 1);
     }},
    {"their positions in place of the indices",
     [](std::int64_t, std::int64_t at, const std::vector<double>&) { return at; }},
};

/// What kernels make of floating-point inputs before they compute.
struct Taken {
  const char* words;
  double (*of)(double v, double least);
};
constexpr Taken kTaken[] = {
    {"its subnormal numbers taken as zero",
     [](double v, double least) { return std::fabs(v) < least ? std::copysign(0.0, v) : v; }},
    {"its subnormal numbers taken as the smallest normal number",
     [](double v, double least) { return v != 0 && std::fabs(v) < least ? std::copysign(least, v) : v; }},
    {"zero and its subnormal numbers taken as the smallest normal number",
     [](double v, double least) { return std::fabs(v) < least ? least : v; }},
};

std::string with_other_numbers(const WrongTensor& wrong, const TensorSpec& spec, bool& as_zero) {
  const NamedValues& inputs = wrong.run.reference.inputs();
  const std::vector<double>& given = inputs.at(spec.name);
  const double least = format(wrong.run.call.dtype(spec)).min_normal();
  for (const Taken& taken : kTaken) {
    NamedValues others = inputs;
    std::vector<double>& values = others.at(spec.name);
    for (double& v : values) v = taken.of(v, least);
    as_zero = &taken == &kTaken[0];
    if (values != given && right_for(wrong, wrong.run.call, std::move(others)))
      return fmt::format("right for '{}' with {}", spec.name, taken.words);
  }
  return "";
}

/// A derivative that is taken at an output where the input belongs.
std::string at_an_output(const WrongTensor& wrong, const TensorSpec& spec) {
  if (wrong.pass != Pass::backward) return "";
  const reference::Recording& recording = wrong.run.reference.recording();
  const NamedValues& inputs = wrong.run.reference.inputs();
  for (const auto& [name, node] : recording.outputs) {
    if (!(node.shape() == wrong.run.call.shape(spec))) continue;
    Leaves leaves;
    for (const auto& [input, leaf] : recording.inputs) leaves.emplace_back(leaf, inputs.at(input));
    NamedValues others = inputs;
    std::vector<double>& values = others.at(spec.name);
    values = reference::replay(*recording.graph, leaves, {node}, {}).front();
    round_values(format(wrong.run.call.dtype(spec)), RoundingMode{}, values, values);
    if (right_for(wrong, wrong.run.call, std::move(others)))
      return fmt::format("right for {} in place of {}: the derivative is taken at the output", name, spec.name);
  }
  return "";
}

std::string attribute_not_followed(const WrongTensor& wrong, const AttributeSpec& spec) {
  const OpSignature& signature = wrong.run.op.signature;
  std::vector<AttributeValue> values{spec.default_value};
  values.insert(values.end(), spec.other_values.begin(), spec.other_values.end());
  if (std::holds_alternative<double>(spec.default_value)) values.emplace_back(0.0);
  const std::string present = value_text(wrong.run.call.attributes.all().at(spec.name));
  for (const AttributeValue& value : values) {
    if (value_text(value) == present) continue;
    OpCall call = wrong.run.call;
    call.attributes.set(spec.name, value);
    if (signature.valid && !signature.valid(call.dims, call.attributes)) continue;
    if (right_for(wrong, call, wrong.run.reference.inputs()))
      return fmt::format("right for {}={} in place of {}: the attribute is not followed", spec.name, value_text(value),
                         present);
  }
  return "";
}

std::string without_input(const WrongTensor& wrong, const TensorSpec& spec) {
  OpCall call = wrong.run.call;
  call.absent.push_back(spec.name);
  NamedValues others = wrong.run.reference.inputs();
  others.erase(spec.name);
  return right_for(wrong, call, std::move(others))
             ? fmt::format("right for a call without '{}': the optional input is left out", spec.name)
             : "";
}

std::string with_other_indices(const WrongTensor& wrong, const TensorSpec& spec) {
  const auto bound = wrong.run.call.dims.find(spec.index_dim);
  const std::int64_t most = bound == wrong.run.call.dims.end() ? INT64_MAX : bound->second - 1;
  const std::vector<double>& given = wrong.run.reference.inputs().at(spec.name);
  for (const Slip& slip : kSlips) {
    NamedValues others = wrong.run.reference.inputs();
    std::vector<double>& index = others.at(spec.name);
    for (std::size_t i = 0; i < index.size(); ++i) {
      const std::int64_t slipped = slip.of(static_cast<std::int64_t>(given[i]), static_cast<std::int64_t>(i), given);
      index[i] = static_cast<double>(
          std::clamp<std::int64_t>(slipped, std::min<std::int64_t>(0, static_cast<std::int64_t>(given[i])), most));
    }
    if (index != given && right_for(wrong, wrong.run.call, std::move(others)))
      return fmt::format("right for '{}' with {}", spec.name, slip.words);
  }
  return "";
}

}  // namespace

std::string right_for_another_call(const WrongTensor& wrong) {
  if (wrong.pass == Pass::jvp || wrong.pass == Pass::backward_at_saved ||
      wrong.tensor.shape.count() > kLargestExplained || wrong.tensor.saved || wrong.run.accumulates(wrong.tensor.name))
    return "";
  for (const AttributeSpec& spec : wrong.run.op.signature.attributes)
    if (const std::string words = attribute_not_followed(wrong, spec); !words.empty()) return words;
  for (const TensorSpec& spec : wrong.run.op.signature.inputs) {
    if (!wrong.run.call.has(spec)) continue;
    std::string words = spec.optional ? without_input(wrong, spec) : "";
    if (words.empty() && is_float(wrong.run.call.dtype(spec))) words = at_an_output(wrong, spec);
    if (words.empty() && (spec.role == Role::index || spec.role == Role::target))
      words = with_other_indices(wrong, spec);
    if (!words.empty()) return words;
  }
  return "";
}

std::string without_subnormals(const WrongTensor& wrong, bool& as_zero) {
  if (wrong.pass == Pass::jvp || wrong.pass == Pass::backward_at_saved ||
      wrong.tensor.shape.count() > kLargestExplained || wrong.tensor.saved || wrong.run.accumulates(wrong.tensor.name))
    return "";
  for (const TensorSpec& spec : wrong.run.op.signature.inputs)
    if (wrong.run.call.has(spec) && is_float(wrong.run.call.dtype(spec)))
      if (const std::string words = with_other_numbers(wrong, spec, as_zero); !words.empty()) return words;
  return "";
}

}  // namespace ampcheck::checks
