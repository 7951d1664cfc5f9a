// SPDX-License-Identifier: Apache-2.0
// Options of tensors that somebody saved, and of the formula that they are held against.
#pragma once

#include <string>

#include "src/accumulator.h"

namespace CLI {
class App;
}

namespace ampcheck::tools {

struct DumpOptions {
  std::string dump = {};         ///< file or folder of inputs, outputs and gradients that are to be judged
  std::string formula = {};      ///< an op, or a formula as text
  Accumulator accumulator = {};  ///< of the contract
  std::string math = "cuda";     ///< functions of the contract: cuda, glibc or own
};

void add_dump_options(CLI::App* command, DumpOptions& o);

}  // namespace ampcheck::tools
