// SPDX-License-Identifier: Apache-2.0
// Options of audit zoo, audit gate, audit scaler and audit autocast.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tools/choose/case_options.h"
#include "tools/choose/dump_options.h"
#include "tools/choose/report_formats.h"
#include "tools/choose/run_options.h"

namespace ampcheck::tools {

/// A tolerance rule that `audit gate` tests; without any of its limits torch's default for the type.
struct GateOptions {
  std::optional<double> atol, rtol, matched, mean, nmse, cosine, factor;
  std::string preset;  ///< name of a known project's rule, or "all"
  std::string rules;   ///< TOML file with a rule for each storage type
  std::string range;   ///< data regime of the cases; empty: normal
  bool rounded_reference = false;
};

/// What `audit scaler` looks at.
struct ScalerAuditOptions {
  std::string log = {};                             ///< "-": standard input; empty: a rule or a program instead
  std::string rule = {};                            ///< that the log should follow
  std::map<std::string, std::string> columns = {};  ///< name in the file -> quantity
};

/// Whose lists `audit autocast` holds against what it is given, and how much of a net it runs.
struct AutocastAuditOptions {
  std::string torch = {}, device = {};  ///< empty: the newest; cuda
  int batches = 2;
  double scale = 0;  ///< of the loss; 0: 2^16 for fp16, 1 for bf16
};

struct AuditOptions : CaseOptions, IsolationOptions, DumpOptions {
  int jobs = 0;
  bool verbose = false;
  GateOptions gate = {};
  ScalerAuditOptions scaler = {};
  AutocastAuditOptions autocast = {};
  std::vector<ReportFile> reports = {};
  bool ranks = false;         ///< --engine mpi: a part of the zoo at a time, beside other ranks of one job
  std::string run_file = {};  ///< folder that they share
  bool no_times = false;      ///< times are 0, so that equal results are equal bytes
};
void add_options(CLI::App* command, AuditOptions& o);

}  // namespace ampcheck::tools
