// SPDX-License-Identifier: Apache-2.0
// Commands that run a library's kernels many times over and say nothing of single cases: they run as a whole in a
// process of their own, so that a kernel that ends it does not pass for an answer.
#pragma once

#include <optional>
#include <vector>

#include "checks/define/op_def.h"
#include "tools/choose/run_options.h"
#include "tools/report/exit_code.h"

namespace ampcheck::tools {

/// With `ops` of a library: runs this command line again in a child and returns its exit code, or that of findings
/// where a kernel ended the child or did not return in options.timeout seconds. Nothing: this is the child, or there is
/// no library, or the user wants no isolation; then the command is to run here. EnvironmentError if no process can be
/// started.
std::optional<ExitCode> run_in_child(const std::vector<const checks::OpDef*>& ops, const IsolationOptions& options,
                                     Device device = Device::cpu);
/// Whether this process is such a child.
bool is_child();

/// In the child, once the command is done: tells the parent that its exit code is the command's own.
void child_is_done();

}  // namespace ampcheck::tools
