// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
// A diagnosis as JSON.
#include "checks/diagnose/chain.h"
#include "tools/commands/diagnose_report.h"
#include "tools/report/json.h"

namespace ampcheck::tools {

namespace {

using namespace checks::diagnose;

Json step_or_null(int step) { return step >= 0 ? Json(step) : Json(); }

Json finding_json(const Finding& f) {
  const CauseInfo& known = info(f.cause);
  return {{"cause", known.name},
          {"number", known.number},
          {"class", checks::diagnose::name(known.kind)},
          {"what", known.what},
          {"weight", checks::diagnose::name(f.weight)},
          {"op", f.op},
          {"tensor", f.tensor},
          {"precursor", step_or_null(f.precursor)},
          {"step", step_or_null(f.step)},
          {"lead", f.precursor >= 0 && f.step > f.precursor ? f.step - f.precursor : 0},
          {"for", f.speaks_for},
          {"against", f.speaks_against},
          {"change", f.paste},
          {"decides", known.decides},
          {"record", known.record}};
}

}  // namespace

std::string diagnose_json(const Subject& subject, const Observation& seen, const checks::diagnose::Report& report) {
  const checks::train::TrainOptions& o = subject.options;
  Json out = {{"schema", "ampcheck.diagnose/1"},
              {"model", subject.net().name},
              {"dtype", dtype_name(o)},
              {"scaler", checks::train::scaler_name(o)},
              {"seed", o.seed},
              {"steps", seen.steps.size()},
              {"healthy", report.healthy()},
              {"inconclusive", report.inconclusive},
              {"symptoms",
               {{"lost", step_or_null(report.symptoms.lost)},
                {"left", step_or_null(report.symptoms.left)},
                {"storm", step_or_null(report.symptoms.storm)},
                {"bad_op", step_or_null(report.symptoms.bad_op)}}},
              {"findings", Json::array()},
              {"harmless", Json::array()},
              {"experiments", Json::array()},
              {"runs", report.runs + 1},
              {"seconds", report.seconds}};
  for (const Finding& f : report.findings) out["findings"].push_back(finding_json(f));
  for (const Finding& f : report.notes) out["harmless"].push_back(finding_json(f));
  for (const Tried& t : report.tried)
    out["experiments"].push_back({{"experiment", t.experiment}, {"what", t.what}, {"result", t.result}});
  const SmallestSet& s = report.smallest;
  if (s.known)
    out["smallest_set"] = {{"ops", s.ops},
                           {"sets_tried", s.runs},
                           {"more_bytes", s.more_bytes},
                           {"step_seconds_before", s.step_before},
                           {"step_seconds_after", s.step_after}};
  out["chain"] = Json::array();
  for (const Link& link : causal_chain(seen, report))
    out["chain"].push_back({{"step", link.step}, {"tensor", link.tensor}, {"what", link.what}});
  out["change_tried"] = report.cure_tried;
  out["cured"] = report.cured;
  return json_text(out);
}

}  // namespace ampcheck::tools
