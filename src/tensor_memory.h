// SPDX-License-Identifier: Apache-2.0
// Where tensors lie: in the host's memory, unless a scope says otherwise.
#pragma once

#include <cstddef>
#include <memory>

namespace ampcheck {

/// Memory that the host reaches, but not at any time: a device may be at work on it.
class TensorMemory {
 public:
  TensorMemory() = default;
  TensorMemory(const TensorMemory&) = delete;
  TensorMemory& operator=(const TensorMemory&) = delete;
  virtual ~TensorMemory() = default;
  /// At least that many bytes, aligned to 64; they may outlive this object.
  virtual std::shared_ptr<std::byte> allocate(std::size_t bytes) = 0;
  /// Until the host may touch all of this memory.
  virtual void wait() = 0;
};

/// The tensors that this thread makes until the end of the scope lie in `memory`; null: in the host's. Scopes nest.
/// Pieces of a parallel_for on other threads are not in it.
class MemoryScope {
 public:
  explicit MemoryScope(TensorMemory* memory);
  ~MemoryScope();
  MemoryScope(const MemoryScope&) = delete;
  MemoryScope& operator=(const MemoryScope&) = delete;

 private:
  TensorMemory* before_;
};

}  // namespace ampcheck
