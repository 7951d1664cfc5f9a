// SPDX-License-Identifier: Apache-2.0
#include "checks/scaler/call_checks.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <limits>
#include <optional>

#include "checks/scaler/scenarios.h"

namespace ampcheck::checks::scaler {

namespace {

constexpr CallCheck kChecks[] = {
    {"S1", "trajectory", "does the scale grow and fall when and as far as the rule says?"},
    {"S2", "growth guard", "does a scale that would leave fp32 stay as it is?"},
    {"S3", "floor", "does the scale stop at the rule's floor?"},
    {"S4", "late window", "does it still grow once the window is set below the count of clean steps?"},
    {"S5", "hysteresis", "are overflows suppressed and the count filled up as the rule says?"},
    {"S6", "inverse", "is a scale that is no power of two divided out to the last bit?"},
    {"S7", "detection",
     "is infinity, minus infinity and NaN seen at every element, and no finite gradient taken for one?"},
    {"S8", "scale 1", "are gradients at scale 1 left as they are, bit for bit?"},
    {"S9", "overflow of unscaling", "is a gradient seen that becomes infinite by unscaling?"},
    {"S10", "several flags", "do two bad gradients skip a step as one does?"},
    {"S11", "skip", "does a skipped step leave weights, moments and step count alone?"},
    {"S12", "invariance", "is the update the same for scales 1, 2^8 and 2^16?"},
    {"S13", "divisor", "are gradients divided by what their loss was multiplied with?"},
    {"S14", "order of calls", "is a wrong order of calls refused, and a right one not?"},
    {"S15", "two optimizers", "does only the one with the bad gradient skip, and the scale fall once?"},
    {"S16", "late corruption", "is infinity seen that comes between unscale and step?"},
    {"S17", "accumulation", "does a window of micro-batches keep one scale, and a bad one spoil just this window?"},
    {"S18", "reload", "does a saved and loaded scaler go on as if nothing had been?"},
    {"S19", "disabled", "does a disabled scaler do nothing at all?"},
    {"S20", "ranks", "do all ranks skip and scale alike when one has a bad gradient?"},
    {"S21", "cause of a skip", "does a skip repeat at scale 1 (a NaN) or not (an overflow)?"},
    {"S22", "schedule", "does the schedule stand still on a skipped step?"},
    {"S23", "fp16 loss", "is a loss in fp16 scaled without leaving fp16's range?"},
};

/// The failure of an earlier one explains a later one's: of scalers, and of training steps.
constexpr std::array<std::string_view, 43> kExplains = {
    "S19", "S14", "S7",  "S13", "S12", "S6",  "S8",  "S11", "S1",  "S5",  "S10", "S15", "S17", "S2",  "S3",
    "S4",  "S18", "S20", "S22", "S9",  "S16", "S23", "S21", "L2",  "L1",  "L3",  "L4",  "L14", "L15", "L5",
    "L6",  "L7",  "L8",  "L9",  "L10", "L11", "L12", "L16", "L17", "L13", "L18", "L19", "L20"};

std::string text_of(const Values& v) { return fmt::format("[{:.9g}, {:.9g}, {:.9g}]", v[0], v[1], v[2]); }

bool same(double got, double due, double ulps) {
  if (got == due || (std::isnan(got) && std::isnan(due))) return true;
  if (ulps == 0 || !std::isfinite(got) || !std::isfinite(due)) return false;
  const auto nearest = static_cast<float>(due);
  const double ulp = std::nextafter(std::abs(nearest), std::numeric_limits<float>::infinity()) - std::abs(nearest);
  return std::abs(got - due) <= ulps * ulp;
}

bool same(const Values& got, const Values& due, double ulps) {
  return same(got[0], due[0], ulps) && same(got[1], due[1], ulps) && same(got[2], due[2], ulps);
}

/// Scales are stored in fp32, or in fp64 by scalers in Python.
bool same_scale(double got, double due) { return same(static_cast<float>(got), static_cast<float>(due), 0); }

std::string scale_difference(const Scenario& s, const Call& call, const Reply& got, const Reply& due) {
  if (s.scales && call.op == Op::update && !same_scale(got.scale, due.scale))
    return fmt::format("the scale has to be {:g}, and is {:g}", due.scale, got.scale);
  if (s.scales && call.op == Op::update && s.setup.ranks > 1 && !same(got.other_scale, got.scale, 0))
    return fmt::format("rank 0 has scale {:g}, rank 1 {:g}", got.scale, got.other_scale);
  if (s.factors && call.op == Op::scale && !same(got.scaled, due.scaled, 0))
    return fmt::format("a loss of 1 has to become {:g}, and becomes {:g}", due.scaled, got.scaled);
  return "";
}

std::string step_difference(const Scenario& s, const Reply& got, const Reply& due) {
  if (!same(got.weights, due.weights, s.ulps))
    return fmt::format("the weights have to be {}, and are {}", text_of(due.weights), text_of(got.weights));
  if (got.steps >= 0 && got.steps != due.steps)
    return fmt::format("the optimizer has made {} updates, and counts {}", due.steps, got.steps);
  return "";
}

/// How a call's reply differs from what is due; nothing if it does not.
std::string difference(const Scenario& s, const Call& call, const Reply& got, const Reply& due) {
  if (got.error != due.error && s.errors)
    return due.error ? "it has to be refused, and is not"
                     : fmt::format("it is refused ({}), and has to be done", got.text);
  if (got.error || due.error) return "";
  if (s.grads && call.op == Op::unscale && !same(got.grads, due.grads, s.ulps))
    return fmt::format("the gradients have to be {}, and are {}", text_of(due.grads), text_of(got.grads));
  if (s.weights && call.op == Op::step) return step_difference(s, got, due);
  if (s.schedule && call.op == Op::schedule && got.schedule >= 0 && got.schedule != due.schedule)
    return fmt::format("the schedule has to be at {}, and is at {}", due.schedule, got.schedule);
  return scale_difference(s, call, got, due);
}

class Auditor {
 public:
  Auditor(Subject& subject, const ScaleRule& rule) : subject_(subject), rule_(rule) {
    for (const CallCheck& check : kChecks) out_.results.push_back({.check = &check});
  }

  CallAudit audit(int longest) {
    for (const Scenario& scenario : scenarios(rule_, subject_)) run(scenario);
    for (const Ideal& ideal : ideals(rule_, subject_)) run(ideal);
    const bool failed = out_.headline() != nullptr;
    const auto start = std::chrono::steady_clock::now();
    if (!failed) search(longest);
    out_.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    return std::move(out_);
  }

 private:
  CheckResult& result(std::string_view code) {
    return *std::ranges::find(out_.results, code, [](const CheckResult& r) { return std::string_view(r.check->code); });
  }

  /// The first call that differs, and how.
  std::string first_difference(const Scenario& s, std::size_t& at) {
    return first_difference(s, subject_.run(s.setup, s.calls), what_is_due(rule_, s.setup, s.calls), at);
  }
  std::string first_difference(const Scenario& s, const std::vector<Reply>& got, const std::vector<Reply>& due,
                               std::size_t& at) {
    ++out_.sequences;
    out_.calls += static_cast<std::int64_t>(got.size());
    for (at = 0; at < std::min(due.size(), got.size()); ++at) {
      std::string text = difference(s, s.calls[at], got[at], due[at]);
      if (!text.empty()) return text;
    }
    return "";
  }

  void run(const Scenario& s) {
    CheckResult& r = result(s.code);
    if (r.outcome == Outcome::failed) return;
    std::size_t at = 0;
    std::string text = first_difference(s, at);
    if (text.empty()) {
      if (r.outcome == Outcome::not_asked) r.outcome = Outcome::passed;
      return;
    }
    report(r, shortest(s, at), Outcome::failed);
  }

  void run(const Ideal& ideal) {
    CheckResult& r = result(ideal.code);
    if (r.outcome == Outcome::failed) return;
    const std::vector<Reply> got = subject_.run(ideal.setup, ideal.calls);
    ++out_.sequences;
    out_.calls += static_cast<std::int64_t>(got.size());
    const std::string text = ideal.judge(got);
    if (text.empty()) {
      if (r.outcome == Outcome::not_asked) r.outcome = Outcome::passed;
      return;
    }
    r.outcome = ideal.fails ? Outcome::failed : Outcome::weak;
    r.says = text;
    r.setup = setup_text(ideal.setup);
    r.calls.clear();
    for (const Call& call : ideal.calls) r.calls.push_back(call.str());
  }

  static std::string setup_text(const Setup& s) {
    return fmt::format("init_scale {:g}, growth {:g}, backoff {:g}, window {}{}{}{}", s.init_scale, s.growth_factor,
                       s.backoff_factor, s.window, s.enabled ? "" : ", disabled", s.fused ? ", fused optimizer" : "",
                       s.ranks > 1 ? fmt::format(", {} ranks", s.ranks) : "");
  }

  /// Drops calls while it still differs.
  Scenario shortest(Scenario s, std::size_t at) {
    s.calls.resize(at + 1);
    for (bool shorter = true; shorter;) {
      shorter = false;
      for (std::size_t i = 0; i < s.calls.size(); ++i) {
        Scenario less = s;
        less.calls.erase(less.calls.begin() + static_cast<std::ptrdiff_t>(i));
        std::size_t where = 0;
        if (first_difference(less, where).empty()) continue;
        less.calls.resize(where + 1);
        s = std::move(less);
        shorter = true;
        break;
      }
    }
    return s;
  }

  void report(CheckResult& r, const Scenario& s, Outcome outcome) {
    std::size_t at = 0;
    r.outcome = outcome;
    r.says = fmt::format("{}: {}", s.calls.back().str(), first_difference(s, at));
    r.setup = setup_text(s.setup);
    r.calls.clear();
    for (const Call& call : s.calls) r.calls.push_back(call.str());
  }

  /// A gradient that came after unscale reached the weights: the rule lets it (S16), and a better scaler does not.
  static bool poisoned(const std::vector<Reply>& due) {
    return std::ranges::any_of(due, [](const Reply& reply) {
      return std::ranges::any_of(reply.weights, [](double w) { return !std::isfinite(w); });
    });
  }

  /// All sequences of calls, the short ones first. Nothing follows a call that is rightly refused. Longer ones at
  /// random.
  void search(int longest) {
    static const Call kAlphabet[] = {{Op::scale},   {Op::backward}, {.op = Op::backward, .grads = {1, std::nan(""), 1}},
                                     {Op::unscale}, {Op::step},     {Op::update}};
    std::vector<std::vector<std::uint8_t>> level = {{}};
    Scenario s;
    s.setup = {.init_scale = 8, .window = 1};
    s.errors = s.scales = s.factors = s.grads = s.weights = true;
    for (int length = 1; length <= longest && !level.empty(); ++length) {
      std::vector<std::vector<std::uint8_t>> next;
      for (const auto& word : level)
        for (std::uint8_t letter = 0; letter < std::size(kAlphabet); ++letter) {
          std::vector<std::uint8_t> longer = word;
          longer.push_back(letter);
          s.calls.clear();
          for (const std::uint8_t l : longer) {
            s.calls.push_back(kAlphabet[l]);
            if (kAlphabet[l].op == Op::update) s.calls.push_back({Op::zero});
          }
          std::vector<Reply> due = what_is_due(rule_, s.setup, s.calls);
          if (poisoned(due)) continue;
          if (due.size() == s.calls.size() && !due.back().error) next.push_back(std::move(longer));
          if (!explore(s, std::move(due))) return;
        }
      if (!explored(s)) return;
      level = std::move(next);
      out_.longest = length;
    }
    random_words(s, kAlphabet);
  }

  void random_words(Scenario& s, std::span<const Call> alphabet) {
    constexpr int kWords = 200, kLength = 40;
    std::uint64_t state = 0x9E3779B97F4A7C15u;
    for (int word = 0; word < kWords; ++word) {
      s.calls.clear();
      std::vector<Reply> due;
      while (s.calls.size() < kLength) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        s.calls.push_back(alphabet[(state >> 33) % alphabet.size()]);
        if (s.calls.back().op == Op::update) s.calls.push_back({Op::zero});
        due = what_is_due(rule_, s.setup, s.calls);
        if (due.back().error || poisoned(due)) {
          due.pop_back();
          s.calls.resize(due.size());
        }
      }
      if (!explore(s, std::move(due))) return;
    }
    explored(s);
  }

  /// The calls of `s` wait, to be run together with others. False as `explored`.
  bool explore(Scenario& s, std::vector<Reply> due) {
    constexpr std::size_t kTogether = 512;
    waiting_.push_back(s.calls);
    due_.push_back(std::move(due));
    return waiting_.size() < (subject_.is_fast() ? kTogether : 1) || explored(s);
  }

  /// Runs what waits. False if a difference was found: the first one is reported by what differs.
  bool explored(Scenario& s) {
    const std::vector<std::vector<Reply>> got = subject_.run_each(s.setup, waiting_);
    bool same = true;
    for (std::size_t i = 0; i < got.size() && same; ++i) {
      std::size_t at = 0;
      s.calls = waiting_[i];
      const std::string text = first_difference(s, got[i], due_[i], at);
      same = text.empty();
      if (!same) report_explored(s, at, text);
    }
    waiting_.clear();
    due_.clear();
    return same;
  }

  void report_explored(Scenario& s, std::size_t at, const std::string& text) {
    const Op op = s.calls[at].op;
    const bool refused = text.starts_with("it ");
    s.code = refused ? "S14" : op == Op::update ? "S1" : op == Op::step ? "S11" : "S13";
    report(result(s.code), shortest(s, at), Outcome::failed);
  }

  Subject& subject_;
  const ScaleRule& rule_;
  std::vector<std::vector<Call>> waiting_;
  std::vector<std::vector<Reply>> due_;  ///< of those that wait
  CallAudit out_;
};

}  // namespace

std::span<const CallCheck> call_checks() { return kChecks; }

const CheckResult* CallAudit::headline() const {
  for (const std::string_view code : kExplains)
    for (const CheckResult& r : results)
      if (r.outcome == Outcome::failed && r.check->code == code) return &r;
  return nullptr;
}

CallAudit audit_calls(Subject& subject, const ScaleRule& rule, std::optional<int> longest) {
  constexpr int kUsual = 8, kOfSlow = 5;
  return Auditor(subject, rule).audit(longest.value_or(subject.is_fast() ? kUsual : kOfSlow));
}

const char* name(Op op) {
  constexpr const char* kNames[] = {"scale",    "scale_half", "backward", "unscale",    "corrupt", "step",
                                    "schedule", "update",     "zero",     "set_window", "reload"};
  return kNames[static_cast<std::size_t>(op)];
}

std::string Call::str() const {
  std::string out = name(op);
  const auto plain = [](double x) { return std::isnan(x) ? std::string("nan") : fmt::format("{:g}", x); };
  if (op == Op::backward)
    out += fmt::format("({}, {}, {}{})", plain(grads[0]), plain(grads[1]), plain(grads[2]), raw ? ", raw" : "");
  if (op == Op::set_window) out += fmt::format("({})", window);
  if (optimizer != 0) out += fmt::format(" of optimizer {}", optimizer);
  if (rank != 0) out += fmt::format(" on rank {}", rank);
  return out;
}

}  // namespace ampcheck::checks::scaler
