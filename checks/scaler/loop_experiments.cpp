// SPDX-License-Identifier: Apache-2.0
// Experiments that compare runs: at other scales, with clipping, micro-batches, a resume, and two ranks.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "checks/scaler/loop_auditor.h"

namespace ampcheck::checks::scaler {

namespace {

constexpr std::array kScales = {1.0, 0x1p8, 0x1p16, 0x1p24};
constexpr int kMicroBatches = 3;

bool any_skipped(const std::vector<LoopReply>& replies) {
  for (std::size_t i = 1; i < replies.size(); ++i)
    if (skipped(replies[i - 1].ranks.front(), replies[i].ranks.front())) return true;
  return false;
}

/// What ranks of one model share: not their random numbers, nor the statistics of their own batches.
State shared(const State& state) {
  State out;
  for (const char* part : {"weights", "masters", "moments", "steps", "ema", "schedule"})
    if (const auto at = state.find(part); at != state.end()) out.insert(*at);
  return out;
}

}  // namespace

/// Clean steps at each scale at which none is skipped; the rising scales first.
std::vector<LoopAuditor::Run> LoopAuditor::at_scales(const LoopSetup& setup, int steps) {
  std::vector<Run> out;
  for (const double scale : kScales) {
    LoopSetup one = setup;
    one.scale = scale;
    std::vector<LoopCall> calls = pattern(std::string(static_cast<std::size_t>(steps), '.'));
    calls.insert(calls.begin(), LoopCall{LoopOp::look});
    Run run = play(one, calls);
    if (!any_skipped(run.replies)) out.push_back(std::move(run));
  }
  return out;
}

void LoopAuditor::invariant() {
  const std::vector<Run> runs = at_scales(usual(), 3);
  if (runs.size() < 2) {
    result("L14").says = "clean steps are skipped at all scales but one";
    return;
  }
  const Run& top = runs.back();
  const std::size_t last = top.calls.size() - 1;
  const auto differs = [&](const Run& run) { return difference(top.at(last).state, run.at(last).state); };
  const auto other = std::ranges::find_if(runs, [&](const Run& run) { return differs(run).has_value(); });
  if (other == runs.end()) {
    grows_unseen();
    return pass("L14");
  }
  const std::optional<Difference> what = differs(*other);
  const std::string says = fmt::format("{} at scale {:g} is not that at scale {:g}: {}", what->part, other->setup.scale,
                                       top.setup.scale, what->text);
  // Powers of two lose nothing but what leaves the format's range below: then the largest scales agree.
  if (runs.size() > 2 && !differs(runs[runs.size() - 2]))
    return fail("L14", *other, last, says + "; the larger scales agree, so gradients are lost below the format's range",
                Outcome::weak);
  fail("L14", *other, last, says);
}

/// With a scale that grows at each step the update stays the same: it is divided by what its loss was multiplied with.
void LoopAuditor::grows_unseen() {
  if (!loop_.has(Ability::scaler)) return;
  LoopSetup growing{.scale = 256, .growth_interval = 1}, still{.scale = 256};
  const Run run = play(growing, pattern("....")), due = play(still, pattern("...."));
  if (any_skipped(run.replies) || any_skipped(due.replies)) return;
  for (std::size_t i = 0; i < run.calls.size(); ++i)
    if (const auto other = difference(due.at(i).state, run.at(i).state))
      return fail(
          "L14", run, i,
          fmt::format("{} with a scale that grows is not that with one that stands: {}", other->part, other->text));
}

/// A norm above the limit and one below it: an unscaled norm is on the same side at all scales.
void LoopAuditor::clips() {
  if (!clips_alike({.clip = 0x1p10})) return;
  const Run free = play({.scale = 1}, pattern("..."));
  for (const double clip : {1.0, 0x1p-6, 0x1p-14, 0x1p-24}) {
    const Run run = play({.scale = 1, .clip = clip}, pattern("..."));
    if (!difference(free.at(2).state, run.at(2).state)) continue;
    if (clips_alike({.clip = clip}) && clips_no_infinity(clip)) pass("L15");
    return;
  }
  result("L15").says = "a clip of 2^-24 changes no update";
}

bool LoopAuditor::clips_alike(const LoopSetup& setup) {
  const std::vector<Run> runs = at_scales(setup, 3);
  for (const Run& run : runs)
    if (const auto other = difference(runs.front().at(3).state, run.at(3).state)) {
      fail("L15", run, 3,
           fmt::format(
               "with clipping {} depends on the scale, and without it does not: {}; scaled gradients are clipped",
               other->part, other->text));
      return false;
    }
  return true;
}

bool LoopAuditor::clips_no_infinity(double clip) {
  if (!seen_) return true;
  const Run run = play({.scale = scale_, .clip = clip}, pattern(".X"));
  if (skipped(run.at(0), run.at(1))) return true;
  fail("L15", run, 1, "clipping makes a number of a gradient that is not finite, and the step is made");
  return false;
}

void LoopAuditor::keeps_one_scale() {
  LoopSetup growing = usual();
  growing.accumulate = kMicroBatches;
  if (loop_.has(Ability::scaler)) {
    growing.growth_interval = 1;
    growing.scale = std::min(scale_, 256.0);
  }
  const Run run = play(growing, pattern("..."));
  for (std::size_t i = 0; i < run.calls.size(); ++i) {
    const std::vector<double>& scales = run.at(i).scales;
    if (std::ranges::adjacent_find(scales, std::not_equal_to<>()) != scales.end())
      return fail("L16", run, i,
                  fmt::format("the scale changes within the window, from {:g} to {:g}", scales.front(), scales.back()));
  }
  LoopSetup window = usual();
  window.accumulate = kMicroBatches;
  const std::vector<Run> runs = at_scales(window, 2);
  for (const Run& each : runs)
    if (const auto other = difference(runs.back().at(2).state, each.at(2).state))
      return fail("L16", each, 2,
                  fmt::format("with micro-batches {} depends on the scale, and without does not: {}", other->part,
                              other->text));
  pass("L16");
}

void LoopAuditor::spoils_window() {
  LoopSetup setup = usual();
  setup.accumulate = kMicroBatches;
  for (int micro = 0; micro < kMicroBatches; ++micro) {
    const Run run = play(setup, {{.batch = 0}, bad(1, micro)});
    if (!skipped(run.at(0), run.at(1)))
      return fail("L17", run, 1,
                  fmt::format("micro-batch {} of {} is bad, and the step is made", micro + 1, kMicroBatches));
    if (const auto moved = difference(run.at(0).state, run.at(1).state); moved && passed(code_of_skip(moved->part)))
      return fail("L17", run, 1, fmt::format("{} changes in a spoiled window: {}", moved->part, moved->text));
    compare_without(setup, {bad(0, micro)}, {.batch = 1}, "L17");
  }
}

void LoopAuditor::resumes() {
  LoopSetup setup{.scale = scale_};
  if (loop_.has(Ability::scaler)) {
    setup.growth_interval = 3;
    setup.scale = std::min(scale_, 1024.0);
  }
  const Run whole = play(setup, pattern(seen_ ? "..X....." : "........"));
  for (std::size_t at = 1; at <= 6; ++at) {
    std::vector<LoopCall> calls = whole.calls;
    calls.insert(calls.begin() + static_cast<std::ptrdiff_t>(at), LoopCall{LoopOp::reload});
    compare_resumed(whole, play(setup, calls), at);
  }
  pass("L18");
  pass("L19");
}

void LoopAuditor::compare_resumed(const Run& whole, const Run& resumed, std::size_t at) {
  if (const auto other = difference(whole.at(at - 1).state, resumed.at(at).state))
    fail("L19", resumed, at, fmt::format("{} comes back otherwise: {}", other->part, other->text));
  for (std::size_t i = at; i < whole.calls.size(); ++i) {
    const RankReply &due = whole.at(i), &got = resumed.at(i + 1);
    if (due.scales != got.scales)
      fail("L18", resumed, i + 1,
           fmt::format("without the resume the scale of this step is {:g}, and with it {:g}", due.scales.front(),
                       got.scales.front()));
    std::optional<Difference> other = difference(due.state, got.state);
    if (!other) other = difference(due.forward, got.forward);
    if (other)
      fail("L19", resumed, i + 1,
           fmt::format("{} differs from a run without the resume: {}", other->part, other->text));
  }
}

void LoopAuditor::ranks_agree() {
  LoopSetup setup = usual();
  setup.ranks = 2;
  std::vector<LoopCall> calls = {{.batch = 0}, {.batch = 1}, {.batch = 2}, {.batch = 3}, {.batch = 4}};
  if (seen_) {
    calls[1] = bad(1, 0, 1);
    calls[3] = bad(3, 0, 0);
  }
  const Run run = play(setup, calls);
  for (std::size_t i = 0; i < calls.size(); ++i) {
    const RankReply &a = run.at(i, 0), &b = run.at(i, 1);
    if (a.skipped.value_or(false) != b.skipped.value_or(false))
      return fail("L20", run, i,
                  fmt::format("rank {} skips, and the other makes the step", a.skipped.value_or(false) ? 0 : 1));
    if (a.scales != b.scales)
      return fail("L20", run, i, fmt::format("rank 0 has scale {:g}, rank 1 {:g}", a.scales.front(), b.scales.front()));
    if (const auto other = difference(shared(a.state), shared(b.state)))
      return fail("L20", run, i, fmt::format("rank 1 has other {}: {}", other->part, other->text));
    if (calls[i].poison && !skipped(run.at(i - 1), a))
      return fail("L20", run, i,
                  fmt::format("both ranks make the step, and rank {} has a bad gradient", calls[i].rank));
  }
  pass("L20");
}

}  // namespace ampcheck::checks::scaler
