// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
// `ampcheck diagnose`: why a run in mixed precision goes wrong.
#include <algorithm>
#include <array>

#include "checks/diagnose/diagnose.h"
#include "src/freed_memory.h"
#include "src/parallel.h"
#include "tools/choose/as_usage.h"
#include "tools/commands/commands.h"
#include "tools/commands/diagnose_html.h"
#include "tools/commands/diagnose_other.h"
#include "tools/commands/diagnose_report.h"
#include "tools/commands/train_choice.h"
#include "tools/workers/child.h"

namespace ampcheck::tools {

namespace {

using namespace checks::diagnose;

/// Whether the word is a training run: a net that comes with the program, or a TOML file.
bool is_run(const std::string& word) {
  const auto nets = checks::train::nets();
  return word.ends_with(".toml") ||
         std::any_of(nets.begin(), nets.end(), [&](const auto& net) { return net.name == word; });
}

Subject subject_of(const DiagnoseOptions& options) {
  DiagnoseOptions chosen = options;
  const std::string& what = options.words.front();
  (what.ends_with(".toml") ? chosen.config : chosen.model) = what;
  chosen.shadow = "both";
  Subject out;
  out.options = as_usage([&] { return trainer_options(chosen); });
  out.steps = options.steps;
  return out;
}

}  // namespace

ExitCode diagnose_command(const DiagnoseOptions& options) {
  if (options.words.size() != 1 || !is_run(options.words.front())) {
    if (!options.page.empty()) throw UsageError("[-o] got it without a training run, want a net, which has a trace");
    OtherDataOptions other = options.other;
    static_cast<IsolationOptions&>(other) = options;
    if (options.dtype) other.dtypes = {*options.dtype};
    return static_cast<ExitCode>(diagnose_other_data(options.words, options.json, other));
  }
  keep_freed_memory();
  set_threads(options.jobs);
  const Subject subject = subject_of(options);
  if (!options.page.empty()) require_writable(options.page);
  if (subject.options.own_net) run_kernels_here(subject.options.own_net->own_ops, options);
  as_usage([&] { make_trainer(subject, {}, {}, 0); });  // what cannot be run is said at once
  const Observation seen = observe(subject);
  const checks::diagnose::Report report = diagnose_run(subject, seen);
  write_stdout(options.json ? diagnose_json(subject, seen, report)
                            : diagnose_text(subject, seen, report, stdout_style()));
  if (!options.page.empty()) write_file(options.page, diagnose_html(subject, seen, report));
  return report.healthy() ? ExitCode::passed : ExitCode::findings;
}

}  // namespace ampcheck::tools
