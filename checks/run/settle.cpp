// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include "checks/run/settle.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <set>

#include "checks/run/conclude.h"
#include "checks/run/run_case.h"

namespace ampcheck::checks {

namespace {

/// The tensors that a case lays out in memory.
std::vector<std::string> laid_out(const CaseRun& run) {
  const bool expanded = run.call.layout.starts_with("expanded");  // cotangents alone can be
  std::vector<std::string> out;
  for (const TensorSpec& spec : run.op.signature.inputs)
    if (run.call.has(spec) && !expanded) out.push_back(spec.name);
  for (const Written& output : run.outputs) {
    if (!expanded) out.push_back(output.name);
    if (!output.saved) out.push_back(gradient_name(output.name));
  }
  for (const Written& gradient : run.gradients)
    if (!expanded) out.push_back(gradient.name);
  return out;
}

/// Whose layout it takes to be wrong, each tensor tried with it alone.
std::string layout_words(const OpDef& op, const OpCall& call, const RunOptions& options,
                         const std::vector<std::string>& tensors) {
  const std::string kind = call.layout.substr(0, call.layout.find(':'));
  const auto wrong_with = [&](const std::string& tensor) {
    OpCall alone = call;
    alone.layout = kind + ":" + tensor;
    const CaseResult result = verdict_of_case(op, alone, options);
    return std::any_of(result.checks.begin(), result.checks.end(),
                       [](const CheckResult& check) { return check.code == Code::ac406 || wrong_value(check); });
  };
  std::vector<std::string> found;
  if (kind.size() < call.layout.size())
    found = {call.layout.substr(kind.size() + 1)};
  else
    std::copy_if(tensors.begin(), tensors.end(), std::back_inserter(found), wrong_with);
  if (found.empty())
    return fmt::format("the values are right where all is dense, and where one tensor alone is {}: it takes two", kind);
  std::string names = "'" + found.front() + "'";
  for (std::size_t i = 1; i < found.size(); ++i) names += (i + 1 == found.size() ? " or '" : ", '") + found[i] + "'";
  if (found.size() == 1)
    return fmt::format(
        "'{}' is taken for dense, or read with another tensor's strides: right where all is dense, wrong where it "
        "alone is {}",
        found.front(), kind);
  return fmt::format(
      "right where all is dense, wrong where {} alone is {}: each is taken for dense, or one is read with the other's "
      "strides",
      names, kind);
}

/// Wrong only in this layout: the strides are to blame, not the arithmetic.
void settle_layout(CaseRun& run) {
  const OpCall& call = run.call;
  std::vector<CheckResult>& checks = run.checks;
  if (call.layout == "dense" || std::none_of(checks.begin(), checks.end(), wrong_value)) return;
  OpCall dense = call;
  dense.layout = "dense";
  RunOptions values = run.options;
  values.relations = false;
  values.explain = false;
  const CaseResult result = verdict_of_case(run.op, dense, values);
  // Without relations AC401 is what settle_in_place() makes of wrong values.
  if (std::any_of(result.checks.begin(), result.checks.end(),
                  [](const CheckResult& check) { return wrong_value(check) || check.code == Code::ac401; }))
    return;
  values.first = true;
  const std::string words = !run.options.first ? layout_words(run.op, call, values, laid_out(run)) : "";
  for (CheckResult& check : checks)
    if (wrong_value(check)) {
      check.find(Code::ac406);
      check.cause = words;
    }
}

/// Wrong where an output overwrites its input, right where it has a buffer of its own: the kernel reads what it has
/// written. What depends on what an output held is wrong there too, for it holds poison.
void settle_in_place(CaseRun& run) {
  const auto& shared = run.op.signature.launch.in_place;
  if (shared.empty() || std::none_of(run.checks.begin(), run.checks.end(), wrong_value)) return;
  RunOptions values = run.options;
  values.relations = false;
  values.explain = false;
  const auto right_apart = [&](const std::vector<std::pair<std::string, std::string>>& still_shared) {
    OpDef apart = run.op;
    apart.signature.launch.in_place = still_shared;
    std::set<CheckId> out;  // the checks that are right
    for (const CheckResult& check : verdict_of_case(apart, run.call, values).checks)
      if (check.compared > 0 && !convicts(check.verdict)) out.insert(check.id);
    return out;
  };
  const std::set<CheckId> right = right_apart({});
  std::vector<std::pair<std::string, std::set<CheckId>>>
      alone;  // words of each pair, and what is right without it alone
  for (std::size_t i = 0; i < shared.size(); ++i) {
    auto others = shared;
    others.erase(others.begin() + static_cast<std::ptrdiff_t>(i));
    alone.emplace_back(fmt::format("'{}' overwrites '{}'", shared[i].first, shared[i].second),
                       others.empty() ? right : right_apart(others));
  }
  for (CheckResult& check : run.checks) {
    if (!wrong_value(check) || !right.contains(check.id)) continue;
    std::string where;
    for (const auto& [words, ids] : alone)
      if (ids.contains(check.id)) where += (where.empty() ? "" : " or ") + words;
    check.find(Code::ac401);
    check.cause = fmt::format(
        "reads its input after having written it: right with a buffer of its own for each output, wrong where {}",
        where.empty() ? "outputs overwrite inputs" : where);
  }
}

}  // namespace

void settle(CaseRun& run) {
  // A wrong sign looks like a low accumulator by chance on an element or two.
  if (!contract_explains(run.checks)) drop_departures(run.checks);
  settle_layout(run);
  settle_in_place(run);
}

}  // namespace ampcheck::checks
