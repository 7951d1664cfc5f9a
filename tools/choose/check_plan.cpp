// SPDX-License-Identifier: Apache-2.0
#include "tools/choose/check_plan.h"

#include <algorithm>
#include <map>

#include "checks/run/runner.h"
#include "tools/choose/plugins.h"
#include "tools/report/left_out.h"

namespace ampcheck::tools {

namespace {

/// Whether the cases are all that an op has: then what they leave unseen is nobody's choice.
bool takes_whole_ops(const CaseOptions& options) {
  const bool named = std::any_of(options.words.begin(), options.words.end(),
                                 [](const std::string& word) { return word.find('(') != std::string::npos; });
  return !named && options.inputs.empty() && options.shapes.kind == ShapeFilter::Kind::all &&
         options.real != RealTensors::only;
}

}  // namespace

bool drop_uncertified(Selection& selection) {
  std::map<const checks::OpDef*, std::string> refused;  // "" : certified
  for (const checks::Case& item : selection.cases) {
    if (item.op->plugin.empty() || refused.contains(item.op)) continue;
    try {
      refused[item.op].clear();
      require_certified(*item.op);
    } catch (const UsageError& error) {
      refused[item.op] = error.what();
    }
  }
  const auto is_refused = [&](const checks::OpDef* op) { return refused.contains(op) && !refused.at(op).empty(); };
  const checks::OpDef* const last = selection.cases.back().op;
  std::erase_if(selection.cases, [&](const checks::Case& item) { return is_refused(item.op); });
  if (selection.cases.empty()) throw UsageError(refused.at(last));
  std::vector<std::string> notes;
  for (const auto& [op, why] : refused)
    if (!why.empty()) notes.push_back("not judged, exit code 2: " + why);
  std::sort(notes.begin(), notes.end());  // the map's order is that of addresses
  selection.notes.insert(selection.notes.end(), notes.begin(), notes.end());
  return notes.empty();
}

void say_what_is_left_out(const CheckOptions& options, Selection& selection) {
  if (!takes_whole_ops(options) || !(options.verbose || options.set == checks::CaseSet::quick)) return;
  if (std::string text = left_out(selection.cases, options.set, options.first_seed); !text.empty())
    selection.notes.push_back(std::move(text));
}

checks::RunOptions run_options(const CheckOptions& options) {
  checks::RunOptions run;
  run.device = options.device;
  run.jobs = options.jobs;
  run.relations = options.relations;
  run.as_written = options.as_written;
  run.brief = true;
  run.aim = takes_whole_ops(options);
  run.memory = options.memory;
  run.time_budget = options.time_budget;
  return run;
}

Report run_selection(const Selection& selection, const checks::RunOptions& run) {
  Report report = checks::run_cases(selection.cases, run);
  std::erase_if(report.cases, [](const CaseResult& result) { return result.name.empty(); });
  std::erase_if(report.certificates, [](const Certificate& certificate) { return certificate.op.empty(); });
  std::erase_if(report.coverage, [](const auto& entry) { return entry.first.empty() || entry.second.empty(); });
  report.interrupted = report.interrupted || report.cases.size() < selection.cases.size();
  report.notes.insert(report.notes.end(), selection.notes.begin(), selection.notes.end());
  return report;
}

}  // namespace ampcheck::tools
