// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include "tools/gate/ladder.h"

#include <fmt/format.h>

#include <algorithm>

#include "checks/audit/gate_rules.h"
#include "tools/report/numbers.h"

namespace ampcheck::tools {

namespace {

using checks::CaseProfile;
using checks::ProfilePair;
using checks::TensorProfile;

/// "3 cases, first 'softmax(...)'"
std::string counted(const std::vector<std::string>& cases, const char* what) {
  return fmt::format("{} {} {}, first '{}'", cases.size(), cases.size() == 1 ? "case" : "cases", what, cases.front());
}

bool same_numbers(const TensorProfile& a, const TensorProfile& b) {
  return a.elements == b.elements && a.open == b.open && a.not_finite == b.not_finite && a.max == b.max &&
         a.rms == b.rms && a.bias == b.bias && a.histogram == b.histogram;
}

bool same_tensors(const StoredCase& was, const CaseProfile& now) {
  if (was.tensors.size() != now.tensors.size()) return false;
  for (const auto& [name, profile] : now.tensors) {
    const auto at = was.tensors.find(name);
    if (at == was.tensors.end() || at->second.elements != profile.elements) return false;
  }
  return true;
}

/// The tensors of one op that differ from their state, case by case.
class Comparer {
 public:
  Comparer(const std::string& arch, OpGate& gate) : arch_(arch), gate_(gate) {}

  void add(const std::string& name, const StoredCase& was, const CaseProfile& now) {
    if (was.inputs != now.inputs) return others_.push_back(name);
    if (!same_tensors(was, now)) return reshaped_.push_back(name);
    ++gate_.compared;
    const auto bits = was.bits.find(arch_);
    if (bits == was.bits.end()) ++gate_.unknown;
    bool equal = true;
    for (const auto& [tensor, profile] : now.tensors) {
      const TensorProfile& before = was.tensors.at(tensor);
      const bool same = bits == was.bits.end()
                            ? same_numbers(before, profile)
                            : bits->second.contains(tensor) && bits->second.at(tensor) == profile.bits;
      if (same) continue;
      equal = false;
      pairs_[tensor].emplace_back(&before, &profile);
    }
    ++(equal ? gate_.equal : gate_.changed);
  }

  void say_what_is_stale() {
    if (!others_.empty())
      gate_.stale.push_back(counted(others_, others_.size() == 1 ? "has other inputs than the baseline's"
                                                                 : "have other inputs than the baseline's"));
    if (!reshaped_.empty())
      gate_.stale.push_back(counted(reshaped_, reshaped_.size() == 1 ? "has other tensors than the baseline's"
                                                                     : "have other tensors than the baseline's"));
  }
  const std::map<std::string, std::vector<ProfilePair>>& pairs() const { return pairs_; }

 private:
  const std::string& arch_;
  OpGate& gate_;
  std::map<std::string, std::vector<ProfilePair>> pairs_;
  std::vector<std::string> others_, reshaped_;
};

/// Cases that one side has and the other has not.
void compare_sets(const GatedOp& op, const Baseline& before, const LadderOptions& options, OpGate& gate) {
  std::vector<std::string> fresh, gone;
  std::size_t unasked = 0;
  std::map<std::string, bool> selected;
  for (const OpCall& call : op.calls) selected[call.str(op.op->signature)] = true;
  for (const auto& [name, profile] : op.cases)
    if (!before.cases.contains(name)) fresh.push_back(name);
  for (const auto& [name, stored] : before.cases) {
    if (selected.contains(name) && !op.cases.contains(name))
      gate.missing.push_back(name);
    else if (!selected.contains(name) && options.whole && options.settings == before.settings)
      gone.push_back(name);
    else
      unasked += selected.contains(name) ? 0 : 1;
  }
  if (unasked > 0 && !options.base)
    gate.notes.push_back(
        fmt::format("{} of the baseline's {} cases are not among those selected", unasked, before.cases.size()));
  if (!fresh.empty()) gate.stale.push_back(counted(fresh, fresh.size() == 1 ? "is not in it" : "are not in it"));
  if (!gone.empty()) gate.stale.push_back(counted(gone, gone.size() == 1 ? "is in it alone" : "are in it alone"));
  // A case that fails has its finding instead.
  std::erase_if(gate.missing, [&](const std::string& name) {
    return std::any_of(op.convicted.begin(), op.convicted.end(), [&](const CaseResult* r) { return r->name == name; });
  });
}

std::string cause_of(const CaseResult& result) {
  for (const CheckResult& check : result.checks)
    if (convicts(check.verdict) && !check.cause.empty()) return check.cause;
  return "";
}

/// Whether torch's default tolerances reject one of the worst elements of an output or gradient, beside the exact
/// reference.
bool seen_by_allclose(const CaseResult& result) {
  return std::ranges::any_of(result.checks, [](const CheckResult& check) {
    if (!is_of_pass(check.id)) return false;
    checks::Compared worst{check.dtype, {}, {}, {}};
    for (const Element& element : check.worst) {
      worst.got.push_back(element.got);
      worst.want.push_back(element.want);
    }
    return !checks::accepts(checks::torch_default(check.dtype), worst);
  });
}

void add_findings(const GatedOp& op, const Baseline* before, const LadderOptions& options, OpGate& gate) {
  std::map<Code, PendingFinding> found;
  for (const CaseResult* result : op.convicted) {
    PendingFinding& finding = found[result->code];
    finding.code = result->code;
    if (finding.cases++ == 0) finding.first = result->name;
    if (finding.smallest.empty()) finding.smallest = result->smallest;
    if (finding.cause.empty()) finding.cause = cause_of(*result);
    finding.seen_by_allclose += seen_by_allclose(*result);
  }
  for (const auto& [code, finding] : found) {
    GatedFinding gated{finding};
    if (before != nullptr && !options.base)
      for (const Waiver& waiver : before->waivers)
        if (waiver.code == code) gated.waiver = &waiver;
    gated.expired = gated.waiver != nullptr && gated.waiver->until < options.today;
    const std::string words = fmt::format("{} {} in {} case{}, first '{}'", name(text_of(code).verdict), name(code),
                                          finding.cases, finding.cases == 1 ? "" : "s", finding.first);
    if (gated.expired)
      gate.stale.push_back(fmt::format("the waiver of {} expired on {}: {}", name(code), gated.waiver->until, words));
    else if (gated.waiver != nullptr)
      gate.notes.push_back(
          fmt::format("let through until {}: {} ({})", gated.waiver->until, words, gated.waiver->reason));
    else
      gate.failures.push_back(words);
    gate.findings.push_back(std::move(gated));
  }
  if (before == nullptr || options.base || !options.whole || options.settings != before->settings) return;
  for (const Waiver& waiver : before->waivers)
    if (!found.contains(waiver.code))
      gate.stale.push_back(fmt::format("the waiver of {} is not needed: no case has this finding", name(waiver.code)));
}

void add_power(const LadderOptions& options, OpGate& gate) {
  if (!options.min_power) return;
  if (!gate.power)
    gate.failures.push_back(
        "--min-power cannot be shown: no defects are planted in kernels of this op (ampcheck list --planted)");
  else if (gate.power->share() < *options.min_power)
    gate.failures.push_back(fmt::format("the cases find {} of {} planted defects, --min-power wants {}",
                                        gate.power->found, gate.power->defects, percent(*options.min_power)));
}

void add_changes(const std::map<std::string, std::vector<ProfilePair>>& pairs, double level,
                 const LadderOptions& options, OpGate& gate) {
  for (const auto& [tensor, list] : pairs) {
    GatedTensorChange out{tensor, checks::change_of(list), {}};
    out.worse = out.change.worse(level);
    if (!out.worse.empty())
      (options.strict ? gate.failures : gate.notes).push_back(fmt::format("{} is worse: {}", tensor, out.worse));
    gate.tensors.push_back(std::move(out));
  }
  const int needed = checks::TensorChange::needed(level);
  gate.undecided = !gate.tensors.empty() && std::all_of(gate.tensors.begin(), gate.tensors.end(), [&](const auto& t) {
    return t.worse.empty() && t.change.votes() < needed;
  });
  if (gate.undecided)
    gate.notes.push_back(
        fmt::format("bits changed in fewer than {} different cases of each tensor, too few to tell whether errors are "
                    "worse: --seeds adds cases",
                    needed));
  if (options.strict_bits && gate.changed > 0)
    gate.failures.push_back(fmt::format("bits changed in {} of {} cases (--strict-bits)", gate.changed, gate.compared));
}

}  // namespace

bool OpGate::worse() const {
  return std::any_of(tensors.begin(), tensors.end(), [](const GatedTensorChange& t) { return !t.worse.empty(); });
}

bool OpGate::nothing_ran() const { return op->skipped > 0 && op->skipped + op->empty == op->calls.size(); }

ExitCode OpGate::code() const {
  if (!failures.empty()) return ExitCode::findings;
  if (!op->left_out.empty()) return ExitCode::incomplete;
  if (nothing_ran()) return ExitCode::nothing_ran;
  if (!known || !stale.empty()) return ExitCode::baseline;
  return missing.empty() ? ExitCode::passed : ExitCode::incomplete;
}

const char* OpGate::verdict() const {
  const bool found = std::any_of(findings.begin(), findings.end(), [](const GatedFinding& f) { return !f.waiver; });
  if (found) return "FINDINGS";
  if (worse()) return "WORSE";
  if (!failures.empty()) return "FAILED";
  if (!op->left_out.empty()) return "INCOMPLETE";
  if (nothing_ran()) return "NOTHING RAN";
  if (!known) return "NO BASELINE";
  if (!stale.empty()) return "STALE";
  if (!missing.empty()) return "INCOMPLETE";
  return changed > 0 ? "BITS CHANGED" : "UNCHANGED";
}

std::vector<OpGate> judge_ops(const GateRun& run, const std::vector<const Baseline*>& before,
                              std::vector<std::optional<checks::zoo::DetectionPower>> power,
                              const LadderOptions& options) {
  std::vector<OpGate> out(run.ops.size());
  std::vector<Comparer> comparers;
  std::size_t tensors = 0;
  comparers.reserve(out.size());
  for (std::size_t i = 0; i < out.size(); ++i) {
    const GatedOp& op = run.ops[i];
    OpGate& gate = out[i];
    gate.op = &op;
    gate.known = before[i] != nullptr;
    gate.power = std::move(power[i]);
    Comparer& comparer = comparers.emplace_back(run.arch, gate);
    if (before[i] == nullptr) continue;
    for (const auto& [name, profile] : op.cases)
      if (const auto at = before[i]->cases.find(name); at != before[i]->cases.end())
        comparer.add(name, at->second, profile);
    comparer.say_what_is_stale();
    compare_sets(op, *before[i], options, gate);
    tensors += comparer.pairs().size();
  }
  const double level = checks::level_of(tensors);
  for (std::size_t i = 0; i < out.size(); ++i) {
    add_findings(run.ops[i], before[i], options, out[i]);
    add_changes(comparers[i].pairs(), level, options, out[i]);
    add_power(options, out[i]);
    if (out[i].unknown > 0)
      out[i].notes.push_back(
          fmt::format("no bits of {} are known in {} cases; errors are compared", run.arch, out[i].unknown));
    if (!run.ops[i].left_out.empty())
      out[i].notes.push_back(
          fmt::format("{} cases were not judged: {}", run.ops[i].left_out.size(), run.ops[i].left_out.front()));
    if (run.ops[i].unprofiled > 0)
      out[i].notes.push_back(
          fmt::format("{} of {} cases have no profile: skipped, sampled, failed, or without a formula",
                      run.ops[i].unprofiled, run.ops[i].calls.size()));
  }
  return out;
}

namespace {

/// The case as a run found it, with bits of other architectures where all is as it was.
StoredCase stored(const std::string& arch, const CaseProfile& now, const StoredCase* was) {
  StoredCase out{now.inputs, {}, now.tensors};
  for (const auto& [tensor, profile] : now.tensors) out.bits[arch][tensor] = profile.bits;
  if (was == nullptr || was->inputs != now.inputs || !same_tensors(*was, now)) return out;
  const auto own = was->bits.find(arch);
  const bool same = own != was->bits.end() ? own->second == out.bits[arch]
                                           : std::all_of(now.tensors.begin(), now.tensors.end(), [&](const auto& t) {
                                               return same_numbers(was->tensors.at(t.first), t.second);
                                             });
  if (same)
    for (const auto& [other, digests] : was->bits) out.bits.try_emplace(other, digests);
  return out;
}

}  // namespace

Baseline next_state(const GateRun& run, const OpGate& gate, const Baseline* before, const LadderOptions& options) {
  Baseline out;
  out.op = gate.op->op->signature.name;
  out.settings = options.settings;
  const bool part = before != nullptr && (!options.whole || options.settings != before->settings) &&
                    std::all_of(gate.op->cases.begin(), gate.op->cases.end(),
                                [&](const auto& item) { return before->cases.contains(item.first); });
  if (part) {
    out.settings = before->settings;
    out.cases = before->cases;
  }
  for (const auto& [name, profile] : gate.op->cases) {
    const bool known = before != nullptr && before->cases.contains(name);
    out.cases[name] = stored(run.arch, profile, known ? &before->cases.at(name) : nullptr);
  }
  for (const GatedFinding& finding : gate.findings) {
    if (finding.let_through())
      out.waivers.push_back(*finding.waiver);
    else
      out.findings.push_back(finding.found);
  }
  if (part)  // what they have to let through was not asked
    for (const Waiver& waiver : before->waivers)
      if (std::none_of(gate.findings.begin(), gate.findings.end(),
                       [&](const GatedFinding& f) { return f.found.code == waiver.code; }))
        out.waivers.push_back(waiver);
  return out;
}

}  // namespace ampcheck::tools
