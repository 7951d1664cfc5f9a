// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include "tools/choose/dump_options.h"

#include "tools/choose/option_parsing.h"
#include "tools/report/usage_error.h"

namespace ampcheck::tools {

namespace {
constexpr std::array kMaths = {Named<const char*>{"cuda", "cuda"}, Named<const char*>{"glibc", "glibc"},
                               Named<const char*>{"own", "own"}};

Accumulator parse_accumulator(const std::string& text) {
  Accumulator out;
  if (!find_accumulator(text, out)) throw UsageError("[--accumulate] " + unknown_accumulator(text));
  return out;
}

}  // namespace

void add_dump_options(CLI::App* command, DumpOptions& o) {
  text_option(command, "--dump", "FILE",
              "judge saved outputs and gradients; no kernel runs. A safetensors or npz file, or a folder (ampcheck "
              "explain dumps)",
              o.dump);
  text_option(command, "--formula", "F", "for --dump: an op's name, or a formula as text (ampcheck explain formulas)",
              o.formula);
  each(command, "--accumulate", "T",
       "for --dump: sums are kept in fp32 (default), fp16, bf16, or on tensor cores: tensor_core(GPU) with v100, "
       "turing, "
       "a100, ada, h100, b200 or any",
       [&o](const std::string& t) { o.accumulator = parse_accumulator(t); });
  each(command, "--math", "M",
       "for --dump: functions are as accurate as those of cuda (default), glibc, or ampcheck's own",
       [&o](const std::string& t) { o.math = choose("--math", t, kMaths); });
}

}  // namespace ampcheck::tools
