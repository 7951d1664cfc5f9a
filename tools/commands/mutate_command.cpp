// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
// `ampcheck mutate`: would the check see it if this kernel were a little different?
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>

#include "src/error.h"
#include "src/file_bytes.h"
#include "tools/commands/commands.h"
#include "tools/mutate/mutation.h"
#include "tools/report/json.h"
#include "tools/report/output.h"
#include "tools/report/progress.h"
#include "tools/report/usage_error.h"
#include "tools/workers/interrupt.h"

namespace ampcheck::tools {

namespace {

namespace fs = std::filesystem;

struct Counts {
  std::size_t killed = 0, survived = 0, same = 0, unbuilt = 0, not_tried = 0;
  void add(MutantEnd end) {
    switch (end) {
      case MutantEnd::killed: ++killed; break;
      case MutantEnd::survived: ++survived; break;
      case MutantEnd::same: ++same; break;
      case MutantEnd::unbuilt: ++unbuilt; break;
      case MutantEnd::not_tried: ++not_tried; break;
    }
  }
  std::size_t all() const { return killed + survived + same + unbuilt + not_tried; }
};

/// What a run of mutants found.
struct Outcome {
  std::string kernel, source;
  std::size_t known = 0;  ///< mutants that there are
  std::vector<TriedMutant> mutants;
  bool strict = false;
  double min_killed = 1;

  Counts counts() const {
    Counts out;
    for (const TriedMutant& m : mutants) out.add(m.end);
    return out;
  }
  /// Of those that could be seen; 1 where there are none.
  double share() const {
    const Counts c = counts();
    const std::size_t missed = c.survived + (strict ? c.same : 0);
    return c.killed + missed == 0 ? 1 : static_cast<double>(c.killed) / static_cast<double>(c.killed + missed);
  }
  ExitCode code() const {
    const Counts c = counts();
    if (c.killed + c.survived + c.same == 0) return c.not_tried > 0 ? ExitCode::incomplete : ExitCode::nothing_ran;
    if (share() < min_killed) return ExitCode::findings;
    return c.not_tried > 0 ? ExitCode::incomplete : ExitCode::passed;
  }
};

const char* words_of(MutantEnd end) {
  switch (end) {
    case MutantEnd::killed: return "killed";
    case MutantEnd::survived: return "survived";
    case MutantEnd::same: return "changes no bit";
    case MutantEnd::unbuilt: return "not built";
    case MutantEnd::not_tried: return "not tried";
  }
  return "?";
}

std::string place_of(const Outcome& outcome, const Mutant& mutant) {
  return fmt::format("{}:{}:{}", outcome.kernel, mutant.line, mutant.column);
}

std::string table(const Outcome& outcome) {
  using Kind = Mutant::Kind;
  std::string out = "  kind       mutants   killed   survived   no bit changed   not built\n";
  for (const Kind kind :
       {Kind::bound, Kind::constant, Kind::index, Kind::operation, Kind::precision, Kind::statement}) {
    Counts c;
    for (const TriedMutant& m : outcome.mutants)
      if (m.mutant.kind == kind) c.add(m.end);
    if (c.all() > 0)
      out += fmt::format("  {:<9}  {:>7}  {:>7}  {:>9}  {:>15}  {:>10}\n", name(kind), c.all(), c.killed, c.survived,
                         c.same, c.unbuilt);
  }
  return out;
}

std::string text_of(const Outcome& outcome) {
  std::string out = fmt::format("{}: {} mutants, {} tried\n\n", outcome.kernel, outcome.known, outcome.mutants.size());
  for (const MutantEnd end : {MutantEnd::survived, MutantEnd::same})
    for (const TriedMutant& m : outcome.mutants)
      if (m.end == end)
        out += fmt::format("{}  {}  {}\n{}\n", words_of(end), place_of(outcome, m.mutant), name(m.mutant.kind),
                           m.mutant.diff(outcome.source));
  const Counts c = outcome.counts();
  out += table(outcome) + "\n";
  if (c.not_tried > 0) out += fmt::format("{} of {} mutants were not tried\n", c.not_tried, c.all());
  const auto same_code =
      std::count_if(outcome.mutants.begin(), outcome.mutants.end(), [](const TriedMutant& m) { return m.same_code; });
  if (same_code > 0) out += fmt::format("{} compile{} to the original's code\n", same_code, same_code == 1 ? "s" : "");
  if (c.same > 0)
    out += fmt::format(
        "{} change{} no bit in any case: nothing can tell them apart there, or no case reaches the place{}\n", c.same,
        c.same == 1 ? "s" : "", outcome.strict ? " (--strict: survivors)" : "");
  const std::size_t seen = c.killed + c.survived + (outcome.strict ? c.same : 0);
  return out + fmt::format("{} of {} mutants killed ({:.1f} %), want {:.1f} %\n", c.killed, seen, 100 * outcome.share(),
                           100 * outcome.min_killed);
}

Json json_of(const Outcome& outcome) {
  const Counts c = outcome.counts();
  Json out = {{"schema", "ampcheck.mutate/1"},
              {"exit_code", static_cast<int>(outcome.code())},
              {"kernel", outcome.kernel},
              {"known", outcome.known},
              {"tried", outcome.mutants.size()},
              {"killed", c.killed},
              {"survived", c.survived},
              {"same", c.same},
              {"unbuilt", c.unbuilt},
              {"killed_share", outcome.share()},
              {"mutants", Json::array()}};
  for (const TriedMutant& m : outcome.mutants)
    out["mutants"].push_back({{"line", m.mutant.line},
                              {"column", m.mutant.column},
                              {"kind", name(m.mutant.kind)},
                              {"from", outcome.source.substr(m.mutant.offset, m.mutant.size)},
                              {"to", m.mutant.by},
                              {"end", words_of(m.end)},
                              {"same_code", m.same_code},
                              {"by", m.by}});
  return out;
}

std::string list_text(const Outcome& outcome) {
  std::string out;
  for (const TriedMutant& m : outcome.mutants)
    out += fmt::format("{}  {}\n{}", place_of(outcome, m.mutant), name(m.mutant.kind), m.mutant.diff(outcome.source));
  return out + fmt::format("\n{} mutants of {}\n", outcome.mutants.size(), outcome.known);
}

MutationSetup setup_of(const MutateOptions& options) {
  MutationSetup out{.kernel = options.words.front(),
                    .build = {options.words.begin() + 1, options.words.end()},
                    .library = options.program.empty() ? options.library : options.program,
                    .program = !options.program.empty(),
                    .selects = options.selects,
                    .build_seconds = options.build_seconds,
                    .jobs = options.jobs};
  out.selects.insert(out.selects.end(), {"--timeout", options.case_seconds});
  for (const auto& [what, path] :
       {std::pair("KERNEL", &out.kernel), std::pair(out.program ? "--program" : "--check", &out.library)}) {
    // However it is spelt: absolute, or through folders above.
    const fs::path here = fs::current_path(), below = (here / *path).lexically_normal().lexically_relative(here);
    if (path->empty() || below.empty() || below.begin()->string() == "..")
      throw UsageError(fmt::format("[{}] got '{}', want a path below this folder: a copy of it is built", what, *path));
    *path = below.string();
  }
  return out;
}

Outcome outcome_of(const MutateOptions& options) {
  Outcome out;
  out.kernel = options.words.front();
  require_readable(out.kernel);
  out.source = read_bytes(out.kernel, "mutate");
  out.strict = options.strict;
  out.min_killed = options.min_killed;
  const std::vector<Mutant> all =
      mutants_of(out.source, out.source.find("cuda_fp16") != std::string::npos ? "__half" : "_Float16");
  out.known = all.size();
  for (const Mutant& mutant : options.limit == 0 ? all : spread(all, options.limit))
    out.mutants.push_back({mutant, {}, {}});
  return out;
}

}  // namespace

ExitCode mutate_command(const MutateOptions& options) {
  Outcome outcome = outcome_of(options);
  if (outcome.mutants.empty()) {
    write_stderr("ampcheck: [mutate] nothing to change in '" + outcome.kernel +
                 "': no code of a kernel was found in it\n");
    return ExitCode::nothing_ran;
  }
  if (options.list) {
    write_stdout(options.json ? json_text(json_of(outcome)) : list_text(outcome));
    return ExitCode::passed;
  }
  if (!options.library.empty() && !options.program.empty())
    throw UsageError(
        "[mutate] got --check and --program, want what is judged: a library, or a program with the op in it");
  if (options.words.size() < 2 || (options.library.empty() && options.program.empty()))
    throw UsageError(
        "[mutate] got no build command or no --check LIBRARY, want both, as: ampcheck mutate my_op.cpp --check "
        "libmy_op.so -- c++ -shared -fPIC my_op.cpp -o libmy_op.so");
  const MutationSetup setup = setup_of(options);
  std::unique_ptr<Mutation> mutation;
  std::atomic<Mutation*> made{nullptr};
  InterruptGuard guard([&made] {
    if (Mutation* const now = made.load()) now->remove();
  });
  mutation = std::make_unique<Mutation>(setup, outcome.source, guard.flag());
  made = mutation.get();
  ProgressLine progress;
  mutation->try_all(outcome.mutants, [&](std::size_t done) {
    progress.show(done, outcome.mutants.size(), outcome.counts().survived, outcome.kernel);
  });
  guard.finish();
  mutation.reset();
  write_stdout(options.json ? json_text(json_of(outcome)) : text_of(outcome));
  if (guard.interrupted()) end_by_signal();
  return outcome.code();
}

}  // namespace ampcheck::tools
