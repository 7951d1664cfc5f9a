// SPDX-License-Identifier: Apache-2.0
// A user's library that runs within the program, in a child that may crash.
#pragma once

#include <string>

#include "tools/report/exit_code.h"

namespace ampcheck::tools {

/// Called before anything of the library is loaded and before there are threads: from here on a child is the program,
/// and this process ends as it ends. Where it crashes, or ends before the program does, that is said, with exit code 1.
/// `verb`: "audit scaler".
void go_on_in_child(const std::string& verb, const std::string& path);
/// In that child, where the program ends. Elsewhere nothing.
void end_in_child(ExitCode code);

}  // namespace ampcheck::tools
