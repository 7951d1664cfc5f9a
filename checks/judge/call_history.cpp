// SPDX-License-Identifier: Apache-2.0
#include "checks/judge/call_history.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <optional>
#include <thread>

#include "checks/data/regimes.h"
#include "checks/judge/judge.h"

namespace ampcheck::checks {

namespace {

using Bits = std::vector<std::byte>;

constexpr std::int64_t kFewestInARow = 20, kMostMoved = std::int64_t{1} << 26;  ///< elements of all calls in a row
/// Of all calls in a row, of a kernel of which each takes that long: an interpreted one. A compiled one makes all of
/// them, however busy the machine is.
constexpr double kMostSeconds = 4, kInterpreted = 0.02;

/// Tensors of forward calls, which stay where they are from call to call.
class Place {
 public:
  explicit Place(CaseRun& run) : run_(run), pristine_(run.forward_tensors(run.reference.inputs(), 0)) {
    for (const auto& [name, tensor] : pristine_.read) tensors_.emplace(name, tensor.clone());
    for (const auto& [name, tensor] : pristine_.write) tensors_.emplace(name, tensor.clone());
    std::int64_t elements = 0;
    for (const auto& [name, tensor] : tensors_) elements += tensor.view().count();
    in_a_row_ = std::clamp(kMostMoved / std::max<std::int64_t>(elements, 1), kFewestInARow, kCallsInARow);
    call_.attributes = &run.call.attributes;
    call_.cancel = run.options.cancel;
    for (const auto& [name, tensor] : tensors_) call_.tensors.emplace_back(name, tensor.view());
    for (const auto& [name, from] : pristine_.in_place) call_.tensors.emplace_back(name, tensors_.at(from).view());
  }

  /// The bits of all that a call with these inputs writes.
  Bits call(const NamedValues& inputs) {
    take(inputs);
    const RunningLaunch running;
    run_.op.kernel.forward(call_);
    return bits();
  }
  /// How many calls in a row leave the same bits; those of a kernel that overwrites or adds differ rightly.
  std::int64_t equal_calls(const NamedValues& inputs) {
    if (!pristine_.in_place.empty() || !run_.op.signature.launch.accumulates.empty()) return in_a_row_;
    take(inputs);
    std::vector<std::string> written;
    for (const Written& output : run_.outputs) written.push_back(output.name);
    const RunningLaunch running;
    return run_.op.kernel.host->equal_calls(call_, written, in_a_row_);
  }
  std::int64_t in_a_row() const { return in_a_row_; }
  /// Fewer calls in a row where each takes so many seconds.
  void limit(double seconds) {
    if (seconds < kInterpreted) return;
    const double fit = kMostSeconds / seconds;
    if (fit < static_cast<double>(in_a_row_)) in_a_row_ = std::max(static_cast<std::int64_t>(fit), kFewestInARow);
  }
  /// What lies there now.
  Bits bits() const {
    Bits out;
    for (const Written& output : run_.outputs) append(call_.at(output.name), out);
    return out;
  }
  /// The same of a launch.
  Bits bits_of(const LaunchResult& launched) const {
    Bits out;
    for (const Written& output : run_.outputs) append(launched.written.at(output.name).view(), out);
    return out;
  }
  /// Whether what lies there is right for these inputs.
  bool right(const NamedValues& inputs) const {
    RunOptions quiet = run_.options;
    quiet.explain = quiet.power = quiet.relations = false;
    CaseRun at(run_.op, run_.call, quiet, inputs);
    std::vector<Subject> subjects;
    for (const Written& output : at.outputs)
      subjects.push_back({{CheckId::Kind::forward, output.name}, &output, call_.at(output.name)});
    return std::ranges::all_of(judge(at, subjects, Pass::forward), [](const CheckResult& c) { return c.failed == 0; });
  }

 private:
  /// Its case is dense.
  static void append(const TensorView& view, Bits& out) {
    const auto* const data = view.as<const std::byte>();
    out.insert(out.end(), data, data + view.count() * bytes(view.dtype));
  }
  void take(const NamedValues& inputs) {
    for (const auto& [name, tensor] : pristine_.read) tensors_.at(name).assign(inputs.at(name));
    for (const auto& [name, tensor] : pristine_.write)
      std::memcpy(tensors_.at(name).bytes().data(), tensor.bytes().data(), tensor.bytes().size());
  }

  CaseRun& run_;
  LaunchTensors pristine_;
  std::int64_t in_a_row_ = 0;
  std::map<std::string, GuardedTensor> tensors_;
  kernels::KernelCall call_;
};

/// Inputs of that many other draws.
NamedValues drawn(const CaseRun& run, std::uint64_t other) {
  OpCall call = run.call;
  call.seed += 1000003 * other;
  NamedValues out;
  for (const TensorSpec& spec : run.op.signature.inputs)
    if (run.call.has(spec)) out[spec.name] = input_values(run.op.signature, call, spec);
  return out;
}

/// Whether any values of the domain may stand anywhere in the tensor.
bool free_values(const TensorSpec& spec) {
  return (spec.role == Role::data || spec.role == Role::weight) && spec.type != TypeRule::i64;
}

/// `b` with the first and last element of each tensor of `a`.
NamedValues with_ends_of(const CaseRun& run, const NamedValues& a, const NamedValues& b) {
  NamedValues out = b;
  for (const TensorSpec& spec : run.op.signature.inputs) {
    if (!out.contains(spec.name)) continue;
    std::vector<double>& values = out.at(spec.name);
    const std::vector<double>& ends = a.at(spec.name);
    if (!free_values(spec)) values = ends;
    if (values.empty()) continue;
    values.front() = ends.front();
    values.back() = ends.back();
  }
  return out;
}

/// The same values in the opposite order: sums and extremes are the same.
NamedValues reversed(const CaseRun& run, const NamedValues& a) {
  NamedValues out = a;
  for (const TensorSpec& spec : run.op.signature.inputs)
    if (out.contains(spec.name) && free_values(spec)) std::ranges::reverse(out.at(spec.name));
  return out;
}

class History {
 public:
  explicit History(CaseRun& run)
      : run_(run), here_(run), there_(run), a_(run.reference.inputs()), b_(drawn(run, 1)), c_(drawn(run, 2)) {}

  /// Cheap: whether anything looks as if calls were not independent. `failed`: the case has findings. `launched`: with
  /// the case's own inputs, before.
  bool suspicious(bool failed, const LaunchResult& launched) {
    std::vector<std::pair<const NamedValues*, Bits>> seen;
    const NamedValues mixed = with_ends_of(run_, a_, b_), turned = reversed(run_, a_);
    double fastest = HUGE_VAL;  // of one call another process may take the time
    const auto call = [&](Place& place, const NamedValues& inputs) {
      const auto start = std::chrono::steady_clock::now();
      seen.emplace_back(&inputs, place.call(inputs));
      fastest = std::min(fastest, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    };
    for (const NamedValues* inputs : {&a_, &b_}) call(here_, *inputs);
    for (const NamedValues* inputs : std::initializer_list<const NamedValues*>{&c_, &mixed, &turned, &a_, &b_})
      call(there_, *inputs);
    there_.limit(fastest);
    bool odd = failed || seen.front().second != here_.bits_of(launched) || there_.equal_calls(a_) < there_.in_a_row();
    for (std::size_t i = 0; i < seen.size(); ++i)
      for (std::size_t j = 0; j < i; ++j)
        odd |= (*seen[i].first == *seen[j].first) != (seen[i].second == seen[j].second);
    // Of the last call: part of it may be another call's.
    return odd || !there_.right(b_);
  }

  /// How a call follows from earlier ones, in words; nothing if none does.
  std::optional<std::string> told() {
    anew();
    const Bits first = here_.call(a_);
    if (!here_.right(a_)) return std::nullopt;  // wrong by itself
    anew();
    if (here_.call(a_) != first) return std::nullopt;  // no two first calls agree: AC404
    const Bits alone = first_of(there_, b_);
    if (std::optional<std::string> story = told_by_other_data(first, alone)) return story;
    if (differs(here_, b_, alone))
      return "results are kept by the addresses of the tensors: other data at the same place get an "
             "earlier result";
    const NamedValues mixed = with_ends_of(run_, a_, b_), turned = reversed(run_, a_);
    if (differs(there_, mixed, first_of(there_, mixed)))
      return "results are kept by the first or last elements of the inputs: other data with the same "
             "ones get an earlier result";
    if (differs(there_, turned, first_of(there_, turned)))
      return "results are kept by a sum or an extreme of the inputs: the same values in another order "
             "get an earlier result";
    anew();
    const std::int64_t equal = there_.equal_calls(a_);
    if (equal == there_.in_a_row()) return std::nullopt;
    anew();
    if (there_.equal_calls(a_) != equal) return std::nullopt;  // by chance: AC404
    return fmt::format(
        "the same for the first {} calls with the same data, then other bits: it counts "
        "its calls, or keeps something from call to call",
        equal);
  }

 private:
  void anew() { run_.op.kernel.host->start_anew(); }
  Bits first_of(Place& place, const NamedValues& inputs) {
    anew();
    return place.call(inputs);
  }
  /// Whether a call gives other bits after one with the data `a`.
  bool differs(Place& place, const NamedValues& inputs, const Bits& alone) {
    anew();
    here_.call(a_);
    return place.call(inputs) != alone;
  }

  std::optional<std::string> told_by_other_data(const Bits& first, const Bits& alone) {
    anew();
    here_.call(a_);
    const Bits after = there_.call(b_);
    if (after == alone) return std::nullopt;
    const Bits third = there_.call(c_);
    if (after == first && third == alone) return "each call gives the result of the call before it";
    if (after == first)
      return "results are kept by the shapes of the tensors: other data at another place get an earlier "
             "result";
    return "a call gives other bits after a call with other data: something of it is kept";
  }

  CaseRun& run_;
  Place here_, there_;
  NamedValues a_, b_, c_;
};

bool applies(const CaseRun& run) {
  if (run.op.kernel.host == nullptr || run.op.forms.empty() || run.options.device != Device::cpu) return false;
  if (run.op.signature.precision.atomics || !run.reference.inputs_finite()) return false;
  OpCall first = default_call(run.op.signature, run.call.storage);
  first.seed = run.call.seed;
  return first.str(run.op.signature) == run.call.str(run.op.signature);
}

}  // namespace

void check_call_history(CaseRun& run, const LaunchResult& forward) {
  if (!applies(run)) return;
  const bool failed = std::ranges::any_of(run.checks, [](const CheckResult& c) { return convicts(c.verdict); });
  History history(run);
  std::optional<std::string> story;
  if (history.suspicious(failed, forward)) story = history.told();
  const Written& output = run.outputs.front();
  const std::int64_t all = output.shape.count();
  run.add_relation({CheckId::Kind::history, output.name}, Code::ac410, all, story ? all : 0, story.value_or(""));
}

namespace {

enum class Writes { at_once, later, never };

/// When a call with these inputs writes most of its results; `before`: the bits that lie there before it.
Writes when_written(Place& place, const NamedValues& inputs, const Bits& before) {
  constexpr auto kStep = std::chrono::milliseconds(5);
  constexpr int kSteps = 40;
  const Bits at_once = place.call(inputs);
  std::size_t unwritten = 0;
  for (std::size_t i = 0; i < before.size(); ++i) unwritten += before[i] == at_once[i];
  if (2 * unwritten < before.size()) return Writes::at_once;  // by chance one byte of some
  for (int step = 0; step < kSteps; ++step) {
    std::this_thread::sleep_for(kStep);
    if (place.bits() != at_once) return Writes::later;
  }
  return Writes::never;
}

}  // namespace

bool writes_later(CaseRun& run) {
  constexpr int kCalls = 4;  // on a busy machine a late thread may come before we look
  if (!applies(run)) return false;
  Place place(run);
  const Bits before = place.bits();
  Writes when = Writes::at_once;
  for (int call = 0; call < kCalls && when == Writes::at_once; ++call)
    when = when_written(place, run.reference.inputs(), before);
  if (when != Writes::later) return false;
  const Written& output = run.outputs.front();
  run.add_relation({CheckId::Kind::history, output.name}, Code::ac411, output.shape.count(), output.shape.count(),
                   "what it writes comes after the call has returned: work of its own still runs then");
  run.op.kernel.host->distrust();
  return true;
}

}  // namespace ampcheck::checks
