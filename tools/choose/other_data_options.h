// SPDX-License-Identifier: Apache-2.0
// Options of `diagnose` for what is no net of ours: two stacks, and what other tools recorded.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "src/accumulator.h"
#include "src/dtype.h"
#include "tools/choose/run_options.h"

namespace CLI {
class App;
}

namespace ampcheck::tools {

struct OtherDataOptions : IsolationOptions {
  std::vector<std::string> formulas = {};           ///< "F", or "CALL: F" with a pattern of call names
  std::vector<Dtype> dtypes = {};                   ///< of plug-ins only these; of dumps the one that wide tensors hold
  Accumulator accumulator = Dtype::fp32;            ///< of the declared contract, for dumps
  std::string math = "cuda";                        ///< of the declared contract, for dumps: cuda, glibc or own
  std::map<std::string, std::string> columns = {};  ///< of a log: name in the file -> quantity
};

void add_other_data_options(CLI::App* command, OtherDataOptions& o);

}  // namespace ampcheck::tools
