// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include "checks/autocast/net_audit.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "checks/autocast/manual_tape.h"
#include "checks/autocast/net_pass.h"
#include "checks/diagnose/smallest_set.h"
#include "checks/models/fp64_tape.h"
#include "src/amp/autocast.h"
#include "src/amp/error.h"
#include "src/error.h"

namespace ampcheck::checks::autocast {

namespace {

using Gradients = std::map<std::string, std::vector<double>>;

/// Of the weights as the graph rounded them: the same in every pass.
Gradients fp64_gradients(const NetSubject& subject, train::ParameterSet& parameters, std::int64_t batch) {
  models::Parameters values(subject.net.name, subject.seed);
  for (const Parameter& p : parameters.all()) values.values()[p.name] = to_doubles(p.value.view());
  models::Fp64Tape tape(values);
  subject.net.forward(tape, batch);
  tape.backward();
  return tape.gradients();
}

/// Relative, in the 2-norm over all of them.
double error_of(const std::vector<Gradients>& got, const std::vector<Gradients>& exact) {
  double error2 = 0, exact2 = 0;
  for (std::size_t batch = 0; batch < exact.size(); ++batch)
    for (const auto& [name, want] : exact[batch]) {
      const auto found = got[batch].find(name);
      for (std::size_t i = 0; i < want.size(); ++i) {
        const double g = found == got[batch].end() ? 0 : found->second[i];
        error2 += (g - want[i]) * (g - want[i]);
        exact2 += want[i] * want[i];
      }
    }
  return exact2 > 0 ? std::sqrt(error2 / exact2) : std::sqrt(error2);
}

bool same_bits(const TensorView& a, const TensorView& b) {
  return a.dtype == b.dtype && a.count() == b.count() &&
         std::memcmp(a.data, b.data, static_cast<std::size_t>(a.count() * bytes(a.dtype))) == 0;
}

bool same_bits(const std::vector<double>& a, const std::vector<double>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(double)) == 0;
}

class Auditor {
 public:
  explicit Auditor(const NetSubject& subject)
      : subject_(subject),
        parameters_(subject.net.name, subject.seed),
        classes_(classes_of(subject.list, subject.device)) {
    out_.scale = subject.scale > 0 ? subject.scale : subject.dtype == Dtype::fp16 ? 65536 : 1;
  }

  NetAudit audit() {
    if (!find_scale()) return std::move(out_);
    look();
    compare_with_manual();
    judge_rows(out_.rows, subject_.device, out_.results);
    judge_run();
    try_changes();
    try_custom_ops();
    return std::move(out_);
  }

 private:
  PassOptions options(const std::set<std::string>& raised = {}) const {
    return {.subject = subject_, .classes = classes_, .raised = raised, .scale = out_.scale};
  }

  /// Halves the loss scale while gradients overflow, as a scaler would; false if autocast refuses a call.
  bool find_scale() {
    try {
      for (;; out_.scale /= 2, ++out_.halved) {
        Pass pass(options(), parameters_, recordings_);
        pass.run(0);
        if (pass.gradients_finite() || out_.scale <= 1 || !pass.loss_finite()) return true;
      }
    } catch (const AmpError& error) {
      const std::string text = error.what();
      const bool banned = text.find("unsafe to autocast") != std::string::npos;
      out_.results.add(
          banned ? "A7" : "A4", Outcome::failed,
          banned ? fmt::format("a banned op is called in a region: call {}", safe_form("binary_cross_entropy"))
                 : "a call is refused: " + text);
      return false;
    }
  }

  /// One pass of each batch, looked at in full.
  void look() {
    std::vector<Gradients> got;
    for (std::int64_t batch = 0; batch < subject_.batches; ++batch) {
      Pass pass(options(), parameters_, recordings_);
      pass.look(batch == 0 ? &judge_ : nullptr);
      pass.run(batch);
      got.push_back(pass.gradients());
      exact_.push_back(fp64_gradients(subject_, parameters_, batch));
      if (batch == 0) {
        out_.rows = pass.rows();
        out_.bytes = pass.bytes();
        out_.held = pass.held() - held_before_;
        judge_cache(pass);
      } else {
        merge(pass.rows());
      }
    }
    out_.error = error_of(got, exact_);
  }

  void merge(const std::vector<OpRow>& more) {
    for (std::size_t i = 0; i < std::min(more.size(), out_.rows.size()); ++i) {
      OpRow& row = out_.rows[i];
      const OpRow& other = more[i];
      if (row.call != other.call) continue;
      if (other.headroom) row.headroom = std::min(row.headroom.value_or(*other.headroom), *other.headroom);
      if (other.excess) row.excess = std::max(row.excess.value_or(0), *other.excess);
      if (other.error) row.error = std::max(row.error.value_or(0), *other.error);
      row.overflowed += other.overflowed;
      row.cast_overflowed += other.cast_overflowed;
      row.cast_elements += other.cast_elements;
      row.grad_flushed += other.grad_flushed;
      row.grad_overflowed += other.grad_overflowed;
      row.grad_elements += other.grad_elements;
    }
  }

  /// The first batch as autocast runs it, and as a program does that casts by hand.
  void compare_with_manual() {
    Pass pass(options(), parameters_, recordings_);
    pass.run(0);
    PassOptions by_hand = options();
    by_hand.by_hand = true;
    Pass manual(by_hand, parameters_, recordings_);
    manual.run(0);
    const OpRow* first = nullptr;
    for (OpRow& row : out_.rows) {
      const TensorView a = pass.output(row.call), b = manual.output(row.call);
      row.bits = same_bits(a, b) ? Bits::same : Bits::differ;
      if (row.bits == Bits::differ && first == nullptr) first = &row;
    }
    if (first != nullptr) {
      out_.results.add("A2", Outcome::failed, fmt::format("{} differs from the same op cast by hand", first->call),
                       {first->call});
      return;
    }
    const Gradients a = pass.gradients(), b = manual.gradients();
    for (const auto& [name, gradient] : a)
      if (const auto other = b.find(name); other == b.end() || !same_bits(gradient, other->second)) {
        out_.results.add("A2", Outcome::failed,
                         fmt::format("the gradient of {} differs from that of the net cast by hand", name), {name});
        return;
      }
    out_.results.add(
        "A2", Outcome::passed,
        fmt::format("{} ops and {} gradients have the bits of the net cast by hand", out_.rows.size(), a.size()));
  }

  /// A10: what the cache holds at the end of a region, and behind it.
  void judge_cache(const Pass& pass) {
    const std::int64_t left = pass.left() - held_before_;
    if (left > 0)
      return out_.results.add("A10", Outcome::failed,
                              fmt::format("{} bytes of cast weights are held behind the step: a region stays open, so "
                                          "that memory grows and an update leaves the casts stale",
                                          left));
    if (out_.held > pass.due_held())
      return out_.results.add("A10", Outcome::failed,
                              fmt::format("the cache holds {} bytes where one cast of every weight takes {}: weights "
                                          "are cast more than once, as copies of a weight are",
                                          out_.held, pass.due_held()));
    out_.results.add("A10", Outcome::passed,
                     fmt::format("{} bytes of cast weights are kept until a region ends, each once, and none behind "
                                 "it; an update in place inside of it is not seen",
                                 out_.held));
  }

  /// A13, which rows do not tell.
  void judge_run() {
    std::vector<std::string> wrong;
    for (const train::LiveFinding& finding : judge_.findings()) wrong.push_back(finding.call);
    for (const train::CastFinding& finding : judge_.casts()) wrong.push_back(finding.where);
    if (!wrong.empty())
      out_.results.add("A13", Outcome::failed,
                       fmt::format("{} is not what its formula gives at its own inputs", wrong.front()), wrong);
    else if (judge_.judged() > 0)
      out_.results.add("A13", Outcome::passed,
                       fmt::format("{} calls judged, forward and backward, at their rounded inputs", judge_.judged()));
  }

  static bool ill(const std::vector<OpRow>& rows) { return std::ranges::any_of(rows, is_ill); }

  struct Tried {
    bool ill = false;
    double error = 0;
    std::int64_t bytes = 0;
  };
  Tried tried(const std::set<std::string>& raised) {
    Tried out;
    std::vector<Gradients> got;
    for (std::int64_t batch = 0; batch < subject_.batches; ++batch) {
      Pass pass(options(raised), parameters_, recordings_);
      pass.look(nullptr);
      pass.run(batch);
      got.push_back(pass.gradients());
      out.ill |= ill(pass.rows());
      if (batch == 0) out.bytes = pass.bytes();
    }
    out.error = error_of(got, exact_);
    return out;
  }

  void try_changes() {
    std::vector<std::string> kinds, likely;
    for (const OpRow& row : out_.rows)
      if (row.enabled && row.is_low() && std::ranges::find(kinds, row.op) == kinds.end()) kinds.push_back(row.op);
    for (const OpRow& row : out_.rows)
      if (ill({row}) && std::ranges::find(kinds, row.op) != kinds.end() &&
          std::ranges::find(likely, row.op) == likely.end())
        likely.push_back(row.op);
    out_.ill = ill(out_.rows);
    for (const std::string& kind : kinds) {
      const Tried of = tried({kind});
      out_.each.push_back({{kind}, out_.error, of.error, out_.bytes, of.bytes});
    }
    std::ranges::stable_sort(out_.each, [](const Change& a, const Change& b) {
      const auto size = [](double error) { return std::isfinite(error) ? error : HUGE_VAL; };
      return size(a.error_after) < size(b.error_after);
    });
    std::set<std::string> ops;
    for (const std::string& op : subject_.suspects)
      if (std::ranges::find(kinds, op) != kinds.end()) ops.insert(op);
    out_.suspected = !out_.ill && !ops.empty();
    if (out_.ill) {
      const diagnose::Search search =
          diagnose::smallest_set(kinds, likely, [&](const diagnose::Ops& set) { return !tried(set).ill; });
      out_.tried = search.tried;
      if (!search.known) return;
      ops.insert(search.ops.begin(), search.ops.end());
    }
    if (ops.empty()) return;
    const Tried of = tried(ops);
    out_.advice = Change{ops, out_.error, of.error, out_.bytes, of.bytes};
  }

  /// Ops that are none of torch's, under custom_fwd with each cast_inputs.
  void try_custom_ops() {
    std::vector<std::string> mixed, all;
    for (const OpRow& row : out_.rows) {
      const OpDef& op = models::op_of_call(row.op);
      if (!row.enabled || (op.plugin.empty() && !op.signature.torch_op.empty())) continue;
      all.push_back(fmt::format("{} {}", row.call, ampcheck::name(row.computes)));
      const bool takes = row.policy == CastPolicy::unlisted || row.policy == CastPolicy::promote;
      if (takes && std::ranges::any_of(row.handed, [&](Dtype d) { return d != row.handed.front(); }))
        mixed.push_back(row.call);
      if (std::ranges::none_of(out_.custom, [&](const CustomTry& t) { return t.op == row.op; })) try_custom(row.op);
    }
    if (!mixed.empty())
      out_.results.add("A11", Outcome::weak,
                       mixed.front() + " is handed several dtypes and takes the widest: cast_inputs would say which",
                       mixed);
    else if (!all.empty())
      out_.results.add("A11", Outcome::passed, "custom ops, and what they compute in", all);
  }

  void try_custom(const std::string& op) {
    const Dtype foreign = subject_.dtype == Dtype::fp16 ? Dtype::bf16 : Dtype::fp16;
    for (const std::optional<Dtype> cast_inputs :
         {std::optional<Dtype>(), std::optional(Dtype::fp32), std::optional(subject_.dtype), std::optional(foreign),
          std::optional(Dtype::fp64)}) {
      CustomTry& next = out_.custom.emplace_back(CustomTry{.op = op, .cast_inputs = cast_inputs, .refused = ""});
      try {
        std::vector<Gradients> got;
        for (std::int64_t batch = 0; batch < subject_.batches; ++batch) {
          PassOptions with = options();
          with.custom = op;
          with.cast_inputs = cast_inputs;
          Pass pass(with, parameters_, recordings_);
          pass.run(batch);
          got.push_back(pass.gradients());
          const OpRow& row = *std::ranges::find(pass.rows(), op, &OpRow::op);
          next.computes = row.computes;
          next.gives = row.gives;
        }
        next.error = error_of(got, exact_);
      } catch (const EnvironmentError&) {
        throw;
      } catch (const Error& error) {  // its contract does not take that type
        next.refused = error.what();
      }
    }
  }

  const NetSubject& subject_;
  train::ParameterSet parameters_;
  models::Recordings recordings_;
  ManualTape::Classes classes_;
  train::LiveJudge judge_{train::JudgeMode::all};
  std::vector<Gradients> exact_;
  const std::int64_t held_before_ = cached_cast_bytes();  // of regions that whoever asks has open
  NetAudit out_;
};

}  // namespace

bool is_ill(const OpRow& row) {
  return row.overflowed > 0 || row.cast_overflowed > 0 || (row.is_low() && row.excess.value_or(0) > kMostExcess);
}

NetAudit audit_net(const NetSubject& subject) {
  if (subject.dtype != Dtype::fp16 && subject.dtype != Dtype::bf16)
    throw Error(std::string("[autocast] dtype, got ") + ampcheck::name(subject.dtype) + ", want fp16 or bf16");
  return Auditor(subject).audit();
}

}  // namespace ampcheck::checks::autocast
