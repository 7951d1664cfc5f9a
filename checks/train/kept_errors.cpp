// SPDX-License-Identifier: Apache-2.0
#include "checks/train/kept_errors.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "src/op_call.h"

namespace ampcheck::checks::train {

namespace {

/// Too large for a float, or no number: zero, as errors that are not finite have a report of their own.
float kept(double error) {
  return std::fabs(error) <= double{std::numeric_limits<float>::max()} ? static_cast<float>(error) : 0.0f;
}

/// values times `factor`, less `from`; none if there are not as many.
std::vector<float> less(const TensorView& values, double factor, const std::vector<double>& from) {
  if (std::ssize(from) != values.count()) return {};
  const std::vector<double> all = to_doubles(values);
  std::vector<float> out(all.size());
  for (std::size_t i = 0; i < all.size(); ++i) out[i] = kept(all[i] * factor - from[i]);
  return out;
}

const std::vector<double>* found_in(const std::map<std::string, std::vector<double>>& all, const std::string& name) {
  const auto found = all.find(name);
  return found == all.end() ? nullptr : &found->second;
}

}  // namespace

std::string TensorKey::str() const {
  std::string out = op;
  if (!layer.empty() && layer != op) out += " (" + layer + ")";
  out += std::string(" ") + ampcheck::checks::train::name(phase) + " ";
  return out + (cast ? "cast of " + tensor + " to " + ampcheck::name(dtype) : tensor);
}

void KeptErrors::clear() {
  local_.clear();
  inherited_.clear();
  sums_.clear();
}

void KeptErrors::add_local(const Event& event, const TensorKey& key, int batch) {
  const std::vector<double> got = to_doubles(event.got), exact = to_doubles(event.exact);
  LocalError out{key, batch, event.scale, std::vector<float>(got.size()), std::vector<float>(got.size())};
  bool any = false;
  for (std::size_t i = 0; i < got.size(); ++i) {
    const double error = got[i] - exact[i];
    out.error[i] = kept(error);
    out.exact[i] = static_cast<float>(exact[i]);
    any |= out.error[i] != 0;
  }
  if (any) local_.push_back(std::move(out));
}

void KeptErrors::add_inherited(const Event& event, const TensorKey& key, int batch, const models::StepRecord& record) {
  const models::RecordedCall* const call = record.find(event.op);
  if (call == nullptr) return;
  if (event.phase == Phase::forward) {
    InheritedErrors& met = inherited_.emplace_back(InheritedErrors{.where = key, .batch = batch});
    met.output = less(event.exact, 1, record.values[static_cast<std::size_t>(call->output)]);
    for (const auto& [name, id] : call->inputs)
      for (const auto& [read, view] : *event.inputs)
        if (read == name && is_float(view.dtype))
          met.inputs[name] = less(view, 1, record.values[static_cast<std::size_t>(id)]);
    return;
  }
  const auto met = std::find_if(inherited_.rbegin(), inherited_.rend(),
                                [&](const InheritedErrors& m) { return m.batch == batch && m.where.op == event.op; });
  const std::vector<double>* const exact =
      found_in(record.gradients, std::string(event.op) + " " + std::string(event.tensor));
  if (met == inherited_.rend() || exact == nullptr) return;
  if (met->cotangent.empty())
    met->cotangent = less(event.cotangent, 1 / event.scale, record.cotangents[static_cast<std::size_t>(call->output)]);
  for (const auto& [name, id] : call->inputs)
    if (event.tensor == gradient_name(name)) met->gradients[name] = less(event.exact, 1 / event.scale, *exact);
}

void KeptErrors::add_sum(const GradientSum& sum, int batch) {
  const std::vector<double> got = to_doubles(sum.got), first = to_doubles(sum.first), second = to_doubles(sum.second);
  SumError out{std::string(sum.of), sum.parameter, batch, sum.scale, std::vector<float>(got.size())};
  bool any = false;
  for (std::size_t i = 0; i < got.size(); ++i) {
    out.error[i] = kept(got[i] - first[i] - second[i]);
    any |= out.error[i] != 0;
  }
  if (any) sums_.push_back(std::move(out));
}

}  // namespace ampcheck::checks::train
