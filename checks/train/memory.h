// SPDX-License-Identifier: Apache-2.0
// Bytes that training a net takes, by what they hold and by strategy, counted where they are allocated.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "checks/train/net.h"
#include "checks/train/step_rule.h"

namespace ampcheck::checks::train {

struct MemoryUse {
  std::string strategy;
  std::int64_t weights = 0;  ///< what the ops read: parameters, or their low-precision copies
  std::int64_t masters = 0;  ///< fp32 copies that the optimizer moves
  std::int64_t gradients = 0;
  std::int64_t moments = 0;      ///< optimizer state
  std::int64_t activations = 0;  ///< kept from forward to backward, saved tensors and casts among them
  std::int64_t total() const { return weights + masters + gradients + moments + activations; }
  /// What the allocator gave out and had not got back: all but gradients after the forward; all but activations after
  /// the update, when the graph is gone; and the most at any time, which has the gradients of activations too.
  std::int64_t live_after_forward = 0, live_after_update = 0, peak = 0;
};

struct MemoryReport {
  std::int64_t parameters = 0;  ///< elements
  std::vector<MemoryUse> strategies;
};

/// Gradients in 16 bits, of which an update widens a share to fp32 at a time.
struct ChunkedUpdate {
  std::int64_t parameters = 0, chunk = 0;  ///< chunk: of the largest, elements
  std::int64_t updates = 1;                ///< in a step, one after the other
  std::int64_t in_fp32 = 0, in_low = 0;    ///< bytes of all gradients
  std::int64_t widened = 0;                ///< of a chunk in fp32
  std::int64_t together() const { return in_low + widened; }
};
/// `share`: above 0, up to 1.
ChunkedUpdate chunked_update(std::int64_t parameters, double share, Dtype low);

/// Runs two steps of the net by each strategy and counts the second: fp32; autocast with fp32 weights; so with
/// gradients kept in 16 bits; low-precision weights with fp32 masters, gradients kept in 16 bits and upcast for the
/// update, all of them or a chunk at a time as BlockOptimizer does (its chunk, 256 elements a thread, is not counted);
/// the same with moments in 16 bits; low precision throughout.
MemoryReport memory_of(const Net& net, const StepRule& rule, Dtype low, std::uint64_t seed);

}  // namespace ampcheck::checks::train
