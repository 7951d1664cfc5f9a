// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include "tools/choose/op_options.h"

#include <string_view>

#include "tools/choose/option_parsing.h"
#include "tools/choose/shard_choice.h"

namespace ampcheck::tools {

namespace {

/// --accumulate of check: of a dump its contract, otherwise the cores on which kernels run.
void parse_accumulate(const std::string& text, CheckOptions& o) {
  if (find_accumulator(text, o.accumulator) && o.accumulator.core == TensorCore::none) return;
  constexpr std::string_view kCores = "tensor_core(";
  const bool whole = text.starts_with(kCores) && text.ends_with(')');
  o.accumulate = whole ? text.substr(kCores.size(), text.size() - kCores.size() - 1) : text;
  const std::string generation = o.accumulate.substr(0, o.accumulate.find(','));
  if (!find_accumulator(std::string(kCores) + generation + ")", o.accumulator))
    throw UsageError("[--accumulate] " + unknown_accumulator(text));
}

}  // namespace

void add_options(CLI::App* command, ListOptions& o) {
  add_selectors(command, o);
  add_flag(command, "--cases", o.cases, "case names instead of ops");
  add_flag(command, "--planted", o.planted,
           "kernels with planted faults that check must find, and correct variants that it must not flag");
  add_flag(command, "--wanting", o.wanting,
           "what built-in ops still lack: independent values, planted defects, correct variants, a net");
  add_case_options(command, o);
}

void add_options(CLI::App* command, CheckOptions& o) {
  add_selectors(command, o);
  add_flag(command, "--variants", o.variants, kVariants);
  add_case_options(command, o);
  add_inputs_option(command, o);
  add_dump_options(command, o);
  add_run_options(command, o);
  add_lines_option(command);
  add_fuse_option(command);
  each(
      command, "--accumulate", "T",
      "linear (matmul) and attention run with their products on the model of a GPU's tensor cores: v100, turing, a100, "
      "ada, h100 or b200, and after it ',split=N' or ',promote=N'. For --dump: sums are kept in fp32 (default), fp16, "
      "bf16, or on tensor cores: tensor_core(GPU), also any",
      [&o](const std::string& t) { parse_accumulate(t, o); });
  add_budget_options(command, o);
  add_report_output(command, o.reports);
  text_option(command, "--journal", "FILE",
              "append a JSON line before and after each case, to see what ran when a machine went down", o.journal);
  text_option(command, "--run-file", "FILE",
              "keep every result in this file. If it is there, the run goes on where it ended", o.run_file);
  each(command, "--shard", "I/N",
       "run only part I of N: for N machines, whose run files ampcheck merge puts together; auto: as a CI system, a "
       "test "
       "runner or a cluster says (ampcheck explain gate)",
       [&o](const std::string& t) {
         const ShardChoice chosen = choose_shard(t);
         o.shard = chosen.shard;
         o.shards = chosen.shards;
         o.shard_origin = chosen.origin;
       });
  add_engine_option(command, o.ranks);
  add_flag(command, "--no-times", o.no_times, kNoTimes);
  add_flag(command, "-v,--verbose", o.verbose,
           "show every failing case, and which operations of a formula make its intervals wide");
}

void add_options(CLI::App* command, MergeOptions& o) {
  add_words(command, "FILE", o.files, "the run files of all parts of one check", Words::some);
  add_jobs_option(command, o.jobs);
  add_report_output(command, o.reports);
  add_flag(command, "-v,--verbose", o.verbose, "show every failing case");
  add_flag(command, "--no-times", o.no_times, kNoTimes);
}

void add_options(CLI::App* command, ReplayOptions& o) {
  add_words(command, "CASE", o.words,
            "a case name, as check prints it (ampcheck list --cases OP shows all). For an op of a library: the "
            "library first",
            Words::one_or_two);
  text_option(
      command, "--save", "DIR",
      "save inputs, results, right values and intervals: .npy files in a folder, or one FILE.safetensors or FILE.npz",
      o.save);
  add_data_option(command, o.data);
  add_inputs_option(command, o);
  add_run_options(command, o);
  add_lines_option(command);
  add_fuse_option(command);
  add_accumulate_option(command, o);
  add_memory_option(command, o);
}

void add_options(CLI::App* command, CertifyOptions& o) {
  add_words(command, "OP", o.words, "op or pattern; without: all ops. For ops of a library: the library first");
  each(command, "--samples", "N", "coordinates tested for each input and form (8); half as many for other variants",
       [&o](const std::string& t) { o.samples = static_cast<int>(parse_count("--samples", t, 1, 1'000'000)); });
  add_seed_option(command, "seed of the values (1)", o.seed);
}

void add_options(CLI::App* command, CompareOptions& o) {
  add_words(command, "A B SELECTOR", o.words, "two shared libraries or TOML files, then selectors", Words::some);
  add_case_options(command, o);
  add_run_options(command, o);
}

void add_options(CLI::App* command, ContractOptions& o) {
  add_words(command, "OP", o.words, "ops or patterns. For ops of a library or TOML file: this file first", Words::some);
  add_dtype_option(command, o.dtypes);
  add_isolation_options(command, o, "seconds that a call of a library's kernel may take (60)");
  add_accumulate_option(command, o);
  add_seed_option(command, "seed of the data (1)", o.seed);
}

}  // namespace ampcheck::tools
