// SPDX-License-Identifier: Apache-2.0
// How much chosen cases would find: of the defects that were planted in kernels of an op, those that these cases show.
#pragma once

#include <atomic>
#include <optional>
#include <string>
#include <vector>

#include "checks/define/op_def.h"
#include "src/op_call.h"

namespace ampcheck::checks::zoo {

struct DetectionPower {
  std::int64_t defects = 0, found = 0;  ///< planted kernels, each once for every storage type in which it is wrong
  std::vector<std::string> missed;      ///< "softmax.grid_of_16_bits bf16"
  double share() const { return defects == 0 ? 0 : static_cast<double>(found) / static_cast<double>(defects); }
};

/// Of the planted kernels of a built-in op, in the storage types of these calls. Nothing where the zoo has none of the
/// op, or once it was cancelled. Of calls that differ in the seed alone the first 16 count. `relations`: as RunOptions.
std::optional<DetectionPower> detection_power(const OpDef& op, const std::vector<OpCall>& calls, bool relations,
                                              const std::atomic<bool>* cancel);

}  // namespace ampcheck::checks::zoo
