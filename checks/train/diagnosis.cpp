// SPDX-License-Identifier: Apache-2.0
#include "checks/train/diagnosis.h"

#include <algorithm>
#include <cmath>

namespace ampcheck::checks::train {

namespace {

/// A widening cast is exact.
bool loses(const TensorKey& key) { return !key.cast || key.dtype != Dtype::fp32; }

/// On its way to the parameter, between ranks too.
bool is_gradient(const TensorKey& key) { return key.phase == Phase::backward || key.phase == Phase::all_reduce; }

}  // namespace

/// Mean square of the exact values; 0 without a shadow.
double mean_square(const Tally& tally) { return tally.elements > 0 ? tally.exact2 / static_cast<double>(tally.elements) : 0; }

std::optional<Place> worst_of(const std::map<TensorKey, Tally>& tallies) {
  double largest[kPhases] = {};
  for (const auto& [key, tally] : tallies) largest[static_cast<int>(key.phase)] = std::max(largest[static_cast<int>(key.phase)], mean_square(tally));
  std::optional<Place> worst;
  const auto flushed = [](const Place& p) { return is_gradient(p.where) ? p.tally.flushed_share() : 0; };
  const auto beats = [&](const Place& a, const Place& b) {
    if (a.tally.overflowed != b.tally.overflowed) return a.tally.overflowed > b.tally.overflowed;
    if (flushed(a) != flushed(b)) return flushed(a) > flushed(b);
    return a.tally.local_error() > b.tally.local_error();
  };
  // Below fp32's rounding of the largest: a gradient that is zero by a symmetry, and what it trains.
  const double noise = kFp32.unit_roundoff() * kFp32.unit_roundoff();
  for (const auto& [key, tally] : tallies) {
    if (!loses(key) || mean_square(tally) <= noise * largest[static_cast<int>(key.phase)]) continue;
    const Place place{key, tally};
    if (!worst || beats(place, *worst)) worst = place;
  }
  return worst;
}

Diagnosis diagnose(const Trainer& trainer, std::span<const StepResult> steps) {
  Diagnosis out;
  KnownOverflow overflow;  // of steps that nobody looked at, too
  if (const auto& left = trainer.verdict().left) out.left_at = left->step, out.spread = left->spread;  // perhaps before a resume
  for (const StepResult& step : steps) {
    if (step.spread && !out.left_at) out.spread = *step.spread;
    if (!step.stepped) out.skipped.push_back(step.step);
    if (step.ranks_disagree && !out.disagreed_at) out.disagreed_at = step.step;
    out.updates.add(step.updates);
    overflow.add(step.step, step.scale, step.loss, step.found_inf, step.stepped);
  }
  const Watch* watch = trainer.watch();
  if (watch == nullptr) return out;
  for (const FaultEvent& fault : watch->faults()) {
    const bool caught = std::find(out.skipped.begin(), out.skipped.end(), fault.step) != out.skipped.end() && fault.where.phase == Phase::backward;
    if (fault.role == FaultRole::producer && !out.producer && !caught) out.producer = fault;
    if (fault.role == FaultRole::killer && !out.killer) out.killer = fault;
  }
  std::int64_t nonzero = 0, flushed = 0;
  out.worst = worst_of(watch->of_run());
  for (const auto& [key, tally] : watch->of_run()) {
    if (!loses(key)) continue;
    if (tally.exact2 > 0) out.least_exact.push_back({key, tally});
    if (!is_gradient(key) || key.dtype == Dtype::fp32) continue;
    nonzero += tally.nonzero, flushed += tally.flushed;
    if (tally.flushed > 0) out.vanished.push_back({key, tally});
  }
  const auto by_share = [](const Place& a, const Place& b) { return a.tally.flushed_share() > b.tally.flushed_share(); };
  const auto by_error = [](const Place& a, const Place& b) { return a.tally.local_error() > b.tally.local_error(); };
  std::stable_sort(out.vanished.begin(), out.vanished.end(), by_share);
  std::stable_sort(out.least_exact.begin(), out.least_exact.end(), by_error);
  out.vanished_share = nonzero > 0 ? static_cast<double>(flushed) / static_cast<double>(nonzero) : 0;
  if (trainer.options().dtype != Dtype::fp32) out.scale = advise(watch->ranges(), format(trainer.options().dtype), overflow);
  return out;
}

}  // namespace ampcheck::checks::train
