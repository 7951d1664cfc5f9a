// SPDX-License-Identifier: Apache-2.0
// The buffers of balls: pooled, because an evaluation takes and gives back thousands of one size.
#include <algorithm>
#include <array>
#include <bit>
#include <cstdlib>
#include <new>
#include <vector>

#include "reference/ball/ball.h"
#include "reference/ball/large_pool.h"

namespace ampcheck::reference {

namespace {

/// Buffers by power-of-two size; they go back when the last ball that uses them goes.
class Pool {
 public:
  ~Pool() {
    for (auto& list : free_)
      for (double* p : list) std::free(p);
  }
  double* get(int size_class) {
    auto& list = free_[static_cast<std::size_t>(size_class)];
    if (!list.empty()) {
      double* p = list.back();
      list.pop_back();
      held_ -= std::size_t{8} << size_class;
      return p;
    }
    void* p = std::aligned_alloc(64, std::size_t{8} << size_class);
    if (p == nullptr) throw std::bad_alloc();
    return static_cast<double*>(p);
  }
  void put(int size_class, double* p) {
    auto& list = free_[static_cast<std::size_t>(size_class)];
    const std::size_t size = std::size_t{8} << size_class;
    if (held_ + size > kMostHeld) return std::free(p);
    list.push_back(p);
    held_ += size;
  }

 private:
  static constexpr std::size_t kMostHeld = std::size_t{1} << 26;  ///< bytes that wait for their next use
  std::array<std::vector<double*>, 64> free_;
  std::size_t held_ = 0;
};

std::shared_ptr<Pool> pool() {
  thread_local const std::shared_ptr<Pool> instance = std::make_shared<Pool>();
  return instance;
}

std::shared_ptr<LargePool> large_pool() {
  static const std::shared_ptr<LargePool> instance = std::make_shared<LargePool>();
  return instance;
}

/// Larger ones would be rounded up by megabytes.
constexpr std::int64_t kMostRounded = std::int64_t{1} << 17;

}  // namespace

Channel make_channel(std::int64_t count) {
  if (count > kMostRounded) {
    const std::shared_ptr<LargePool> from = large_pool();
    const LargePool::Buffer buffer = from->get((static_cast<std::size_t>(count) * 8 + 63) / 64 * 64);
    return Channel(static_cast<double*>(buffer.data), [from, buffer](double*) { from->put(buffer); });
  }
  const int size_class =
      std::max(3, static_cast<int>(std::bit_width(static_cast<std::uint64_t>(std::max<std::int64_t>(count, 1)) - 1)));
  const std::shared_ptr<Pool> from = pool();
  return Channel(from->get(size_class), [from, size_class](double* p) { from->put(size_class, p); });
}

}  // namespace ampcheck::reference
