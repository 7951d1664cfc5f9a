// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include "tools/commands/diagnose_html.h"

#include <fmt/format.h>

#include "checks/train/trace.h"
#include "src/amp/error.h"
#include "tools/trace/trace_file.h"

namespace ampcheck::tools {

using namespace checks::diagnose;
using namespace checks::train;

std::string diagnose_html(const Subject& subject, const Observation& seen, const checks::diagnose::Report& report) {
  constexpr int kSpreadSeeds = 1;
  const std::unique_ptr<Trainer> trainer = make_trainer(subject, {}, {.local = true, .carried = true}, kSpreadSeeds);
  const int steps = static_cast<int>(seen.steps.size());
  TraceWriter writer(*trainer, steps);
  trainer->watch()->listen([&](const Event& e, const TensorKey& key, const Tally& tally, FaultRole role,
                               const TensorStats& stats) { writer.tensor(e, key, tally, role, stats); });
  try {
    for (int i = 0; i < steps; ++i) writer.step(trainer->step());
  } catch (const AmpError&) {  // the scaler's rule ends the run, as it did before
  }
  std::vector<MarkedTensor> marks;
  for (const Link& link : causal_chain(seen, report)) marks.push_back({link.step, link.tensor, link.what});
  std::string title = "Nothing is wrong with this run.";
  if (!report.findings.empty()) {
    const CauseInfo& known = info(report.findings.front().cause);
    title = fmt::format("{} {}: {}", known.number, known.name, known.what);
  } else if (report.inconclusive) {
    title = "INCONCLUSIVE";
  }
  return marked_trace_html(parse_trace(writer.text(), std::nullopt, "the run's trace"), title, marks);
}

}  // namespace ampcheck::tools
