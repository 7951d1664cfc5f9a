// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace ampcheck::tools {

/// Writes to standard output; on a terminal that has fewer lines through $PAGER, or else `less` where it is.
void page_stdout(const std::string& text);

}  // namespace ampcheck::tools
