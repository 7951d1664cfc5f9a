// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include "tools/choose/dump_options.h"

#include "tools/choose/option_parsing.h"
#include "tools/report/usage_error.h"

namespace ampcheck::tools {

namespace {
constexpr std::array kMaths = {Named<const char*>{"cuda", "cuda"}, Named<const char*>{"glibc", "glibc"},
                               Named<const char*>{"own", "own"}};
}  // namespace

void add_dump_options(CLI::App* command, DumpOptions& o) {
  text_option(command, "--dump", "FILE",
              "judge saved outputs and gradients; no kernel runs. A safetensors or npz file, or a folder (ampcheck "
              "explain dumps)",
              o.dump);
  text_option(command, "--formula", "F", "for --dump: an op's name, or a formula as text (ampcheck explain formulas)",
              o.formula);
  each(command, "--math", "M",
       "for --dump: functions are as accurate as those of cuda (default), glibc, or ampcheck's own",
       [&o](const std::string& t) { o.math = choose("--math", t, kMaths); });
}

}  // namespace ampcheck::tools
