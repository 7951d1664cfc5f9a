// SPDX-License-Identifier: Apache-2.0
#include "tools/trace/trace_file.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <set>

#include "src/error.h"

namespace ampcheck::tools {

std::string net_in(const std::string& model, const std::string& dtype, const std::string& autocast,
                   const std::string& tables) {
  return model + " in " + dtype +
         (autocast == "none" ? ", no autocast" : ", autocast " + autocast + " (" + tables + ")");
}

std::string TracedTensor::name() const {
  std::string out = op;
  if (!layer.empty() && layer != op) out += " (" + layer + ")";
  out += " " + phase + " ";
  return out + (cast ? "cast of " + tensor + " to " + ampcheck::name(dtype) : tensor);
}

checks::train::Phase TracedTensor::phase_number() const {
  for (int p = 0; p < checks::train::kPhases; ++p)
    if (phase == checks::train::name(static_cast<checks::train::Phase>(p))) return static_cast<checks::train::Phase>(p);
  throw Error("phase " + phase);
}

std::optional<double> TracedTensor::headroom() const {
  if (amax == 0 || inf + nan > 0) return std::nullopt;
  return std::log2(format(dtype).max_finite() / amax);
}

std::optional<double> TracedTensor::footroom() const {
  if (amin == 0) return std::nullopt;
  return std::log2(amin / format(dtype).min_normal());
}

namespace {

/// What means over the steps of a tensor are made of.
struct Moments {
  double local = 0, carried = 0, bias = 0, variance = 0;  ///< sums of squares; sum of differences and its variance
  int locals = 0, carrieds = 0;
  std::int64_t judged = 0;
};

void take_least(std::optional<double>& of, const std::optional<double>& value) {
  if (value) of = of ? std::min(*of, *value) : *value;
}

void add_moments(Moments& m, const TracedTensor& t) {
  const double local = t.local_error.value_or(0), carried = t.carried_error.value_or(0);
  if (t.local_error && std::isfinite(local)) {
    m.local += local * local;
    ++m.locals;
  }
  if (t.carried_error && std::isfinite(carried)) {
    m.carried += carried * carried;
    ++m.carrieds;
  }
  if (!t.bias || !t.bias_z || !std::isfinite(*t.bias)) return;
  // Of the mean over all elements: sums, and variances of sums, add up.
  constexpr std::size_t kBuckets = 18;  // up to 2^15 ulps, what lies beyond has no part in the bias
  const std::int64_t judged = std::accumulate(
      t.ulps.begin(), t.ulps.begin() + static_cast<std::ptrdiff_t>(std::min(kBuckets, t.ulps.size())), std::int64_t{0});
  const double sum = *t.bias * static_cast<double>(judged), deviation = *t.bias_z != 0 ? sum / *t.bias_z : 0;
  m.bias += sum;
  m.variance += deviation * deviation;
  m.judged += judged;
}

void finish(TracedTensor& sum, const Moments& m) {
  if (m.locals > 0) sum.local_error = std::sqrt(m.local / m.locals);
  if (m.carrieds > 0) sum.carried_error = std::sqrt(m.carried / m.carrieds);
  if (m.judged <= 0) return;
  sum.bias = m.bias / static_cast<double>(m.judged);
  sum.bias_z = m.bias == 0 ? 0 : m.bias / std::sqrt(m.variance);
}

void note_worst(TracedSum& s, const TracedTensor& t) {
  const double local = t.local_error.value_or(0), carried = t.carried_error.value_or(0);
  if (t.flushed_share() > s.worst_flushed || (s.worst_flushed == 0 && local > s.worst_local)) s.worst_step = t.step;
  if (t.bias_z && std::fabs(*t.bias_z) > std::fabs(s.worst_bias_z)) s.worst_bias_z = *t.bias_z;
  s.worst_flushed = std::max(s.worst_flushed, t.flushed_share());
  s.worst_local = std::max(s.worst_local, local);
  s.worst_carried = std::max(s.worst_carried, carried);
  take_least(s.least_headroom, t.headroom());
  take_least(s.least_footroom, t.footroom());
}

void add_counts(TracedTensor& sum, const TracedTensor& t) {
  sum.elements += t.elements;
  sum.zero += t.zero;
  sum.subnormal += t.subnormal;
  sum.inf += t.inf;
  sum.nan += t.nan;
  sum.subnormal_loss += t.subnormal_loss;
  sum.saturated += t.saturated;
  sum.nonzero += t.nonzero;
  sum.flushed += t.flushed;
  sum.overflowed += t.overflowed;
  sum.intended += t.intended;
  sum.stagnant += t.stagnant;
  sum.copy_stagnant += t.copy_stagnant;
  sum.second_moment_zero += t.second_moment_zero;
  sum.epsilon_zero += t.epsilon_zero;
  sum.ulps.resize(std::max(sum.ulps.size(), t.ulps.size()), 0);
  for (std::size_t i = 0; i < t.ulps.size(); ++i) sum.ulps[i] += t.ulps[i];
}

void add_gradient_errors(TracedTensor& sum, const TracedTensor& t) {
  sum.loss_error2 += t.loss_error2;
  sum.norm_error2 += t.norm_error2;
  if (t.norm_error) sum.norm_error = sum.norm_error.value_or(0) + *t.norm_error;
  if (t.loss_error) sum.loss_error = sum.loss_error.value_or(0) + *t.loss_error;
}

void add_decisions(TracedTensor& sum, const TracedTensor& t) {
  if (t.decisions <= 0) return;
  sum.least_margin = sum.decisions > 0 ? std::min(sum.least_margin, t.least_margin) : t.least_margin;
  sum.decisions += t.decisions;
  sum.flipped += t.flipped;
  sum.undecided += t.undecided;
  sum.margins += t.margins;
  sum.radii += t.radii;
}

/// The mean over the `count` steps that knew how much cancelled, and the most.
void add_cancellation(TracedTensor& sum, const TracedTensor& t, int count) {
  if (!t.cancelled) return;
  sum.cancelled = sum.cancelled.value_or(0) + (*t.cancelled - sum.cancelled.value_or(0)) / count;
  sum.most_cancelled = std::max(sum.most_cancelled.value_or(0), *t.most_cancelled);
}

void add_exponents(TracedTensor& sum, const TracedTensor& t) {
  sum.amax = std::max(sum.amax, t.amax);
  if (t.amin > 0) sum.amin = sum.amin > 0 ? std::min(sum.amin, t.amin) : t.amin;
  if (t.exponents.empty()) return;
  if (sum.exponents.empty()) {
    sum.first_exponent = t.first_exponent;
    sum.exponents = t.exponents;
    return;
  }
  if (t.first_exponent < sum.first_exponent) {
    sum.exponents.insert(sum.exponents.begin(), static_cast<std::size_t>(sum.first_exponent - t.first_exponent), 0);
    sum.first_exponent = t.first_exponent;
  }
  const auto offset = static_cast<std::size_t>(t.first_exponent - sum.first_exponent);
  sum.exponents.resize(std::max(sum.exponents.size(), offset + t.exponents.size()), 0);
  for (std::size_t i = 0; i < t.exponents.size(); ++i) sum.exponents[offset + i] += t.exponents[i];
}

}  // namespace

std::vector<TracedSum> summed(const Trace& trace) {
  std::vector<TracedSum> out;
  std::map<std::string, std::size_t> known;
  std::vector<Moments> moments;
  for (const TracedTensor& t : trace.tensors) {
    const auto [at, fresh] = known.try_emplace(t.name(), out.size());
    if (fresh) {
      out.emplace_back().sum = t;
      moments.emplace_back();
    }
    TracedSum& s = out[at->second];
    ++s.tensors;
    add_moments(moments[at->second], t);
    note_worst(s, t);
    s.ranks = std::max(s.ranks, t.rank + 1);
    if (t.role != "none") ++s.roles[t.role];
    s.cancellations += t.cancelled ? 1 : 0;
    if (fresh) continue;
    add_cancellation(s.sum, t, s.cancellations);
    add_counts(s.sum, t);
    add_gradient_errors(s.sum, t);
    add_decisions(s.sum, t);
    add_exponents(s.sum, t);
  }
  for (std::size_t i = 0; i < out.size(); ++i) finish(out[i].sum, moments[i]);
  return out;
}

std::vector<const TracedSum*> worst_first(const std::vector<TracedSum>& sums) {
  std::vector<const TracedSum*> out;
  for (const TracedSum& s : sums)
    if (s.sum.phase_number() <= checks::train::Phase::backward || s.sum.local_error || s.sum.carried_error ||
        s.sum.overflowed > 0)
      out.push_back(&s);
  const auto noise = [](const TracedSum& s) { return s.sum.noise && s.sum.overflowed == 0; };
  const auto flushed = [](const TracedSum& s) {
    return checks::train::is_gradient(s.sum.phase_number()) ? s.sum.flushed_share() : 0;
  };
  std::stable_sort(out.begin(), out.end(), [&](const TracedSum* a, const TracedSum* b) {
    if (noise(*a) != noise(*b)) return noise(*b);
    if (a->sum.overflowed != b->sum.overflowed) return a->sum.overflowed > b->sum.overflowed;
    if (flushed(*a) != flushed(*b)) return flushed(*a) > flushed(*b);
    if (a->worst_local != b->worst_local) return a->worst_local > b->worst_local;
    return a->worst_carried > b->worst_carried;
  });
  return out;
}

namespace {

std::set<int> steps_looked_at(const Trace& trace) {
  std::set<int> out;
  for (const TracedTensor& t : trace.tensors) out.insert(t.step);
  return out;
}

/// From sums of squares over the steps; sorted from `first` on.
void finish(std::vector<LossShare>& shares, std::size_t steps, std::ptrdiff_t first) {
  double all = 0;
  for (const LossShare& share : shares) all += share.moves;
  for (LossShare& share : shares) {
    share.share = all > 0 ? share.moves / all : 0;
    share.moves = std::sqrt(share.moves / static_cast<double>(steps));
  }
  std::stable_sort(shares.begin() + first, shares.end(),
                   [](const LossShare& a, const LossShare& b) { return a.share > b.share; });
}

}  // namespace

std::vector<LossShare> loss_shares(const Trace& trace, const std::vector<TracedSum>& sums) {
  const std::set<int> steps = steps_looked_at(trace);
  std::vector<LossShare> out = {{}};
  for (const TracedStep& s : trace.steps)
    if (s.loss_drift && steps.contains(s.step)) out.front().moves += *s.loss_drift * *s.loss_drift;
  for (const TracedSum& s : sums)
    if (s.sum.loss_error) out.push_back({&s, s.sum.loss_error2, 0});
  if (out.size() == 1) return {};
  finish(out, steps.size(), 1);
  return out;
}

std::vector<LossShare> norm_shares(const Trace& trace, const std::vector<TracedSum>& sums) {
  std::vector<LossShare> out;
  for (const TracedSum& s : sums)
    if (s.sum.norm_error) out.push_back({&s, s.sum.norm_error2, 0});
  finish(out, steps_looked_at(trace).size(), 0);
  return out;
}

std::vector<ParameterShares> gradient_shares(const Trace& trace) {
  std::vector<ParameterShares> out;
  std::map<std::string, std::map<std::string, ParameterShares::Share>> sums;  // of squares
  std::map<std::string, int> steps;
  std::map<std::string, double> errors;
  double largest = 0;
  for (const TracedGradient& g : trace.gradients) {
    const bool fresh = ++steps[g.parameter] == 1;
    if (fresh) out.emplace_back().parameter = g.parameter;
    ParameterShares& own =
        *std::find_if(out.begin(), out.end(), [&](const ParameterShares& p) { return p.parameter == g.parameter; });
    own.error += g.error * g.error;
    own.size += g.size * g.size;
    errors[g.parameter] += g.error;
    own.explained += g.apart;
    auto& of = sums[g.parameter];
    if (g.apart != 0) of[""].moves += g.apart * g.apart;
    for (const TracedGradient::Part& part : g.parts) {
      own.explained += part.moves;
      ParameterShares::Share& share = of[part.tensor];
      share.moves += part.moves * part.moves;
      if (part.moves != 0)
        share.beyond = std::max(share.beyond, part.rounding > 0 ? std::fabs(part.moves) / part.rounding : INFINITY);
    }
    for (const TracedGradient::Part& part : g.others) {
      own.explained += part.moves;
      of[part.tensor].moves += part.moves * part.moves;
    }
  }
  for (ParameterShares& p : out) {
    const auto n = static_cast<double>(steps[p.parameter]);
    p.error = std::sqrt(p.error / n);
    p.size = std::sqrt(p.size / n);
    largest = std::max(largest, p.size);
    p.explained = errors[p.parameter] > 0 ? p.explained / errors[p.parameter] : 0;
    double all = 0;
    for (const auto& [tensor, share] : sums[p.parameter]) all += share.moves;
    for (auto& [tensor, share] : sums[p.parameter])
      p.shares.push_back({tensor, std::sqrt(share.moves / n), all > 0 ? share.moves / all : 0, share.beyond});
    std::stable_sort(p.shares.begin(), p.shares.end(), [](const auto& a, const auto& b) { return a.share > b.share; });
  }
  for (ParameterShares& p : out) p.noise = p.size <= kFp32.unit_roundoff() * largest;
  return out;
}

}  // namespace ampcheck::tools
