// SPDX-License-Identifier: Apache-2.0
// Options of mutate: small changes of a kernel's source, and whether the check sees them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tools/choose/case_options.h"

namespace ampcheck::tools {

struct MutateOptions : CommonOptions {
  std::vector<std::string> words = {};    ///< the source, and behind it the build command
  std::string library = {};               ///< that the command makes
  std::string program = {};               ///< or a program that it makes
  std::vector<std::string> selects = {};  ///< ops and options, as gate takes them
  std::uint64_t limit = 0;                ///< mutants that are tried at most; 0: all
  int jobs = 1;
  double min_killed = 1;  ///< share
  bool strict = false;    ///< mutants that change no bit count as survivors
  bool list = false;      ///< nothing is built
  double build_seconds = 600;
  std::string case_seconds = "5";  ///< --timeout of gate
};
void add_options(CLI::App* command, MutateOptions& o);

}  // namespace ampcheck::tools
