// SPDX-License-Identifier: Apache-2.0
#include "checks/scaler/loop_auditor.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "src/error.h"

namespace ampcheck::checks::scaler {

namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

std::string first_change(const StatePart& from, const StatePart& to) {
  if (!from.digest.empty() || !to.digest.empty()) return "another digest";
  if (from.numbers.size() != to.numbers.size())
    return fmt::format("{} numbers in place of {}", to.numbers.size(), from.numbers.size());
  for (std::size_t i = 0; i < from.numbers.size(); ++i)
    if (!(StatePart{{from.numbers[i]}} == StatePart{{to.numbers[i]}}))
      return fmt::format("{:.17g} in place of {:.17g}{}", to.numbers[i], from.numbers[i],
                         from.numbers.size() > 1 ? fmt::format(" as number {}", i + 1) : "");
  return "nothing";
}

}  // namespace

const char* code_of_skip(std::string_view part) {
  return part == "weights" || part == "masters" ? "L5"
         : part == "moments"                    ? "L6"
         : part == "steps"                      ? "L7"
         : part == "ema"                        ? "L8"
         : part == "schedule"                   ? "L9"
         : part == "random"                     ? "L11"
                                                : "L10";
}

std::optional<Difference> difference(const State& due, const State& got) {
  static const StatePart kNone;
  for (const auto& [part, value] : due) {
    const auto other = got.find(part);
    const StatePart& there = other == got.end() ? kNone : other->second;
    if (!(value == there)) return Difference{part, first_change(value, there)};
  }
  for (const auto& [part, value] : got)
    if (!due.contains(part) && !(value == kNone)) return Difference{part, first_change(kNone, value)};
  return std::nullopt;
}

bool skipped(const RankReply& before, const RankReply& after) {
  return after.skipped.value_or(!difference(before.state, after.state));
}

LoopAuditor::LoopAuditor(Loop& loop, const ScaleRule& rule) : loop_(loop), rule_(rule) {
  for (const CallCheck& check : loop_checks()) out_.results.push_back({.check = &check});
}

CallAudit LoopAuditor::audit() {
  if (!finds_scale()) return std::move(out_);
  repeats();
  if (!passed("L1")) return std::move(out_);
  detects();
  invariant();
  if (seen_) {
    for (const char* steps : {"X.", "..X.", "..XX."}) keeps(steps);
    leaves_nothing();
    if (loop_.has(Ability::scaler)) moves_scale();
  }
  if (loop_.has(Ability::clip) && passed("L14")) clips();
  if (loop_.has(Ability::accumulate)) {
    if (passed("L14")) keeps_one_scale();
    if (seen_) spoils_window();
  }
  if (loop_.has(Ability::resume)) resumes();
  if (loop_.has(Ability::ranks)) ranks_agree();
  return std::move(out_);
}

LoopAuditor::Run LoopAuditor::play(const LoopSetup& setup, std::vector<LoopCall> calls) {
  Run run{setup, std::move(calls), {}};
  run.replies = loop_.run(run.setup, run.calls);
  ++out_.sequences;
  out_.calls += static_cast<std::int64_t>(run.replies.size());
  require_judgeable(run);
  return run;
}

void LoopAuditor::require_judgeable(const Run& run) const {
  for (std::size_t i = 0; i < run.replies.size(); ++i) {
    const LoopReply& reply = run.replies[i];
    const std::string where = run.calls[i].str();
    if (reply.error)
      throw LoopError(
          fmt::format("[audit step] {} fails ({}), want a reply; with {}", where, reply.text, run.setup.str()));
    if (reply.ranks.size() != static_cast<std::size_t>(run.setup.ranks))
      throw LoopError(
          fmt::format("[audit step] {}: got replies of {} ranks, want {}", where, reply.ranks.size(), run.setup.ranks));
    for (const RankReply& rank : reply.ranks) {
      if (!rank.state.contains("weights"))
        throw LoopError(fmt::format("[audit step] {}: got a state without weights", where));
      if (run.calls[i].op == LoopOp::step && rank.scales.empty())
        throw LoopError(fmt::format("[audit step] {}: got no scale", where));
    }
  }
  if (run.replies.size() != run.calls.size())
    throw LoopError(fmt::format("[audit step] got {} replies to {} calls", run.replies.size(), run.calls.size()));
  const auto first = std::ranges::find(run.calls, LoopOp::step, &LoopCall::op);
  if (first == run.calls.end()) return;
  const double got = run.at(static_cast<std::size_t>(first - run.calls.begin())).scales.front();
  if (got != run.setup.scale)
    throw LoopError(fmt::format("[audit step] {}: got a scale of {:g}, want that of the setup, {:g}", first->str(), got,
                                run.setup.scale));
}

LoopCall LoopAuditor::bad(int batch, int micro_batch, int rank) const {
  return {.batch = batch, .poison = seen_, .micro_batch = micro_batch, .rank = rank};
}

std::vector<LoopCall> LoopAuditor::pattern(std::string_view steps) const {
  std::vector<LoopCall> out;
  for (const char c : steps) {
    const auto batch = static_cast<int>(out.size());
    out.push_back(c == 'X' ? bad(batch) : LoopCall{.batch = batch});
  }
  return out;
}

CheckResult& LoopAuditor::result(std::string_view code) {
  return *std::ranges::find(out_.results, code, [](const CheckResult& r) { return std::string_view(r.check->code); });
}

void LoopAuditor::pass(std::string_view code) {
  CheckResult& r = result(code);
  if (r.outcome == Outcome::not_asked) r.outcome = Outcome::passed;
}

void LoopAuditor::fail(std::string_view code, const Run& run, std::size_t last, std::string says, Outcome outcome) {
  CheckResult& r = result(code);
  if (r.outcome == Outcome::failed) return;
  r.outcome = outcome;
  r.says = std::move(says);
  r.setup = run.setup.str();
  r.calls.clear();
  for (std::size_t i = 0; i <= last && i < run.calls.size(); ++i) r.calls.push_back(run.calls[i].str());
}

bool LoopAuditor::finds_scale() {
  for (const double scale : {0x1p16, 0x1p8, 1.0}) {
    scale_ = scale;
    std::vector<LoopCall> calls = pattern("...");
    calls.insert(calls.begin(), LoopCall{LoopOp::look});
    const Run run = play(usual(), calls);
    bool clean = true;
    for (std::size_t i = 1; i < calls.size(); ++i) clean &= !skipped(run.at(i - 1), run.at(i));
    if (clean) {
      counts_updates(run);
      return passed("L2");
    }
    if (scale == 1) fail("L2", run, calls.size() - 1, "clean steps are skipped or move nothing, at scale 1 too");
  }
  return false;
}

void LoopAuditor::counts_updates(const Run& run) {
  if (run.at(0).state.at("weights") == run.at(3).state.at("weights"))
    return fail("L2", run, 3, "three clean steps do not move the weights");
  for (std::size_t i = 1; i < run.replies.size(); ++i) {
    const auto before = run.at(i - 1).state.find("steps"), after = run.at(i).state.find("steps");
    if (before == run.at(i - 1).state.end() || after == run.at(i).state.end()) continue;
    if (before->second.numbers.size() != 1 || after->second.numbers.size() != 1) continue;
    const double counted = after->second.numbers[0] - before->second.numbers[0];
    if (counted != 1)
      return fail("L2", run, i, fmt::format("a clean step has to count as 1, and counts as {:g}", counted));
  }
  pass("L2");
}

void LoopAuditor::repeats() {
  std::vector<LoopCall> calls = pattern("...");
  calls.insert(calls.begin(), LoopCall{LoopOp::look});
  const Run first = play(usual(), calls), second = play(usual(), calls);
  for (std::size_t i = 0; i < calls.size(); ++i) {
    std::optional<Difference> other = difference(first.at(i).state, second.at(i).state);
    if (!other) other = difference(first.at(i).forward, second.at(i).forward);
    if (other)
      return fail("L1", first, i,
                  fmt::format("the same run again gives other {} ({}): seed everything when the loop is made",
                              other->part, other->text));
  }
  pass("L1");
}

void LoopAuditor::detects() {
  for (const double value : {kInf, -kInf, std::nan("")})
    for (const bool last : {false, true}) detects(value, last);
}

void LoopAuditor::detects(double value, bool last) {
  const LoopCall poisoned{.batch = 1, .poison = value, .last = last};
  const Run run = play(usual(), {{.batch = 0}, poisoned, {.batch = 2}});
  const RankReply &before = run.at(0), &after = run.at(1), &next = run.at(2);
  const bool stays = !difference(before.state, after.state);
  if (stays && after.skipped == false)
    return fail("L3", run, 1, "nothing moves, and the loop says that it made the step");
  if (stays || after.skipped.value_or(false)) {
    seen_ = value;
    pass("L3");
    return pass("L4");
  }
  const StatePart& weights = after.state.at("weights");
  const bool spread = !weights.finite() || (next.loss && !std::isfinite(*next.loss));
  const bool known = !weights.numbers.empty() || next.loss.has_value();
  if (spread || !known) return fail("L3", run, 1, "the step is made, and the weights are not finite any more");
  pass("L3");
  fail("L4", run, 1, "the step is made, and the weights stay finite: a number took the place of the gradient");
}

void LoopAuditor::keeps(std::string_view steps) {
  std::vector<LoopCall> calls = pattern(steps);
  calls.insert(calls.begin(), LoopCall{LoopOp::look});
  const Run run = play(usual(), calls);
  for (std::size_t i = 1; i < calls.size(); ++i) {
    if (!calls[i].poison) continue;
    const State &before = run.at(i - 1).state, &after = run.at(i).state;
    State all = before;
    all.insert(after.begin(), after.end());
    for (const auto& [part, value] : all) {
      const State of_before = before.contains(part) ? State{{part, before.at(part)}} : State{};
      const State of_after = after.contains(part) ? State{{part, after.at(part)}} : State{};
      const std::optional<Difference> moved = difference(of_before, of_after);
      if (!moved)
        pass(code_of_skip(part));
      else if (of_before.empty() || of_before.at(part) == StatePart{})  // fused SGD of torch makes its buffers
        fail(code_of_skip(part), run, i, fmt::format("{} is made in a skipped step, before any update", part),
             Outcome::weak);
      else
        fail(code_of_skip(part), run, i, fmt::format("{} changes in a skipped step: {}", part, moved->text));
    }
  }
}

/// Runs with and without skipped steps before a clean one, at the scale that this one has: they end alike.
void LoopAuditor::compare_without(const LoopSetup& setup, const std::vector<LoopCall>& skips, const LoopCall& clean,
                                  const std::string& code) {
  std::vector<LoopCall> calls = skips;
  calls.push_back(clean);
  const Run with = play(setup, calls);
  const std::size_t last = skips.size();
  if (skipped(with.at(last - 1), with.at(last)))
    return fail(code, with, last, "the clean step behind it is skipped too: its gradients were not cleared");
  LoopSetup fresh = setup;
  fresh.scale = with.at(last).scales.front();
  const Run without = play(fresh, {LoopCall{LoopOp::look}, clean});
  const std::optional<Difference> other = difference(without.at(1).state, with.at(last).state);
  if (!other) return pass(code);
  // Dropout draws other numbers behind a skip. Running statistics move too, and the loss does not see them.
  const bool same_loss = with.at(last).loss.has_value() && with.at(last).loss == without.at(1).loss;
  if (!same_loss && difference(without.at(0).forward, with.at(last - 1).forward)) {
    result(code).says = "forward passes move what they read, so steps behind a skip differ by themselves";
    return;
  }
  fail(code, with, last, fmt::format("{} differs from a run without the skipped step: {}", other->part, other->text));
}

void LoopAuditor::leaves_nothing() {
  compare_without(usual(), {bad(0)}, {.batch = 1}, "L12");
  compare_without(usual(), {bad(0), bad(1)}, {.batch = 2}, "L12");
}

void LoopAuditor::moves_scale() {
  for (const char* steps : {".......", "...X....", "XX...", ".X.X.X..."}) {
    LoopSetup setup{.scale = std::min(scale_, 1024.0), .growth_interval = 3};
    const Run run = play(setup, pattern(steps));
    ScaleRule rule = rule_;
    rule.init_scale = setup.scale;
    rule.window = setup.growth_interval;
    LossScale due(rule);
    for (std::size_t i = 0; i < run.calls.size(); ++i) {
      const double got = run.at(i).scales.front();
      if (static_cast<float>(got) != static_cast<float>(due.scale()))
        return fail("L13", run, i,
                    fmt::format("the scale of this step has to be {:g} by the rule {}, and is {:g}", due.scale(),
                                rule.name, got));
      due.update(run.calls[i].poison.has_value());
    }
  }
  pass("L13");
}

}  // namespace ampcheck::checks::scaler
