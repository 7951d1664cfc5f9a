// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include "checks/diagnose/score.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "checks/diagnose/diagnose.h"
#include "checks/diagnose/scene.h"
#include "src/error.h"

namespace ampcheck::checks::diagnose {

using namespace train;

const char* name(Baseline baseline) {
  constexpr const char* kNames[] = {"nan_hooks", "anomaly", "ratio", "prefix"};
  return kNames[static_cast<int>(baseline)];
}

const char* what(Baseline baseline) {
  constexpr const char* kTexts[] = {"first op of a forward with a NaN or infinity (hooks with amax)",
                                    "first NaN of a backward (anomaly detection)",
                                    "first op whose output is 10 times as far from fp32 as its inputs, and above 0.1",
                                    "shortest prefix of ops in fp32 that cures (bisection)"};
  return kTexts[static_cast<int>(baseline)];
}

namespace {

BaselineAnswer by_hooks(const Observation& seen) {
  const Place p = first_place(
      seen, [](const Track& t, const Sample& s) { return t.key.phase == Phase::forward && !t.key.cast && !s.finite; });
  return {.fires = static_cast<bool>(p), .op = p ? p.track->key.op : ""};
}

BaselineAnswer by_anomaly(const Observation& seen) {
  const Place p = first_place(
      seen, [](const Track& t, const Sample& s) { return t.key.phase == Phase::backward && !t.key.cast && !s.finite; });
  return {.fires = static_cast<bool>(p), .op = p ? p.track->key.op : ""};
}

/// Errors against the whole run in fp64, in the order of each forward: the previous op's stands for the inputs'.
BaselineAnswer by_ratio(const Observation& seen) {
  double before = 0;
  for (const std::string& name : seen.order) {
    const Track& track = seen.tracks.at(name);
    if (track.key.phase != Phase::forward || track.key.cast || track.samples.empty()) continue;
    double most = 0;
    for (const Sample& s : track.samples) most = std::max(most, s.finite ? s.carried : 1);
    if (most > 0.1 && most > 10 * before) return {.fires = true, .op = track.key.op};
    before = std::max(most, 1e-6);
  }
  return {};
}

/// Ops are raised from the first on until the run is well; a binary search, as if more never hurt.
BaselineAnswer by_prefix(const Subject& subject, const Observation& seen, int lost) {
  if (lost < 0) return {};
  Lab lab(subject, seen);
  const std::vector<std::string> all = seen.ops();
  const auto works = [&](std::size_t n) {
    const Course& course = lab.whole({.raised = Ops(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(n))});
    return course.refused.empty() && course.first_lost() < 0;
  };
  if (all.empty() || !works(all.size())) return {};
  std::size_t low = 0, high = all.size();
  while (low + 1 < high) {
    const std::size_t middle = (low + high) / 2;
    (works(middle) ? high : low) = middle;
  }
  return {.fires = true, .op = all[high - 1], .set_size = static_cast<int>(high)};
}

}  // namespace

bool Trial::top(std::size_t n) const {
  const auto end = named.begin() + static_cast<std::ptrdiff_t>(std::min(n, named.size()));
  return std::find(named.begin(), end, run->cause) != end;
}

bool Trial::op_right(const std::string& named_op) const {
  return std::find(run->ops.begin(), run->ops.end(), named_op) != run->ops.end();
}

bool Trial::false_alarm() const {
  if (!run->control()) return false;
  if (run->cause == Cause::none || run->cause == Cause::scale_probing) return !healthy;
  return named.empty() || !info(named.front()).harmless;
}

Trial try_run(const PlantedRun& run, bool with_baselines) {
  Trial out{.run = &run};
  try {
    const Subject subject = run.make();
    const Observation seen = observe(subject);
    const Report report = diagnose_run(subject, seen);
    for (const Finding& f : report.findings) out.named.push_back(f.cause);
    for (const Finding& f : report.notes) out.named.push_back(f.cause);
    if (!report.findings.empty()) {
      out.op = report.findings.front().op;
      out.precursor = report.findings.front().precursor;
      out.step = report.findings.front().step;
    }
    out.healthy = report.healthy();
    out.inconclusive = report.inconclusive;
    out.cured = report.cured;
    out.advised = report.tried_cure;
    if (report.smallest.known) out.set_size = static_cast<int>(report.smallest.ops.size());
    out.seconds = report.seconds;
    if (!with_baselines) return out;
    out.baselines[0] = by_hooks(seen);
    out.baselines[1] = by_anomaly(seen);
    out.baselines[2] = by_ratio(seen);
    out.baselines[3] = by_prefix(subject, seen, report.symptoms.lost);
  } catch (const EnvironmentError&) {
    throw;
  } catch (const Error& error) {
    out.error = error.what();
  }
  return out;
}

namespace {

bool near(int size, int optimum) { return size >= 0 && std::abs(size - optimum) <= 1; }

void add(const Trial& t, Score& s) {
  const bool control = t.run->control();
  if (control) {
    ++s.controls;
    s.false_alarms += t.false_alarm() || !t.error.empty();
  } else {
    ++s.planted;
    s.top1 += t.top(1);
    s.top3 += t.top(3);
    s.advised += t.advised;
    s.cured += t.advised && t.cured;
    if (!t.run->ops.empty()) {
      ++s.with_op;
      s.op_exact += t.op_right(t.op);
    }
    if (t.run->optimum >= 0) {
      ++s.with_optimum;
      s.set_near += near(t.set_size, t.run->optimum);
    }
  }
  for (int b = 0; b < kBaselines; ++b) {
    const BaselineAnswer& a = t.baselines[b];
    Score::Other& other = s.others[b];
    if (control) {
      other.false_alarms += a.fires;
    } else {
      other.fires += a.fires;
      other.op_exact += !t.run->ops.empty() && t.op_right(a.op);
      other.set_near += t.run->optimum >= 0 && near(a.set_size, t.run->optimum);
    }
  }
}

}  // namespace

Score score(const std::vector<Trial>& trials) {
  Score out;
  std::vector<double> seconds;
  double lead = 0;
  for (const Trial& t : trials) {
    add(t, out);
    seconds.push_back(t.seconds);
    if (!t.run->control() && t.precursor >= 0) lead += t.step - t.precursor;
  }
  std::sort(seconds.begin(), seconds.end());
  if (!seconds.empty()) out.median_seconds = seconds[seconds.size() / 2];
  if (out.planted > 0) out.mean_lead = lead / out.planted;
  return out;
}

bool goals_met(const Score& s) {
  const auto reached = [](int part, int all, double goal) { return part >= goal * all; };
  return reached(s.top1, s.planted, kTop1) && reached(s.top3, s.planted, kTop3) &&
         reached(s.op_exact, s.with_op, kOpExact) && s.false_alarms == 0 && s.set_near == s.with_optimum &&
         reached(s.cured, s.advised, kCured) && s.median_seconds <= kMedianSeconds;
}

}  // namespace ampcheck::checks::diagnose
