// SPDX-License-Identifier: Apache-2.0
// How check, gate and replay begin.
#pragma once

#include <vector>

#include "tools/choose/op_options.h"
#include "tools/report/reports.h"

namespace ampcheck::tools {

/// Throws UsageError where two reports want standard output or one file, or a file of the `others`, and Error where one
/// cannot be written.
void require_reports(const std::vector<ReportFile>& reports, bool json, std::vector<WrittenFile> others = {});

/// What a report says of a run with these options. Throws EnvironmentError if there is no such device; sets the number
/// of threads.
RunFacts begin_run(const CaseOptions& cases, const RunningOptions& running);

}  // namespace ampcheck::tools
