// SPDX-License-Identifier: Apache-2.0
// Which accumulator a kernel's matrix products have, read off its bits: fp32 chains, or the tensor cores of a
// generation.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "checks/define/op_def.h"
#include "src/op_call.h"

namespace ampcheck::checks {

/// One accumulator whose products were computed beside the kernel's.
struct CoreReading {
  std::string words;  ///< "tensor cores of h100 or b200"
  Accumulator accumulator;
  std::int64_t equal = 0;  ///< of the elements that tell, as the kernel has them bit for bit
};

struct CoreReadings {
  std::vector<CoreReading> all;  ///< best first; those that give the same bits are one. Empty: no product tells
  std::int64_t told = 0;         ///< elements at which they differ

  /// The one that gives every element that tells, if there are enough of them to mean it.
  const CoreReading* found() const;
};

/// Runs the forward at long sums of positive numbers, on which accumulators differ most. Nothing of an op without
/// matrix products, and of storage types that no tensor core takes.
CoreReadings read_cores(const OpDef& op, Dtype storage, std::uint64_t seed);

}  // namespace ampcheck::checks
