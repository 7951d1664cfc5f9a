// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <mutex>
#include <new>
#include <vector>

namespace ampcheck::reference {

/// Buffers of megabytes, few and of many sizes: a freed one waits for a use that fills most of it, and all of them
/// together, used and waiting, never take more than was once in use at one time.
class LargePool {
 public:
  struct Buffer {
    std::size_t bytes;
    void* data;
  };

  LargePool() = default;
  LargePool(const LargePool&) = delete;
  LargePool& operator=(const LargePool&) = delete;
  ~LargePool() {
    for (const Buffer& waiting : waiting_) std::free(waiting.data);
  }

  /// At least `bytes`, a multiple of 64, aligned to 64. Throws std::bad_alloc.
  Buffer get(std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    waiting_.reserve(waiting_.size() + used_ + 1);  // put() must not throw
    Buffer taken{bytes, nullptr};
    const auto fit = std::find_if(waiting_.begin(), waiting_.end(),
                                  [&](const Buffer& b) { return bytes <= b.bytes && bytes >= b.bytes / 4 * 3; });
    if (fit != waiting_.end()) {
      taken = *fit;
      waiting_.erase(fit);
      waiting_bytes_ -= taken.bytes;
    }
    while (!waiting_.empty() && used_bytes_ + taken.bytes + waiting_bytes_ > most_used_) drop_oldest();
    if (taken.data == nullptr) taken.data = std::aligned_alloc(64, bytes);
    if (taken.data == nullptr) throw std::bad_alloc();
    ++used_;
    used_bytes_ += taken.bytes;
    most_used_ = std::max(most_used_, used_bytes_);
    return taken;
  }

  void put(Buffer buffer) noexcept {
    const std::lock_guard lock(mutex_);
    --used_;
    used_bytes_ -= buffer.bytes;
    waiting_bytes_ += buffer.bytes;
    waiting_.push_back(buffer);
  }

  /// Bytes used and waiting, and the most that were in use at one time.
  std::size_t held() const { return used_bytes_ + waiting_bytes_; }
  std::size_t most_used() const { return most_used_; }

 private:
  void drop_oldest() {
    waiting_bytes_ -= waiting_.front().bytes;
    std::free(waiting_.front().data);
    waiting_.erase(waiting_.begin());
  }

  std::mutex mutex_;
  std::vector<Buffer> waiting_;  ///< oldest first
  std::size_t used_ = 0, used_bytes_ = 0, most_used_ = 0, waiting_bytes_ = 0;
};

}  // namespace ampcheck::reference
