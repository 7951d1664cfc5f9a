// SPDX-License-Identifier: Apache-2.0
#include "checks/train/watch.h"

#include <algorithm>
#include <cmath>

#include "src/op_call.h"

namespace ampcheck::checks::train {

namespace {

bool is_16_bit(Dtype dtype) { return dtype == Dtype::fp16 || dtype == Dtype::bf16; }

double relative(double error2, double of2) { return of2 > 0 ? std::sqrt(error2 / of2) : error2 > 0 ? INFINITY : 0; }

}  // namespace

const char* name(FaultRole role) {
  constexpr const char* kNames[] = {"none", "producer", "propagator", "killer"};
  return kNames[static_cast<int>(role)];
}

void Tally::add(const Tally& other) {
  tensors += other.tensors, elements += other.elements, nonzero += other.nonzero, flushed += other.flushed, overflowed += other.overflowed;
  error2 += other.error2, exact2 += other.exact2, carried_error2 += other.carried_error2, carried2 += other.carried2;
  intended += other.intended, stagnant += other.stagnant;
}

double Tally::local_error() const { return relative(error2, exact2); }
double Tally::carried_error() const { return relative(carried_error2, carried2); }

std::string TensorKey::str() const {
  std::string out = op;
  if (!layer.empty() && layer != op) out += " (" + layer + ")";
  out += std::string(" ") + ampcheck::checks::train::name(phase) + " ";
  return out + (cast ? "cast of " + tensor + " to " + ampcheck::name(dtype) : tensor);
}

void Watch::begin(int step, const models::StepRecord* carried, bool first_micro_batch) {
  step_ = step;
  carried_ = carried;
  if (first_micro_batch) of_step_.clear();
}

/// The values of the fp64 run for this tensor: of an op's output or input, or what the op added to a gradient.
const std::vector<double>* Watch::carried_of(const Event& event) const {
  if (event.phase > Phase::backward) return nullptr;
  if (carried_ == nullptr) return nullptr;
  const models::RecordedCall* call = carried_->find(event.op);
  if (call == nullptr) return nullptr;
  const auto value = [&](const std::vector<std::vector<double>>& of, int id) { return &of[static_cast<std::size_t>(id)]; };
  if (event.phase == Phase::backward) {
    const auto gradient = carried_->gradients.find(std::string(event.op) + " " + std::string(event.tensor));
    return gradient == carried_->gradients.end() ? nullptr : &gradient->second;
  }
  if (!event.cast) return event.tensor == call->output_name ? value(carried_->values, call->output) : nullptr;
  for (const auto& [input, id] : call->inputs)
    if (event.tensor == input) return value(carried_->values, id);
  return nullptr;
}

bool Watch::wants(std::string_view op) const {
  return sampling_.step(step_) && (sampling_.ops == "*" || matches(sampling_.ops, op));
}

FaultRole Watch::note_fault(const Event& event, const TensorKey& key) {
  const bool finite = all_finite(event.got);
  FaultRole role = FaultRole::none;
  if (!finite) role = event.inputs_finite ? FaultRole::producer : FaultRole::propagator;
  else if (event.phase == Phase::backward ? !event.cotangent_finite : !event.inputs_finite) role = FaultRole::killer;
  if (role != FaultRole::none && faults_.size() < kMostFaults) faults_.push_back({event.step, role, key});
  return role;
}

void Watch::see(const Event& event) {
  const TensorKey key{event.phase, event.cast, event.got.dtype, std::string(event.op), std::string(event.layer), std::string(event.tensor)};
  const FaultRole role = note_fault(event, key);
  Tally tally;
  tally.tensors = 1;
  tally.elements = event.got.count();
  const std::vector<double>* of_record = carried_of(event);
  const std::span<const double> carried = of_record != nullptr ? std::span<const double>(*of_record) : event.carried;
  const std::vector<double> got = event.exact.empty() && carried.empty() ? std::vector<double>() : to_doubles(event.got);
  const double noise = noise_of(event.exact), smallest = format(event.got.dtype).min_subnormal();
  for (std::size_t i = 0; i < event.exact.size(); ++i) {
    const double x = got[i], r = event.exact[i];
    if (!std::isfinite(r)) continue;
    if (std::fabs(r) > noise) {
      ++tally.nonzero;
      tally.flushed += x == 0 && std::fabs(r) < smallest;  // a zero for a larger value is an error, but no flush
    }
    if (!std::isfinite(x)) {
      ++tally.overflowed;
      continue;
    }
    tally.error2 += (x - r) * (x - r), tally.exact2 += r * r;
  }
  tally.intended = event.intended, tally.stagnant = event.stagnant;
  const double inverse = 1 / event.scale;
  if (!carried.empty() && carried.size() == got.size())
    for (std::size_t i = 0; i < got.size(); ++i) {
      const double x = got[i] * inverse, r = carried[i];
      if (!std::isfinite(x) || !std::isfinite(r)) continue;
      tally.carried_error2 += (x - r) * (x - r), tally.carried2 += r * r;
    }
  if (event.phase == Phase::backward && is_16_bit(event.got.dtype)) {
    if (!carried.empty() && carried.size() == got.size()) ranges_[key.str()].add(carried, 1);
    else if (!event.exact.empty()) ranges_[key.str()].add(event.exact, event.scale);
  }
  of_step_[key].add(tally);
  of_run_[key].add(tally);
  if (listener_) listener_(event, key, tally, role);
}

}  // namespace ampcheck::checks::train
