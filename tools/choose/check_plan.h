// SPDX-License-Identifier: Apache-2.0
// What lies between chosen cases and their report: the same for `ampcheck check` and for programs that call
// ampcheck/check.h.
#pragma once

#include "src/finding.h"
#include "tools/choose/op_options.h"
#include "tools/choose/selection.h"

namespace ampcheck::tools {

/// Drops the cases of a library's ops whose definitions are refused, each with a note; false if there are some. The
/// last one's error, where nothing is left.
bool drop_uncertified(Selection& selection);

/// Notes what the chosen cases leave out: of the quick set always, of the standard one on request; nothing where cases
/// are named or have a file's tensors.
void say_what_is_left_out(const CheckOptions& options, Selection& selection);

/// How a check with these options runs its cases; cancelling, progress and processes are the caller's.
checks::RunOptions run_options(const CheckOptions& options);

/// Runs the cases. What an interrupted run did not reach is not in the report.
Report run_selection(const Selection& selection, const checks::RunOptions& run);

}  // namespace ampcheck::tools
