// SPDX-License-Identifier: Apache-2.0
// A run's kernels in order on one device, and memory that host and device both reach. One rule keeps it sound: whoever
// wants to read or write such memory on the host calls wait() first, after whatever was launched. Device work alone
// needs no waiting: it runs in order.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "kernels/kernel.h"
#include "src/tensor_memory.h"

namespace ampcheck::kernels {

/// Blocks of memory that are handed out again, by size, once they come back. A block may come back while work that was
/// launched before still uses it: later work on the same stream comes after that, and the host waits.
class MemoryPool : public std::enable_shared_from_this<MemoryPool> {
 public:
  /// `source`: new memory, aligned to 64 bytes.
  explicit MemoryPool(std::function<std::shared_ptr<void>(std::size_t)> source) : source_(std::move(source)) {}
  std::shared_ptr<std::byte> allocate(std::size_t bytes);
  /// Whether `data` points into a block of the pool.
  bool owns(const void* data) const;
  /// Of all blocks, in use or not.
  std::size_t bytes() const;

 private:
  mutable std::mutex mutex_;
  std::function<std::shared_ptr<void>(std::size_t)> source_;
  std::map<const std::byte*, std::size_t> blocks_;  ///< size by address
  std::map<std::size_t, std::vector<std::byte*>> free_;
  std::vector<std::shared_ptr<void>> memory_;
};

class Stream : public TensorMemory {
 public:
  explicit Stream(std::function<std::shared_ptr<void>(std::size_t)> source)
      : pool_(std::make_shared<MemoryPool>(std::move(source))) {}
  std::shared_ptr<std::byte> allocate(std::size_t bytes) override { return pool_->allocate(bytes); }
  /// Calls `kernel` with this device and stream, after everything launched before. The tensors of `call` are this
  /// stream's: Error otherwise.
  void launch(const KernelFn& kernel, const KernelCall& call);
  /// Until all that was launched is done; throws what a kernel left behind. Costs nothing if nothing was launched
  /// since.
  void wait() override;
  /// How often something was launched.
  std::int64_t launches() const { return launches_; }

 protected:
  virtual void enqueue(const KernelFn& kernel, const KernelCall& call) = 0;
  virtual void finish() = 0;

 private:
  std::shared_ptr<MemoryPool> pool_;
  std::int64_t launches_ = 0;
  bool busy_ = false;
};

/// The first GPU's, with managed memory. EnvironmentError if it is not there.
std::unique_ptr<Stream> make_cuda_stream();

}  // namespace ampcheck::kernels
