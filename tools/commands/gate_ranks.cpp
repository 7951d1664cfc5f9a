// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
// `gate --engine mpi`: ranks of one job share the cases (tools/commands/rank_parts.h). Of each part there are the
// results, as of check, and the profiles, as --record writes them.
#include <filesystem>

#include "src/parallel.h"
#include "tools/commands/gate_with.h"
#include "tools/commands/rank_parts.h"
#include "tools/commands/run_facts.h"
#include "tools/gate/gate_base.h"
#include "tools/report/environment.h"
#include "tools/report/output.h"
#include "tools/runs/run_file.h"
#include "tools/workers/interrupt.h"

namespace ampcheck::tools {

namespace {

RunHeader header_of(const KernelGateOptions& options, const Selection& selection, int part, int parts) {
  return {{"gate", settings_of(options)}, digest_of_cases(selection), build_facts().version, part, parts};
}

/// Judges and profiles the cases of a part.
ExitCode do_part(const KernelGateOptions& options, const Selection& all, KnownRun known, int part, int parts,
                 int jobs) {
  KernelGateOptions own = options;
  own.jobs = jobs;
  Selection selection = all;
  std::erase_if(selection.cases,
                [&](const checks::Case& item) { return shard_of(item.call.str(item.op->signature), parts) != part; });
  RunFile file(part_file(options.run_file, part), header_of(options, all, part, parts));
  InterruptGuard guard([] {});
  known.find = [&](const checks::OpDef& op, const std::string& name, const checks::How& how) {
    return file.kept().find(op, name, how);
  };
  known.keep = [&](const CaseResult& result, const checks::How& how) { file.add(result, how); };
  known.part = true;
  GateRun run;
  if (!selection.cases.empty()) run = gate_run(own, selection, guard.flag(), nullptr, known);
  guard.finish();
  file.end(false);
  if (guard.interrupted()) return ExitCode::incomplete;
  write_file(part_file(options.run_file, part, "json"), record_text(states_of(run, settings_of(options))));
  return ExitCode::passed;
}

/// A profile as a record has it.
checks::CaseProfile profile_of(const StoredCase& stored) {
  checks::CaseProfile out{stored.inputs, stored.tensors};
  for (const auto& [arch, bits] : stored.bits)
    for (const auto& [tensor, digest] : bits) out.tensors[tensor].bits = digest;
  return out;
}

/// Rank 0: the gate, of all parts.
ExitCode gate_all(const KernelGateOptions& options, KnownRun known, int parts, int jobs) {
  KeptResults kept;
  for (int part = 1; part <= parts; ++part) {
    const std::string results = part_file(options.run_file, part), record = part_file(options.run_file, part, "json");
    std::size_t torn = 0;
    if (std::filesystem::exists(results)) read_run_file(results, kept, torn);
    if (!std::filesystem::exists(record)) continue;
    for (const Baseline& state : read_record(record))
      for (const auto& [name, stored] : state.cases) known.profiles[name] = profile_of(stored);
  }
  known.find = [&](const checks::OpDef& op, const std::string& name, const checks::How& how) {
    return kept.find(op, name, how);
  };
  KernelGateOptions whole = options;
  whole.jobs = jobs;
  return gate_with(whole, known);
}

}  // namespace

ExitCode gate_in_ranks(const KernelGateOptions& options) {
  begin_run(options, options);
  const Selection all = select_cases(options);
  KnownRun shared;
  shared.workers = isolated_run(workers_of(options, all), interrupt_flag());
  return share_parts(
      {.folder = options.run_file,
       .what_there = "",
       .part = [&](int part, int parts, int jobs) { return do_part(options, all, shared, part, parts, jobs); },
       .report = [&](int parts, int cores) { return gate_all(options, shared, parts, cores); }},
      options.jobs);
}

}  // namespace ampcheck::tools
