// SPDX-License-Identifier: Apache-2.0
// A case's result on its way from a worker process, bit for bit.
#pragma once

#include <string>
#include <string_view>

#include "src/finding.h"

namespace ampcheck::tools {

/// Its bytes; the channel carries their number in front.
std::string wire_text(const CaseResult& result);
/// Throws Error for bytes that are none.
CaseResult from_wire(std::string_view text);

}  // namespace ampcheck::tools
