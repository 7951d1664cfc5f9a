// SPDX-License-Identifier: Apache-2.0
// Options of gate, accept and review: a kernel's change against its accepted state.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tools/choose/case_options.h"
#include "tools/choose/report_formats.h"
#include "tools/choose/run_options.h"

namespace ampcheck::tools {

/// `ampcheck gate`. (`audit gate` is another thing: it tests a tolerance rule.)
struct KernelGateOptions : CaseOptions, RunningOptions {
  std::string baseline = {};             ///< folder
  std::string base = {};                 ///< instead: another build, or what --record wrote
  std::string record = {};               ///< file for the profiles of this run
  std::string today = {};                ///< empty: the clock's day
  std::optional<double> min_power = {};  ///< share of the planted defects that the cases have to find
  bool strict = false;                   ///< worse errors fail
  bool strict_bits = false;              ///< changed bits fail
  bool strict_speed = false;             ///< a build that is slower than the base fails
  std::vector<ReportFile> reports = {};
  bool ranks = false;         ///< --engine mpi: a part of the cases at a time, beside other ranks of one job
  std::string run_file = {};  ///< folder that they share
};
void add_options(CLI::App* command, KernelGateOptions& o);

struct AcceptOptions : OpOptions {
  std::string baseline = {}, reason = {};
  std::string waive = {}, until = {};  ///< a code, and the last day on which it is let through
};
void add_options(CLI::App* command, AcceptOptions& o);

struct ReviewOptions : OpOptions {
  std::string baseline = {};
  std::string output = {};  ///< file for the same as Markdown
  bool tighten = false;     ///< only what became better: as long as nobody accepts it, the old errors pass
};
void add_options(CLI::App* command, ReviewOptions& o);

}  // namespace ampcheck::tools
