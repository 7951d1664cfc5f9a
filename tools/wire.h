// SPDX-License-Identifier: Apache-2.0
// A case's result on its way from a worker process, bit for bit.
#pragma once

#include <string>
#include <string_view>

#include "src/finding.h"

namespace ampcheck::tools {

/// One line of text without its end.
std::string wire_text(const CaseResult& result);
/// Throws Error for a text that is none.
CaseResult from_wire(std::string_view text);

}  // namespace ampcheck::tools
