// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include "checks/train/diagnosis.h"

#include <algorithm>
#include <cmath>

namespace ampcheck::checks::train {

namespace {

/// A widening cast is exact.
bool loses(const TensorKey& key) { return !key.cast || key.dtype != Dtype::fp32; }

Noise noise_of(const std::map<TensorKey, Tally>& tallies) {
  Noise out;
  for (const auto& [key, tally] : tallies) out.add(key.phase, tally.sizes());
  return out;
}

/// The first of each kind; what the scaler skipped apart.
void take_faults(const std::vector<FaultEvent>& faults, Diagnosis& out) {
  for (const FaultEvent& fault : faults) {
    const bool caught = std::find(out.skipped.begin(), out.skipped.end(), fault.step) != out.skipped.end() &&
                        fault.where.phase == Phase::backward;
    std::optional<FaultEvent>& producer = caught ? out.caught : out.producer;
    if (fault.role == FaultRole::producer && !producer) producer = fault;
    if (fault.role == FaultRole::killer && !out.killer) out.killer = fault;
  }
}

}  // namespace

std::optional<Place> worst_of(const std::map<TensorKey, Tally>& tallies) {
  const Noise noise = noise_of(tallies);
  std::optional<Place> worst;
  const auto flushed = [](const Place& p) { return is_gradient(p.where.phase) ? p.tally.flushed_share() : 0; };
  const auto beats = [&](const Place& a, const Place& b) {
    if (a.tally.overflowed != b.tally.overflowed) return a.tally.overflowed > b.tally.overflowed;
    if (flushed(a) != flushed(b)) return flushed(a) > flushed(b);
    return a.tally.local_error() > b.tally.local_error();
  };
  for (const auto& [key, tally] : tallies) {
    if (tally.overflowed == 0 && (!loses(key) || tally.exact2 == 0 || noise.is(key.phase, tally.sizes()))) continue;
    const Place place{key, tally};
    if (!worst || beats(place, *worst)) worst = place;
  }
  return worst;
}

Diagnosis diagnose(const Trainer& trainer, std::span<const StepResult> steps) {
  Diagnosis out;
  out.findings = trainer.findings();
  KnownOverflow overflow;                                                   // of steps that nobody looked at, too
  if (const auto& left = trainer.verdict().left) out.left_at = left->step;  // perhaps before a resume
  for (const StepResult& step : steps) {
    if (!step.stepped) out.skipped.push_back(step.step);
    if (step.ranks_disagree && !out.disagreed_at) out.disagreed_at = step.step;
    out.updates.add(step.updates);
    overflow.add(step.step, step.scale, step.loss, step.found_inf, step.stepped);
  }
  const Watch* watch = trainer.watch();
  if (watch == nullptr) return out;
  take_faults(watch->faults(), out);
  std::int64_t nonzero = 0, flushed = 0;
  out.worst = worst_of(watch->of_run());
  const Noise noise = noise_of(watch->of_run());
  std::map<std::string, GradientRange> ranges = watch->ranges();
  for (const auto& [key, tally] : watch->of_run()) {
    if (!loses(key)) continue;
    if (noise.is(key.phase, tally.sizes())) {
      ranges.erase(key.str());
      continue;
    }
    if (tally.exact2 > 0) out.least_exact.push_back({key, tally});
    if (!is_gradient(key.phase) || key.dtype == Dtype::fp32) continue;
    nonzero += tally.nonzero;
    flushed += tally.flushed;
    if (tally.flushed > 0) out.vanished.push_back({key, tally});
  }
  const auto by_share = [](const Place& a, const Place& b) {
    return a.tally.flushed_share() > b.tally.flushed_share();
  };
  const auto by_error = [](const Place& a, const Place& b) { return a.tally.local_error() > b.tally.local_error(); };
  std::stable_sort(out.vanished.begin(), out.vanished.end(), by_share);
  std::stable_sort(out.least_exact.begin(), out.least_exact.end(), by_error);
  out.vanished_share = nonzero > 0 ? static_cast<double>(flushed) / static_cast<double>(nonzero) : 0;
  if (trainer.options().dtype != Dtype::fp32) out.scale = advise(ranges, overflow);
  return out;
}

}  // namespace ampcheck::checks::train
