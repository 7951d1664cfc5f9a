// SPDX-License-Identifier: Apache-2.0
// What a state of an op was measured with.
#pragma once

#include <string>
#include <string_view>

#include "checks/define/op_def.h"
#include "tools/gate/baseline.h"

namespace ampcheck::tools {

/// Of a built-in op the compiler of ampcheck; of a library the one that its .comment section names.
/// Error where the library cannot be read: a state that does not say what made it is none.
Measured measured_here(const checks::OpDef& op);

/// As Measured::file has it.
std::string file_name_of(const std::string& library);

/// "GCC: (Debian 12.2.0-14) 12.2.0", "clang version 14.0.6" in the bytes of a library; "" if there is none.
std::string compiler_named_in(std::string_view bytes);

}  // namespace ampcheck::tools
