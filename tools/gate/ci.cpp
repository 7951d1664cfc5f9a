// SPDX-License-Identifier: Apache-2.0
#include "tools/gate/ci.h"

#include <cstdlib>
#include <string_view>

namespace ampcheck::tools {

bool in_ci() {
  const char* const text = std::getenv("CI");
  if (text == nullptr) return false;
  const std::string_view value = text;
  return !value.empty() && value != "0" && value != "false";
}

}  // namespace ampcheck::tools
