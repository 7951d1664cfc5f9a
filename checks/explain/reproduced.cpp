// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include "checks/explain/reproduced.h"

#include <optional>
#include <string_view>
#include <vector>

#include "checks/case/fresh_case.h"
#include "checks/explain/another_call.h"
#include "checks/explain/diagnosis.h"
#include "checks/explain/formula_change.h"
#include "reference/replay/changes.h"

namespace ampcheck::checks {

namespace {

constexpr std::uint64_t kSeeds = 77;  ///< those of explanations begin at 1

/// What a finding claims, part by part.
struct Stated {
  enum class Kind { change, another_tensor, another_call } kind;
  std::string words;
};

std::optional<Stated> stated(std::string part, Code code) {
  static constexpr std::string_view kNotLinear = ": not linear in the cotangent";
  if (part.ends_with(kNotLinear)) part.resize(part.size() - kNotLinear.size());
  if (part.starts_with(kChangedFormula)) return Stated{Stated::Kind::change, part.substr(kChangedFormula.size())};
  if (part.starts_with("these are the values of another")) return Stated{Stated::Kind::another_tensor, part};
  if (part.starts_with("right for ")) return Stated{Stated::Kind::another_call, part};
  if (const std::size_t declared = part.find(" (declared: "); code == Code::ac302 && declared != std::string::npos)
    return Stated{Stated::Kind::change, part.substr(0, declared)};
  return std::nullopt;
}

std::optional<std::vector<Stated>> claims_of(const CheckResult& finding) {
  std::vector<Stated> out;
  std::string_view words = finding.cause;
  while (!words.empty()) {
    const std::size_t end = std::min(words.find("; "), words.size());
    CheckResult part;
    part.cause = words.substr(0, end);
    if (std::optional<Stated> claim = stated(part.cause, finding.code))
      out.push_back(std::move(*claim));
    else if (names_a_cause(part))
      return std::nullopt;
    words.remove_prefix(std::min(end + 2, words.size()));
  }
  return out.empty() ? std::nullopt : std::optional(std::move(out));
}

/// Nothing where the claim says nothing of that call.
std::optional<bool> holds(const Stated& claim, const WrongTensor& there, const Dims* found_at) {
  const reference::OneChange one{.words = claim.words};
  switch (claim.kind) {
    case Stated::Kind::change: return gives(claim.words, there, found_at);
    case Stated::Kind::another_tensor: return reference::same_change(explained_by_change(there).words, one);
    case Stated::Kind::another_call: return reference::same_change(right_for_another_call(there), one);
  }
  return std::nullopt;
}

}  // namespace

bool reproduced(const OpDef& op, const OpCall& call, const CheckResult& finding, const RunOptions& options) {
  using Kind = CheckId::Kind;
  const std::optional<std::vector<Stated>> claims = claims_of(finding);
  if (!claims || (finding.id.kind != Kind::forward && finding.id.kind != Kind::backward)) return false;
  const Pass pass = finding.id.kind == Kind::forward ? Pass::forward : Pass::backward;
  CaseRun run(op, call, options);
  if (pass != Pass::forward) run.cotangents(std::max(finding.id.probe, 0));
  FreshCases fresh(run, kSeeds);
  constexpr int kCalls = 4;
  int held = 0;
  for (int k = 0; k < kCalls + FreshCases::kElsewhere; ++k) {
    const bool other_extents = k >= kCalls;
    FreshTensor* const there =
        other_extents ? fresh.elsewhere(finding.id.tensor, pass, k - kCalls) : fresh.again(finding.id.tensor, pass, k);
    if (there == nullptr) continue;
    for (const Stated& claim : *claims) {
      // By rows where the tensor has many: a row follows from its own.
      const std::optional<bool> so = holds(claim, there->rows(pass), other_extents ? &call.dims : nullptr);
      if (so && !*so) return false;
      held += so.has_value() && !other_extents;
    }
  }
  return held > 0;
}

}  // namespace ampcheck::checks
