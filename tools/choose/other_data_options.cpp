// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include "tools/choose/other_data_options.h"

#include "tools/choose/case_options.h"
#include "tools/choose/option_parsing.h"

namespace ampcheck::tools {

namespace {

constexpr std::array kMaths = {Named<const char*>{"cuda", "cuda"}, Named<const char*>{"glibc", "glibc"},
                               Named<const char*>{"own", "own"}};

}  // namespace

void add_other_data_options(CLI::App* command, OtherDataOptions& o) {
  each(command, "--formula", "F",
       "for dumps: an op's name or a formula as text; 'CALL: F' for the calls whose names match a pattern (may be "
       "repeated)",
       [&o](const std::string& t) { o.formulas.push_back(t); });
  each(command, "--accumulator", "T", "for dumps: the declared contract keeps sums in fp32 (default), fp16 or bf16",
       [&o](const std::string& t) {
         if (!find_accumulator(t, o.accumulator)) throw UsageError("[--accumulator] " + unknown_accumulator(t));
       });
  each(command, "--math", "M", "for dumps: functions are as accurate as those of cuda (default), glibc or own",
       [&o](const std::string& t) { o.math = choose("--math", t, kMaths); });
  each(command, "--columns", "QUANTITY=NAME,...", "for a log: what its columns or keys are called, as loss=train_loss",
       [&o](const std::string& t) { parse_columns(t, o.columns); });
}

}  // namespace ampcheck::tools
