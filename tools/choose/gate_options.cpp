// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include "tools/choose/gate_options.h"

#include "tools/choose/option_parsing.h"
#include "tools/report/numbers.h"

namespace ampcheck::tools {

namespace {

void add_baseline_option(CLI::App* command, std::string& to) {
  text_option(command, "--baseline", "DIR", "folder with a JSON file for each op: its accepted state", to);
}

}  // namespace

void add_options(CLI::App* command, KernelGateOptions& o) {
  add_selectors(command, o);
  add_baseline_option(command, o.baseline);
  text_option(
      command, "--base", "LIBRARY_OR_RUN",
      "compare with this build in place of a baseline: a library, a TOML file, or a JSON file that --record wrote",
      o.base);
  text_option(command, "--record", "FILE", "write what this run found out of every op, for a later --base", o.record);
  add_flag(command, "--strict", o.strict, "errors that are worse than accepted fail");
  add_flag(command, "--strict-bits", o.strict_bits, "changed bits fail, also where errors are no worse");
  add_flag(command, "--strict-perf", o.strict_speed,
           "fail if the kernel is slower than that of the library in --base (SLOW); UNSURE never fails");
  each(command, "--min-power", "SHARE",
       "fail if the cases find less than this share of the defects planted in kernels of the op, as 0.95",
       [&o](const std::string& t) {
         o.min_power = parse_number(t);
         if (!o.min_power || !(*o.min_power >= 0 && *o.min_power <= 1))
           throw UsageError("[--min-power] got '" + t + "', want a share from 0 to 1");
       });
  text_option(command, "--today", "DATE", "as if it were this day: which waivers will have expired", o.today);
  add_flag(command, "--variants", o.variants, kVariants);
  add_case_options(command, o);
  add_inputs_option(command, o);
  add_run_options(command, o);
  add_budget_options(command, o);
  add_report_output(command, o.reports);
  add_engine_option(command, o.ranks);
  text_option(command, "--run-file", "FOLDER", "for --engine mpi: a folder that all ranks see", o.run_file);
}

void add_options(CLI::App* command, AcceptOptions& o) {
  add_words(command, "OP", o.words, "ops or patterns; without: all that have a pending file");
  add_baseline_option(command, o.baseline);
  text_option(command, "--reason", "TEXT", "why the new state is right; it stands in the baseline", o.reason);
  text_option(command, "--waive", "CODES", "let findings of these codes through, until a day", o.waive);
  text_option(command, "--until", "DATE", "the last day on which --waive holds, as 2026-12-31", o.until);
}

void add_options(CLI::App* command, ReviewOptions& o) {
  add_words(command, "OP", o.words, "ops or patterns; without: all that have a pending file");
  add_baseline_option(command, o.baseline);
  add_flag(command, "--tighten", o.tighten,
           "show only what became better beyond chance: until it is accepted, a change back to the old errors passes");
  each(command, "-o,--output", "FORMAT:FILE", "also write markdown:FILE", [&o](const std::string& text) {
    constexpr std::string_view kFormat = "markdown:";
    if (!text.starts_with(kFormat) || text.size() == kFormat.size())
      throw UsageError("[-o] got '" + text + "', want markdown:FILE");
    o.output = text.substr(kFormat.size());
  });
}

}  // namespace ampcheck::tools
