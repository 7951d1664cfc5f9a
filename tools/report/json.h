// SPDX-License-Identifier: Apache-2.0
// JSON as all verbs write it: keys in the order of writing, indented, no bare NaN or infinity.
#pragma once

#include <nlohmann/json.hpp>

#include <cmath>
#include <string>

#include "tools/report/environment.h"

namespace ampcheck::tools {

using Json = nlohmann::ordered_json;

/// A number, or "nan", "inf", "-inf" as text.
inline Json json_number(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  return value;
}

/// Indented text with a final newline; invalid UTF-8 is replaced.
std::string json_text(const Json& json);

Json environment_json(const BuildFacts& build, const MachineFacts& machine);

}  // namespace ampcheck::tools
