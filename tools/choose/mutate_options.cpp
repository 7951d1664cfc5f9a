// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include "tools/choose/mutate_options.h"

#include "tools/choose/option_parsing.h"
#include "tools/report/numbers.h"

namespace ampcheck::tools {

namespace {

/// An option of gate, which says itself what is wrong with a value.
void pass_on(CLI::App* command, MutateOptions& o, const char* flag, const char* meta, const char* help) {
  each(command, flag, meta, help, [flag, &o](const std::string& text) {
    o.selects.emplace_back(flag);
    o.selects.push_back(text);
  });
}

}  // namespace

void add_options(CLI::App* command, MutateOptions& o) {
  add_words(
      command, "KERNEL", o.words,
      "the source of the kernel, below this folder. Behind the options stands -- and the command that builds it, run "
      "in a copy of this folder; a command in quotes is a line for a shell",
      Words::some);
  text_option(command, "--check", "LIBRARY", "the library or TOML file that the command makes, and that is judged",
              o.library);
  text_option(command, "--program", "FILE",
              "in place of --check: an ampcheck that the command links with this kernel in it, of a built-in op; it "
              "judges the kernel itself",
              o.program);
  each(command, "--op", "SELECTOR", "only these ops of it: a name or a pattern (may be repeated)",
       [&o](const std::string& t) { o.selects.push_back(t); });
  pass_on(command, o, "--regimes", "SET", "as of gate: quick, standard or all (standard)");
  pass_on(command, o, "--dtype", "T", "as of gate: only this storage type (may be repeated)");
  pass_on(command, o, "--shapes", "WHICH", "as of gate: first, standard or all, or extents such as N=64,D=1025");
  pass_on(command, o, "--seeds", "N", "as of gate: number of seeds (1)");
  each(command, "--limit", "N", "try N mutants, drawn evenly over the source (all)",
       [&o](const std::string& t) { o.limit = parse_count("--limit", t, 1, 1'000'000); });
  each(command, "--jobs,-j", "N", "mutants that are built and judged at a time, each in a copy of this folder (1)",
       [&o](const std::string& t) { o.jobs = static_cast<int>(parse_count("--jobs", t, 1, 256)); });
  each(command, "--min-killed", "SHARE", "the least share of the mutants that the check has to see, as 0.95 (1)",
       [&o](const std::string& t) {
         const std::optional<double> share = parse_number(t);
         if (!share || !(*share >= 0 && *share <= 1))
           throw UsageError("[--min-killed] got '" + t + "', want a share from 0 to 1");
         o.min_killed = *share;
       });
  add_flag(command, "--strict", o.strict, "mutants that change no bit in any case count as survivors");
  add_flag(command, "--list", o.list, "show the mutants and build nothing");
  each(command, "--build-timeout", "S", "seconds that one build may take (600)", [&o](const std::string& t) {
    o.build_seconds = static_cast<double>(parse_count("--build-timeout", t, 1, 1'000'000));
  });
  each(command, "--timeout", "S", "seconds that a case may take (5)",
       [&o](const std::string& t) { o.case_seconds = std::to_string(parse_count("--timeout", t, 1, 1'000'000)); });
}

}  // namespace ampcheck::tools
