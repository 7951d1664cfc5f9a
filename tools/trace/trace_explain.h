// SPDX-License-Identifier: Apache-2.0
// `ampcheck explain trace`: the format of a trace, for who reads one with a program of their own.
#pragma once

#include <string>

#include "tools/report/json.h"

namespace ampcheck::tools {

/// With a line of each kind, of a step that is run now.
std::string trace_format_text();
Json trace_format_json();

}  // namespace ampcheck::tools
