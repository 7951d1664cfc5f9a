// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
// `check --engine mpi`: ranks of one job share the cases (tools/commands/rank_parts.h).
#include <filesystem>

#include "src/error.h"
#include "src/parallel.h"
#include "tools/commands/check_run.h"
#include "tools/commands/commands.h"
#include "tools/commands/rank_parts.h"
#include "tools/report/shell_word.h"
#include "tools/workers/interrupt.h"
#include "tools/workers/isolation.h"

namespace ampcheck::tools {

namespace {

/// Rank 0: the report of all parts, as merge gives it.
ExitCode report_all(const CheckOptions& options, int parts, int jobs, SharedRun& shared) {
  MergedRun merged;
  bool first = true;
  for (int part = 1; part <= parts; ++part) {
    const std::string path = part_file(options.run_file, part);
    if (!std::filesystem::exists(path)) continue;
    std::size_t torn = 0;
    const RunHeader header = read_run_file(path, merged.kept, torn);
    if (first) merged.header = header;
    first = false;
  }
  if (first) throw Error("[--engine] got no part of the run in '" + options.run_file + "'");
  CheckOptions whole = options;
  whole.ranks = false;
  whole.jobs = jobs;
  whole.run_file.clear();
  return check_with(whole, &merged, &shared);
}

}  // namespace

ExitCode check_in_ranks(const CheckOptions& options) {
  if (!options.run_file.empty() && (options.shards > 1 || options.time_budget > 0 || !options.journal.empty()))
    throw UsageError(
        "[--engine] got mpi beside --shard, --time-budget or --journal, want mpi alone: ranks share the cases");
  SharedRun shared{isolated_run(worker_setup(options.plugin_ops, options, options.inputs), interrupt_flag())};
  const auto part = [&](int number, int parts, int jobs) {
    CheckOptions own = options;
    own.jobs = jobs;
    own.ranks = false;
    own.silent = true;
    own.reports.clear();
    own.shard = number;
    own.shards = parts;
    own.run_file = part_file(options.run_file, number);
    return check_with(own, nullptr, &shared);
  };
  return share_parts({.folder = options.run_file,
                      .what_there = "ampcheck merge " + shell_word(options.run_file) + "/part*.run",
                      .part = part,
                      .report = [&](int parts, int cores) { return report_all(options, parts, cores, shared); }},
                     options.jobs);
}

}  // namespace ampcheck::tools
