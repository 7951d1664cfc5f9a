// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include "tools/choose/op_options.h"

#include "tools/choose/option_parsing.h"

namespace ampcheck::tools {

void add_options(CLI::App* command, ListOptions& o) {
  add_selectors(command, o);
  add_flag(command, "--cases", o.cases, "case names instead of ops");
  add_flag(command, "--planted", o.planted,
           "the planted faults that check must catch, and correct variants that it must not flag");
  add_flag(command, "--wanting", o.wanting,
           "what built-in ops still lack: independent values, planted defects, correct variants, a net");
  add_case_options(command, o);
}

void add_options(CLI::App* command, CheckOptions& o) {
  add_selectors(command, o);
  add_case_options(command, o);
  add_inputs_option(command, o);
  add_dump_options(command, o);
  add_run_options(command, o);
  add_budget_options(command, o);
  add_report_output(command, o.reports);
  text_option(command, "--journal", "FILE",
              "append a JSON line before and after each case: what ran when the machine went down", o.journal);
  add_flag(command, "-v,--verbose", o.verbose,
           "every failing case, and the share of each primitive in the radius of each op");
}

void add_options(CLI::App* command, ReplayOptions& o) {
  add_words(command, "CASE", o.words, "case name as printed by check; the library of the op first", Words::one_or_two);
  text_option(command, "--save", "DIR",
              "inputs, got, want and interval: to a folder as .npy, or to one FILE.safetensors or FILE.npz", o.save);
  add_data_option(command, o.data);
  add_inputs_option(command, o);
  add_run_options(command, o);
  add_memory_option(command, o);
}

void add_options(CLI::App* command, CertifyOptions& o) {
  add_words(command, "OP", o.words, "op or pattern; none: all; a shared library first: its ops");
  each(command, "--samples", "N", "coordinates per input and form (8); of further variants half as many",
       [&o](const std::string& t) { o.samples = static_cast<int>(parse_count("--samples", t, 1, 1'000'000)); });
  add_seed_option(command, "seed of the values (1)", o.seed);
}

void add_options(CLI::App* command, CompareOptions& o) {
  add_words(command, "A B SELECTOR", o.words, "two shared libraries or TOML files, then selectors", Words::some);
  add_case_options(command, o);
  add_run_options(command, o);
}

void add_options(CLI::App* command, ContractOptions& o) {
  add_words(command, "OP", o.words, "ops or patterns; a library or TOML file first if they are of one", Words::some);
  add_dtype_option(command, o.dtypes);
  add_isolation_options(command, o, "seconds that a call of a library's kernel may take (60)");
  add_seed_option(command, "seed of the data (1)", o.seed);
}

}  // namespace ampcheck::tools
