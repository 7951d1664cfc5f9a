// SPDX-License-Identifier: Apache-2.0
// Options of `ampcheck diagnose`.
#pragma once

#include <string>
#include <vector>

#include "tools/choose/case_options.h"
#include "tools/choose/other_data_options.h"

namespace ampcheck::tools {

struct DiagnoseOptions : CommonOptions {
  std::vector<std::string> words = {};  ///< what is diagnosed
  OtherDataOptions other = {};
};
void add_options(CLI::App* command, DiagnoseOptions& o);

}  // namespace ampcheck::tools
