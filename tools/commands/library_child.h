// SPDX-License-Identifier: Apache-2.0
// A user's library that runs within the program, in a child that may crash.
#pragma once

#include <string>

namespace ampcheck::tools {

/// Called before anything of the library is loaded and before there are threads: from here on a child is the program,
/// and this process ends as it ends. Where it crashes that is said, with exit code 1. `verb`: "audit scaler".
void go_on_in_child(const std::string& verb, const std::string& path);

}  // namespace ampcheck::tools
