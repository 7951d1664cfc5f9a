// SPDX-License-Identifier: Apache-2.0
#include "kernels/stream.h"

#include "src/error.h"

namespace ampcheck::kernels {

std::shared_ptr<std::byte> MemoryPool::allocate(std::size_t bytes) {
  const std::size_t size = (bytes + 511) / 512 * 512;
  const std::lock_guard lock(mutex_);
  std::vector<std::byte*>& free = free_[size];
  if (free.empty()) {
    memory_.push_back(source_(size));
    auto* const fresh = static_cast<std::byte*>(memory_.back().get());
    blocks_[fresh] = size;
    free.push_back(fresh);
  }
  std::byte* const block = free.back();
  free.pop_back();
  return {block, [pool = shared_from_this(), size](std::byte* p) {
            const std::lock_guard held(pool->mutex_);
            pool->free_[size].push_back(p);
          }};
}

bool MemoryPool::owns(const void* data) const {
  const auto* const at = static_cast<const std::byte*>(data);
  const std::lock_guard lock(mutex_);
  auto block = blocks_.upper_bound(at);
  if (block == blocks_.begin()) return false;
  --block;
  return at < block->first + block->second;
}

std::size_t MemoryPool::bytes() const {
  const std::lock_guard lock(mutex_);
  std::size_t out = 0;
  for (const auto& [address, size] : blocks_) out += size;
  return out;
}

void Stream::launch(const KernelFn& kernel, const KernelCall& call) {
  for (const auto& [name, view] : call.tensors)
    if (view.count() > 0 && !pool_->owns(view.data))
      throw Error("[stream] tensor '" + name + "', got host memory, want memory of the stream that the kernel runs on");
  ++launches_;
  busy_ = true;
  enqueue(kernel, call);
}

void Stream::wait() {
  if (!busy_) return;
  busy_ = false;
  finish();
}

}  // namespace ampcheck::kernels
