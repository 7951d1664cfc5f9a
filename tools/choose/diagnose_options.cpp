// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include "tools/choose/diagnose_options.h"

#include "tools/choose/option_parsing.h"

namespace ampcheck::tools {

void add_options(CLI::App* command, DiagnoseOptions& o) {
  add_words(command, "WHAT", o.words,
            "two stacks (libraries, ops, dumps or recordings of other tools), or one recording or training log",
            Words::one_or_two);
  add_other_data_options(command, o.other);
}

}  // namespace ampcheck::tools
