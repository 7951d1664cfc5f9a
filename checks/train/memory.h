// SPDX-License-Identifier: Apache-2.0
// Bytes that training a net takes, by what they hold and by strategy; those of the run itself are counted where they are allocated.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "checks/train/net.h"
#include "checks/train/optimizer_choice.h"

namespace ampcheck::checks::train {

struct MemoryUse {
  std::string strategy;
  std::int64_t weights = 0;       ///< what the ops read: parameters, or their low-precision copies
  std::int64_t masters = 0;       ///< fp32 copies that the optimizer moves
  std::int64_t gradients = 0;
  std::int64_t moments = 0;       ///< optimizer state
  std::int64_t activations = 0;   ///< kept from forward to backward, saved tensors and casts among them
  std::int64_t total() const { return weights + masters + gradients + moments + activations; }
};

struct MemoryReport {
  std::int64_t parameters = 0;          ///< elements
  std::vector<MemoryUse> strategies;    ///< the first two, fp32 and autocast, are measured; the others follow from them
};

/// Runs one step of the net in fp32 and under autocast and counts. Strategies: fp32; autocast with fp32 weights; low-precision weights
/// with fp32 masters, gradients kept in 16 bit and upcast for the update, all of them or a chunk at a time as BlockOptimizer does (its chunk,
/// 256 elements a thread, is not counted); the same with moments in 16 bit; low-precision weights alone.
MemoryReport memory_of(const Net& net, const OptimizerChoice& optimizer, Dtype low, std::uint64_t seed);

}  // namespace ampcheck::checks::train
