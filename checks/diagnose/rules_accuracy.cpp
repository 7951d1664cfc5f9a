// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
// Ops whose results are further from their formulas than rounding makes them, or always to one side.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "checks/diagnose/equality.h"
#include "checks/diagnose/probe.h"
#include "checks/diagnose/scene.h"
#include "checks/models/bound_call.h"

namespace ampcheck::checks::diagnose {

using namespace train;

namespace {

/// Roundings to one side: away from it by so many standard errors, and by so large a share.
constexpr double kBiased = 12, kOneSided = 0.5;
/// And no rounding to nearest of numbers that happen to lie on one side: of truncated ones half are more than half an
/// ulp away.
constexpr double kBeyondHalf = 0.25;

bool is_op(const Track& t) { return (t.key.phase == Phase::forward || t.key.phase == Phase::backward) && !t.key.cast; }

bool is_worse(const Sample& s) { return s.finite && s.has_exact && s.excess > kExcess; }

Finding finding_at(const Place& place, Cause cause) {
  Finding f{.cause = cause,
            .weight = Weight::possible,
            .op = place.track->key.op,
            .tensor = place.track->key.str(),
            .precursor = place.sample->step,
            .step = place.sample->step};
  f.cure.repaired = {f.op};
  f.can_be_tried = true;
  return f;
}

void say_error(const Place& p, Finding& f) {
  f.speaks_for.push_back(
      fmt::format("its error is {:.3g} times what rounding each element once makes ({:.2g} relative)", p.sample->excess,
                  p.sample->error));
}

void add(Scene& scene, Finding f) {
  if (scene.symptoms.first() < 0) scene.symptoms.bad_op = f.step;
  f.paste = f.paste.empty() ? paste_fp32(scene.seen, {f.op}) : f.paste;
  scene.add(std::move(f));
}

/// What the judge says of an op at the tensors that it met, where no experiment said more: a sum in too few bits, or a
/// kernel that is wrong in another way.
void take_verdict(const Scene& scene, const JudgedCall& judged, Finding& f) {
  f.weight = scene.findings.empty() ? Weight::decided : Weight::supported;
  f.step = f.precursor = judged.step;
  f.tensor = judged.where;
  f.speaks_for.push_back("at the tensors that it met: " + judged.what);
  f.cause = judged.code == Code::ac301 ? Cause::low_accumulator : Cause::wrong_kernel;
  if (f.cause == Cause::wrong_kernel)
    f.paste =
        fmt::format("mend the kernel of {}: ampcheck train with --save-case DIR writes this call's tensors", f.op);
}

const JudgedCall* judged_call(const Scene& scene, const std::string& op) {
  const auto& all = scene.seen.judged;
  const auto found = std::find_if(all.begin(), all.end(), [&](const JudgedCall& j) { return j.op == op; });
  return found == all.end() ? nullptr : &*found;
}

/// A wrong kernel whose errors are no larger than roundings.
void ask_judge(Scene& scene) {
  if (!scene.findings.empty() || scene.seen.judged.empty()) return;
  const JudgedCall& judged = scene.seen.judged.front();
  Finding f{.op = judged.op};
  f.cure.repaired = {f.op};
  f.can_be_tried = true;
  take_verdict(scene, judged, f);
  add(scene, std::move(f));
}

/// Few magnitudes: a type of 8 bits.
bool is_coded(const Sample& s) {
  return s.finite && s.excess > kExcess && s.codes > 8 && s.codes <= 128 && s.elements - s.zeros >= 4 * s.codes;
}

/// More elements than a magnitude has in the mean have the largest one, or became zero: the scale is not this tensor's.
bool is_off_scale(const Sample& s) {
  return is_coded(s) && (s.at_largest * s.codes > s.elements || s.flushed * s.codes > s.elements);
}

bool ask_codes(Scene& scene) {
  const Place off = first_place(
      scene.seen, [](const Track& t, const Sample& s) { return t.key.phase == Phase::forward && is_off_scale(s); });
  if (!off) return false;
  const auto coded = std::find_if(off.track->samples.begin(), off.track->samples.end(), is_coded);
  const Place p{off.track, &*coded};
  Place worst = p;
  for (const Sample& s : p.track->samples)
    if (s.at_largest > worst.sample->at_largest) worst.sample = &s;
  Finding f = finding_at(p, Cause::fp8_scale);
  f.weight = Weight::supported;
  f.cure = {};
  if (scene.options().fp8)
    f.cure.fp8_current = true;
  else
    f.cure.current_fp8 = {f.op};
  f.step = worst.sample->step;
  f.speaks_for.push_back(
      fmt::format("{} magnitudes in {} elements: a type of 8 bits", worst.sample->codes, worst.sample->elements));
  f.speaks_for.push_back(fmt::format("at {} {} elements have the largest magnitude {:.4g}",
                                     step_text(worst.sample->step), worst.sample->at_largest, worst.sample->largest));
  if (worst.sample->at_largest > 2 * p.sample->at_largest) f.weight = Weight::decided;
  f.paste = "a shorter amax history, or current scaling for " + f.op;
  add(scene, std::move(f));
  return true;
}

/// Whether each output is one of its row's inputs: an op that chooses.
bool chooses(const MetCall& met, const Answer& a) {
  if (met.inputs.size() != 1 || a.got.empty() || a.got.size() >= met.inputs.front().values.size()) return false;
  const std::vector<double>& x = met.inputs.front().values;
  const std::size_t row = x.size() / a.got.size();
  for (std::size_t i = 0; i < a.got.size(); ++i)
    if (std::find(x.begin() + static_cast<std::ptrdiff_t>(i * row),
                  x.begin() + static_cast<std::ptrdiff_t>((i + 1) * row),
                  a.got[i]) == x.begin() + static_cast<std::ptrdiff_t>((i + 1) * row))
      return false;
  return true;
}

/// Rows whose two largest numbers are no further apart than two roundings of the run's 16 bits.
int near_ties(const MetCall& met, std::size_t rows, double roundoff) {
  const std::vector<double>& x = met.inputs.front().values;
  const std::size_t row = x.size() / rows;
  int out = 0;
  for (std::size_t i = 0; i < rows; ++i) {
    std::vector<double> values(x.begin() + static_cast<std::ptrdiff_t>(i * row),
                               x.begin() + static_cast<std::ptrdiff_t>((i + 1) * row));
    std::nth_element(values.begin(), values.begin() + 1, values.end(), std::greater<>());
    const double most = std::max(values[0], values[1]), next = std::min(values[0], values[1]);
    out += most - next <= 4 * roundoff * std::max(std::fabs(most), std::fabs(next));
  }
  return out;
}

/// A loss whose gradient's error grows as the loss falls.
bool grows(const Track& track) {
  if (track.samples.size() < 8) return false;
  double early = 0, late = 0;
  const std::size_t part = track.samples.size() / 4;
  for (std::size_t i = 0; i < part; ++i) {
    early += track.samples[i].error;
    late += track.samples[track.samples.size() - 1 - i].error;
  }
  return early > 0 && late > 2 * early;
}

/// Neighbours that are the same number although they should not be.
std::size_t merged_neighbours(const Answer& a, std::size_t row) {
  std::size_t out = 0;
  for (std::size_t i = row; i < a.got.size(); ++i)
    out += a.got[i] != 0 && a.got[i] == a.got[i - row] && a.exact[i] != a.exact[i - row];
  return out;
}

/// Most of the error is in elements of which nothing is left: what an overflow does inside an op.
bool is_ruined(const Answer& a) {
  if (!a.finite) return true;
  double all2 = 0, ruined2 = 0;
  for (std::size_t i = 0; i < a.got.size(); ++i) {
    const double error = a.got[i] - a.exact[i];
    if (!std::isfinite(a.exact[i])) continue;
    all2 += error * error;
    if (std::fabs(error) > 0.5 * std::fabs(a.exact[i])) ruined2 += error * error;
  }
  return ruined2 > 0.5 * all2;
}

/// What an op's forward does to changed inputs.
void ask_probes(Scene& scene, const MetCall& met, const Answer& as_met, Finding& f) {
  const auto probe = [&](const std::string& what, const MetCall& changed) {
    const Answer a = answer_to(changed);
    scene.lab.note("E9", f.op + " " + what,
                   !a.ran      ? "not run"
                   : !a.finite ? "not finite"
                               : fmt::format("error {:.3g} roundings", a.excess));
    return a;
  };
  const auto right = [](const Answer& a) { return a.ran && a.finite && a.excess <= kExcess; };
  const auto decide = [&](Cause cause, const std::string& why) {
    f.cause = cause;
    f.weight = Weight::decided;
    f.speaks_for.push_back(why);
  };
  std::size_t data = 0;
  for (const MetCall::Input& input : met.inputs) data += !input.trained;
  for (const int by : {16, 256})
    if (is_ruined(as_met) && right(probe(fmt::format("with its input divided by {}", by), scaled(met, 1.0 / by))))
      return decide(data > 1 ? Cause::scale_placement : Cause::inner_overflow,
                    fmt::format("E9: with its input divided by {} it is as right as rounding allows", by));
  const Answer centre = probe("with the mean of each row taken off", centred(met));
  if (centre.ran && centre.finite && centre.exact_largest > 0 && 8 * centre.excess <= as_met.excess)
    return decide(Cause::cancellation,
                  fmt::format("E9: with the rows' means taken off its error is {:.2g} roundings, not {:.2g}",
                              centre.excess, as_met.excess));
  if (right(probe("with gains of 1", plain_gains(met))))
    return decide(Cause::block_clamp,
                  "E2: with gains of 1 it is right: what is stored of the gains is not what they are");
  if (as_met.error > 0.5 && right(probe("on half of the elements", cut(met, 0.5))))
    return decide(Cause::count_overflow, "E9: on half of the elements it is right");
  if (const auto merged = merged_neighbours(as_met, static_cast<std::size_t>(met.inputs.front().shape.last()));
      merged > as_met.got.size() / 8 && met.inputs.front().shape.rank > 0)
    return decide(Cause::position_precision,
                  fmt::format("{} of {} results are those of their neighbours although they should not be", merged,
                              as_met.got.size()));
  if (!sums_inputs(models::op_of_call(met.op))) return;
  const Answer few = probe("on a quarter of the terms", fewer_terms(met, 0.25));
  if (few.ran && few.finite && few.excess < 0.75 * as_met.excess)
    return decide(Cause::low_accumulator,
                  fmt::format("E2: on a quarter of the terms its error is {:.2g} roundings, not {:.2g}", few.excess,
                              as_met.excess));
}

/// Backward alone is wrong.
void ask_backward(Scene& scene, const Place& p, const std::optional<MetCall>& met, Finding& f) {
  if (!met) return;
  const Answer a = answer_to(*met);
  const bool loss =
      std::any_of(met->inputs.begin(), met->inputs.end(), [](const MetCall::Input& i) { return i.name == "target"; });
  if (a.ran && chooses(*met, a)) {
    const int ties = near_ties(*met, a.got.size(), format(scene.dtype()).unit_roundoff());
    f.cause = Cause::decision_flips;
    f.weight = ties > 0 ? Weight::decided : Weight::supported;
    f.speaks_for.push_back(
        "each of its results is one of its inputs: it chooses, and its gradient goes to another element");
    f.speaks_for.push_back(
        fmt::format("{} of {} rows have two largest numbers within two roundings", ties, a.got.size()));
    f.paste = "scores in fp32 where something is chosen by them (router, argmax, top-k)";
  } else if (loss && grows(*p.track)) {
    f.cause = Cause::loss_cancellation;
    f.weight = Weight::decided;
    f.speaks_for.push_back(
        fmt::format("the error of the loss's gradient grows as the loss falls: {:.2g} at first, {:.2g} at last",
                    p.track->samples.front().error, p.track->samples.back().error));
    f.paste = "logits.float() before the loss";
  }
}

/// Errors that go to one side, over the whole run.
void ask_bias(Scene& scene) {
  const Track* worst = nullptr;
  double most = 0, share_of = 0;
  for (const auto& [name, track] : scene.seen.tracks) {
    if (!is_op(track) || bytes(track.key.dtype) != 2) continue;
    std::int64_t toward = 0, away = 0, beyond = 0;
    for (const Sample& s : track.samples) {
      toward += s.toward_zero;
      away += s.away_from_zero;
      beyond += s.beyond_half;
    }
    const auto n = static_cast<double>(toward + away);
    if (n < 100 || static_cast<double>(beyond) < kBeyondHalf * n) continue;
    const double one_sided = std::fabs(static_cast<double>(toward - away)) / n, z = one_sided * std::sqrt(n);
    if (z < kBiased || one_sided < kOneSided || z < most) continue;
    most = z;
    share_of = one_sided;
    worst = &track;
  }
  if (worst == nullptr) return;
  const Place p{worst, &worst->samples.front()};
  Finding f = finding_at(p, Cause::biased_rounding);
  f.weight = Weight::supported;
  f.speaks_for.push_back(fmt::format(
      "{:.0f} % more of its errors go to one side than to the other: {:.0f} standard errors", 100 * share_of, most));
  Change random;
  random.repaired = {f.op};
  random.stochastic = true;
  const Course& course = scene.lab.run(random, 0, std::min(scene.last(), 9), true);
  scene.lab.note("E5", f.op + " rounded at random with these odds",
                 course.refused.empty() ? "ran, no bias" : course.refused);
  if (course.refused.empty()) f.weight = Weight::decided;
  f.paste = "a kernel that rounds to nearest even at its store (not one that truncates)";
  add(scene, std::move(f));
}

}  // namespace

void ask_accuracy(Scene& scene) {
  if (scene.has(Cause::nan_killed) || scene.has(Cause::not_repeatable)) return;
  if (ask_codes(scene)) return;
  const Place p = first_place(scene.seen, [](const Track& t, const Sample& s) { return is_op(t) && is_worse(s); });
  if (!p) {
    ask_bias(scene);
    return ask_judge(scene);
  }
  Finding f = finding_at(p, Cause::low_accumulator);
  f.paste.clear();
  say_error(p, f);
  const std::optional<MetCall> met = met_call(scene.lab, f.op, p.sample->step);
  if (p.track->key.phase == Phase::backward) {
    ask_backward(scene, p, met, f);
  } else if (met) {
    const Answer as_met = answer_to(*met);
    if (as_met.ran && as_met.finite && as_met.excess > kExcess)
      ask_probes(scene, *met, as_met, f);
    else
      f.speaks_against.push_back("alone, on the same inputs, the op is right");
  }
  if (const JudgedCall* const judged = judged_call(scene, f.op); judged != nullptr && f.weight == Weight::possible)
    take_verdict(scene, *judged, f);
  add(scene, std::move(f));
}

}  // namespace ampcheck::checks::diagnose
