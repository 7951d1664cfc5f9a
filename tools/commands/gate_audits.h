// SPDX-License-Identifier: Apache-2.0
// What `audit gate` and its presets share: the ops that are asked for, with their cases.
#pragma once

#include <vector>

#include "checks/audit/gate_audit.h"
#include "tools/choose/options.h"
#include "tools/report/exit_code.h"

namespace ampcheck::tools {

/// An op and its cases of one storage type.
struct AskedOp {
  const checks::OpDef* op;
  Dtype dtype;
  std::vector<OpCall> calls;
};

/// Those that the words of the options name. Throws UsageError for an unknown op or case.
std::vector<AskedOp> asked_ops(const AuditOptions& options);

/// `audit gate --preset`: 0, or 1 where a rule is vacuous or too tight for some op.
ExitCode audit_presets_command(const AuditOptions& options);

}  // namespace ampcheck::tools
