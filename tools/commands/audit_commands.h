// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tools/choose/audit_options.h"
#include "tools/report/exit_code.h"

namespace ampcheck::tools {

/// How often the verdict over a training run is right; words: kernels or ops.
ExitCode audit_train_command(const AuditOptions& options);

/// How often the verdicts on kernels are right; words: "zoo", then kernels or ops.
ExitCode audit_zoo_command(const AuditOptions& options);

}  // namespace ampcheck::tools
