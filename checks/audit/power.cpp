// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include "checks/audit/power.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "checks/data/real_tensors.h"
#include "checks/run/run_case.h"
#include "checks/zoo/zoo.h"
#include "src/parallel.h"

namespace ampcheck::checks::zoo {

namespace {

bool shows(const Specimen& specimen, Dtype dtype, const std::vector<OpCall>& calls, const RunOptions& run) {
  for (OpCall call : calls) {
    if (call.storage != dtype || is_real_range(call.range)) continue;
    call.op = specimen.name();
    if (convicts(verdict_of_case(specimen.op, call, run).verdict)) return true;
  }
  return false;
}

constexpr int kMostSeeds = 16;

/// Of calls that differ in their seeds alone the first ones: a defect that shows in none of these runs through all
/// calls, which of thousands of seeds takes longer than the gate.
std::vector<OpCall> of_few_seeds(const OpDef& op, const std::vector<OpCall>& calls) {
  std::map<std::string, int> seen;
  std::vector<OpCall> out;
  for (const OpCall& call : calls) {
    OpCall any = call;
    any.seed = 0;
    if (seen[any.str(op.signature)]++ < kMostSeeds) out.push_back(call);
  }
  return out;
}

}  // namespace

std::optional<DetectionPower> detection_power(const OpDef& op, const std::vector<OpCall>& all, bool relations,
                                              const std::atomic<bool>* cancel) {
  if (!op.plugin.empty()) return std::nullopt;
  const std::vector<OpCall> calls = of_few_seeds(op, all);
  std::vector<std::pair<const Specimen*, Dtype>> trials;
  for (const Specimen& specimen : specimens()) {
    if (specimen.correct() || specimen.unseen || !specimen.equivalent.empty() ||
        !specimen.name().starts_with(op.signature.name + "."))
      continue;
    for (const Dtype dtype : specimen.dtypes)
      if (std::any_of(calls.begin(), calls.end(), [&](const OpCall& call) { return call.storage == dtype; }))
        trials.emplace_back(&specimen, dtype);
  }
  if (trials.empty()) return std::nullopt;
  RunOptions run;
  run.relations = relations;
  run.explain = false;
  run.cancel = cancel;
  std::vector<char> found(trials.size(), 0);
  // Some specimens count their launches: those of one kernel, in its types, run one after the other.
  parallel_for(static_cast<std::int64_t>(trials.size()), 1, [&](std::int64_t begin, std::int64_t end) {
    for (auto i = static_cast<std::size_t>(begin); i < static_cast<std::size_t>(end); ++i) {
      if (i > 0 && trials[i - 1].first == trials[i].first) continue;
      for (std::size_t k = i; k < trials.size() && trials[k].first == trials[i].first; ++k) {
        if (cancel != nullptr && cancel->load()) return;
        try {
          found[k] = shows(*trials[k].first, trials[k].second, calls, run);
        } catch (const Interrupted&) {
          return;
        }
      }
    }
  });
  if (cancel != nullptr && cancel->load()) return std::nullopt;
  DetectionPower out;
  for (std::size_t i = 0; i < trials.size(); ++i) {
    ++out.defects;
    out.found += found[i];
    if (!found[i]) out.missed.push_back(trials[i].first->name() + " " + name(trials[i].second));
  }
  return out;
}

}  // namespace ampcheck::checks::zoo
