// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include "checks/diagnose/observation.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <numeric>

#include "checks/train/checkpoint.h"
#include "checks/train/live_finding.h"
#include "src/amp/error.h"
#include "src/amp/tensor_stats.h"

namespace ampcheck::checks::diagnose {

namespace {

using namespace train;

/// FNV-1a of a dense tensor's bytes.
std::uint64_t fingerprint_of(const TensorView& view) {
  std::uint64_t hash = 14695981039346656037ULL;
  const auto* const data = static_cast<const unsigned char*>(view.data);
  const std::int64_t size = view.count() * bytes(view.dtype);
  for (std::int64_t i = 0; i < size; ++i) hash = (hash ^ data[i]) * 1099511628211ULL;
  return hash;
}

void take_errors(const Tally& tally, Dtype dtype, Dtype run, Sample& out) {
  if (tally.exact2 <= 0 && tally.error2 <= 0) return;
  const double norm = std::sqrt(tally.exact2), error = std::sqrt(tally.error2);
  const double limit = error_limit(dtype, run, norm, tally.elements);
  out.excess = limit > 0 ? error / limit : 0;
  out.error = tally.local_error();
}

void take_shadow(const ShadowStats& shadow, Sample& out) {
  out.toward_zero = shadow.toward_zero;
  out.away_from_zero = shadow.away_from_zero;
  out.judged = shadow.judged;
  out.beyond_half = std::accumulate(shadow.ulps.begin() + 1, shadow.ulps.end(), std::int64_t{0});
  out.error_sum = std::ldexp(static_cast<double>(shadow.error_sum), -16);
  out.error_square = std::ldexp(
      static_cast<double>(shadow.square_sum_low) + std::ldexp(static_cast<double>(shadow.square_sum_high), 64), -32);
}

/// What was due where a tensor is not finite.
void take_exact(const Event& e, Sample& out) {
  const std::vector<double> exact = to_doubles(e.exact), got = to_doubles(e.got);
  std::optional<double> one;
  out.one_value = true;
  for (std::size_t i = 0; i < exact.size(); ++i) {
    if (std::isfinite(exact[i])) out.exact_largest = std::max(out.exact_largest, std::fabs(exact[i]));
    if (std::isfinite(got[i]) || !std::isfinite(exact[i])) continue;
    if (!one) one = exact[i];
    out.one_value &= exact[i] == *one && exact[i] < 0;
  }
  out.one_value &= one.has_value();
}

/// How many magnitudes there are, and how many elements have the largest.
void count_codes(const Event& e, Sample& out) {
  std::map<double, std::int64_t> magnitudes;
  for (const double value : to_doubles(e.got)) ++magnitudes[std::fabs(value)];
  out.codes = std::ssize(magnitudes);
  out.at_largest = magnitudes.rbegin()->second;
}

/// Hears of every tensor of the run.
class Listener {
 public:
  Listener(Observation& out, Dtype dtype) : out_(out), dtype_(dtype) {}

  void operator()(const Event& e, const TensorKey& key, const Tally& tally, FaultRole role, const TensorStats& stats) {
    Sample s;
    s.step = e.step;
    s.rank = e.rank;
    s.sequence = next_++;
    s.role = role;
    s.inputs_finite = e.inputs_finite;
    s.scale = e.scale;
    s.finite = stats.not_finite() == 0;
    s.largest = stats.amax_finite();
    s.headroom = stats.headroom();
    s.elements = stats.count;
    s.not_finite = stats.not_finite();
    s.zeros = stats.zeros;
    s.at_most = stats.at_max;
    s.nonzero = tally.nonzero;
    s.flushed = tally.flushed;
    s.overflowed = tally.overflowed;
    s.has_exact = e.has_exact();
    s.carried = tally.carried_error();
    s.cancelled = e.cancelled;
    s.decisions = tally.decisions;
    s.flipped = tally.flipped;
    s.undecided = tally.undecided;
    take_errors(tally, key.dtype, dtype_, s);
    if (e.has_exact() && s.finite && !e.cast && key.dtype != Dtype::fp64)
      take_shadow(e.shadow != nullptr ? *e.shadow : shadow_stats(e.got, e.exact), s);
    if (e.cast && e.phase == Phase::forward && e.tensor == "weight") s.fingerprint = fingerprint_of(e.got);
    if (!s.finite && e.has_exact()) take_exact(e, s);
    if (e.phase == Phase::forward && s.finite && s.excess > 2) count_codes(e, s);
    const auto [at, fresh] = out_.tracks.try_emplace(key.str());
    if (fresh) {
      at->second.key = key;
      at->second.from = e.from;
      out_.order.push_back(at->first);
    }
    s.batch = batch_of(at->second, e);
    at->second.samples.push_back(s);
  }

 private:
  /// How often this tensor was seen in this step and rank before.
  static int batch_of(const Track& track, const Event& e) {
    int out = 0;
    for (auto s = track.samples.rbegin(); s != track.samples.rend() && s->step == e.step; ++s) out += s->rank == e.rank;
    return out;
  }

  Observation& out_;
  Dtype dtype_;
  std::int64_t next_ = 0;
};

/// Moments in 16 bits before a step, to be compared with what they are after it.
class MomentsBefore {
 public:
  explicit MomentsBefore(Trainer& trainer) {
    if (trainer.sharded() != nullptr) return;
    for (std::size_t i = 0; i < trainer.parameters().all().size(); ++i)
      for (const auto& [name, tensor] : trainer.optimizers().state(i))
        if ((name == "exp_avg_sq" || name == "square_avg") && tensor.dtype() != Dtype::fp32)
          kept_.push_back({i, name, to_doubles(tensor.view())});
  }

  void compare(Trainer& trainer, UpdateSeen& out) const {
    for (const Kept& kept : kept_) {
      const Parameter& parameter = trainer.parameters().all()[kept.parameter];
      if (!parameter.grad.defined()) continue;
      const std::vector<double> now = to_doubles(trainer.optimizers().state(kept.parameter).at(kept.name).view()),
                                grad = to_doubles(parameter.grad.view());
      for (std::size_t i = 0; i < now.size(); ++i) {
        const double target = grad[i] * grad[i];
        if (grad[i] == 0 || kept.values[i] == 0 || std::fabs(target - kept.values[i]) < 0.1 * std::fabs(kept.values[i]))
          continue;
        ++out.moments;
        out.moments_still += now[i] == kept.values[i];
      }
    }
  }

 private:
  struct Kept {
    std::size_t parameter;
    std::string name;
    std::vector<double> values;
  };
  std::vector<Kept> kept_;
};

void take_twice(const TwiceComputed& pair, Observation& out) {
  auto at = std::find_if(out.twice.begin(), out.twice.end(),
                         [&](const TwiceSeen& t) { return t.inferred == pair.inferred && t.op == pair.op; });
  if (at == out.twice.end())
    at = out.twice.insert(out.twice.end(), {.inferred = pair.inferred,
                                            .op = std::string(pair.op),
                                            .layer = std::string(pair.layer),
                                            .first = pair.first.dtype,
                                            .second = pair.second.dtype});
  const std::vector<double> first = to_doubles(pair.first), second = to_doubles(pair.second);
  std::int64_t differing = 0;
  double apart = 0, norm = 0;
  for (std::size_t i = 0; i < first.size(); ++i) {
    const bool same = first[i] == second[i] || (std::isnan(first[i]) && std::isnan(second[i]));
    differing += same ? 0 : 1;
    if (same || !std::isfinite(first[i]) || !std::isfinite(second[i])) continue;
    apart += (first[i] - second[i]) * (first[i] - second[i]);
    at->largest = std::max(at->largest, std::fabs(first[i] - second[i]));
  }
  for (const double v : first)
    if (std::isfinite(v)) norm += v * v;
  if (differing > 0 && at->step < 0) {
    at->step = pair.step;
    at->elements = std::ssize(first);
    at->differing = differing;
  }
  const Dtype narrow =
      format(pair.first.dtype).precision < format(pair.second.dtype).precision ? pair.first.dtype : pair.second.dtype;
  const double limit = rounding_limit(narrow, std::sqrt(norm), std::ssize(first));
  if (norm > 0) at->apart = std::max(at->apart, std::sqrt(apart / norm));
  if (limit > 0) at->excess = std::max(at->excess, std::sqrt(apart) / limit);
}

double norm_of(const std::vector<double>& norms) {
  return std::sqrt(std::inner_product(norms.begin(), norms.end(), norms.begin(), 0.0));
}

void take_norms(const StepResult& step, UpdateSeen& out) {
  out.norm_before = norm_of(step.scaled_norms);
  out.norm_after = norm_of(step.norms);
  for (std::size_t i = 0; i < step.norms.size() && i < step.scaled_norms.size(); ++i) {
    const double before = step.scaled_norms[i], after = step.norms[i] * step.scale;
    out.unscaled.push_back(before > 0 && std::isfinite(before) && std::isfinite(after) ? after / before : 1);
  }
}

/// Every so many steps, and after the first of skipped steps: what outlives a skip shows from there.
void keep(Observation& out, Trainer& trainer, int every) {
  const std::size_t n = out.steps.size();
  const bool after_skip = n > 1 && !out.steps[n - 1].stepped && out.steps[n - 2].stepped;
  if (trainer.sharded() != nullptr || (trainer.steps() % every != 0 && !after_skip)) return;
  out.ring.push_back({trainer.steps(), checkpoint_bytes(trainer)});
  if (out.ring.size() > kRing) out.ring.pop_front();
}

void take_convictions(const Trainer& trainer, Observation& out) {
  if (trainer.judge() == nullptr) return;
  for (const LiveFinding& found : trainer.judge()->findings()) {
    const CheckResult* const check = deciding_check(found.result);
    const bool known =
        std::any_of(out.judged.begin(), out.judged.end(), [&](const JudgedCall& j) { return j.op == found.call; });
    if (check == nullptr || known) continue;
    const RunFinding said = finding_of(found);
    out.judged.push_back({found.call, said.where, found.step, check->code, said.what});
  }
}

}  // namespace

double rounding_limit(Dtype dtype, double norm, std::int64_t elements) {
  const FloatFormat& f = format(dtype);
  return f.unit_roundoff() * norm + f.min_subnormal() / 2 * std::sqrt(static_cast<double>(elements));
}

double error_limit(Dtype dtype, Dtype run, double norm, std::int64_t elements) {
  const bool wide = dtype == Dtype::fp32 && run != Dtype::fp32;
  return wide ? format(run).unit_roundoff() * norm : rounding_limit(dtype, norm, elements);
}

const Checkpoint* Observation::before(int step) const {
  const Checkpoint* out = nullptr;
  for (const Checkpoint& one : ring)
    if (one.step <= step) out = &one;
  return out;
}

std::vector<std::string> Observation::ops() const {
  std::vector<std::string> out;
  for (const std::string& name : order) {
    const TensorKey& key = tracks.at(name).key;
    if (key.phase == Phase::forward && !key.cast && std::find(out.begin(), out.end(), key.op) == out.end())
      out.push_back(key.op);
  }
  return out;
}

Observation observe(const Subject& subject) {
  const auto start = std::chrono::steady_clock::now();
  Observation out;
  Subject looked_at = subject;
  if (looked_at.options.judge == JudgeMode::none) looked_at.options.judge = JudgeMode::sampled;
  const std::unique_ptr<Trainer> trainer =
      make_trainer(looked_at, {}, {.local = true, .carried = true}, std::max(2, subject.options.spread_seeds));
  for (const Parameter& parameter : trainer->parameters().all()) out.parameters.push_back(parameter.name);
  Listener listener(out, subject.options.dtype);
  trainer->watch()->listen([&](const Event& e, const TensorKey& key, const Tally& tally, FaultRole role,
                               const TensorStats& stats) { listener(e, key, tally, role, stats); });
  trainer->watch()->listen_to_twice([&](const TwiceComputed& pair) { take_twice(pair, out); });
  const int every = std::max(1, subject.steps / static_cast<int>(kRing));
  int lost = 0;
  while (trainer->steps() < subject.steps && lost < kAfterNaN) {
    keep(out, *trainer, every);
    const MomentsBefore moments(*trainer);
    try {
      out.steps.push_back(trainer->step());
    } catch (const AmpError& error) {
      out.ended = error.what();
      break;
    }
    out.updates.emplace_back();
    take_norms(out.steps.back(), out.updates.back());
    moments.compare(*trainer, out.updates.back());
    lost = std::isfinite(out.steps.back().loss) ? 0 : lost + 1;
  }
  take_convictions(*trainer, out);
  if (trainer->judge() != nullptr && trainer->judge()->fp8() != nullptr)
    out.fp8 = trainer->judge()->fp8()->departures();
  out.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return out;
}

}  // namespace ampcheck::checks::diagnose
