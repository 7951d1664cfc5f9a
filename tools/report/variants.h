// SPDX-License-Identifier: Apache-2.0
// The kernels of one op among which an autotuner picks: which of them give the same bits, and whether all are right.
#pragma once

#include <string>
#include <vector>

#include "tools/report/json.h"

namespace ampcheck::tools {

struct VariantClasses {
  std::string op;                                 ///< "softmax"; its variants are "softmax.tile128", ...
  std::size_t kernels = 0;                        ///< the op's own among them
  std::vector<std::vector<std::string>> classes;  ///< kernels with the same bits in every case, the op's own first
  std::vector<std::string> outside;               ///< kernels with a finding
  std::vector<std::string> unknown;               ///< kernels of which no bits are known
};

/// "softmax: 8 kernels, 5 bit classes, all inside", and a line for each class; empty without variants.
std::string variants_text(const std::vector<VariantClasses>& all);
Json variants_json(const std::vector<VariantClasses>& all);

}  // namespace ampcheck::tools
