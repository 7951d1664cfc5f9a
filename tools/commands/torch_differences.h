// SPDX-License-Identifier: Apache-2.0
// `ampcheck explain torch`: what of PyTorch's recorded behaviour is not repeated here, and why.
#pragma once

#include <span>
#include <string>

#include "tools/report/json.h"

namespace ampcheck::tools {

struct TorchDifference {
  const char* file;   ///< record of torch's, as "optimizers.json"; "*": any
  const char* where;  ///< path in it, "*" for any one part; or "/list[name]" of one entry. What lies below it, too
  const char* reason;
};
std::span<const TorchDifference> torch_differences();

std::string torch_text();
Json torch_json();

}  // namespace ampcheck::tools
