// SPDX-License-Identifier: Apache-2.0
// The buffers of balls: pooled, because an evaluation takes and gives back thousands of one size.
#include <algorithm>
#include <array>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <new>

#include "reference/ball.h"

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
      return p;
    }
    void* p = std::aligned_alloc(64, std::size_t{8} << size_class);
    if (p == nullptr) throw std::bad_alloc();
    return static_cast<double*>(p);
  }
  void put(int size_class, double* p) {
    auto& list = free_[static_cast<std::size_t>(size_class)];
    if ((std::size_t{8} << size_class) <= (std::size_t{1} << 24) && list.size() < 64) list.push_back(p);
    else std::free(p);
  }

 private:
  std::array<std::vector<double*>, 64> free_;
};

std::shared_ptr<Pool> pool() {
  thread_local const std::shared_ptr<Pool> instance = std::make_shared<Pool>();
  return instance;
}

}  // namespace

Channel make_channel(std::int64_t count) {
  const int size_class = std::max(3, static_cast<int>(std::bit_width(static_cast<std::uint64_t>(std::max<std::int64_t>(count, 1)) - 1)));
  const std::shared_ptr<Pool> from = pool();
  return Channel(from->get(size_class), [from, size_class](double* p) { from->put(size_class, p); });
}

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr int kLanes = 4;
using Lanes = double __attribute__((vector_size(kLanes * sizeof(double))));
using Masks = std::int64_t __attribute__((vector_size(kLanes * sizeof(double))));

/// Calls see() with eight elements at a time; the last ones are filled up with `filler`.
template <class See>
void for_lanes(const double* x, std::int64_t n, double filler, See see) {
  std::int64_t i = 0;
  Lanes lanes;
  for (; i + kLanes <= n; i += kLanes) {
    std::memcpy(&lanes, x + i, sizeof lanes);
    see(lanes);
  }
  if (i == n) return;
  double rest[kLanes];
  std::fill_n(rest, kLanes, filler);
  std::copy(x + i, x + n, rest);
  std::memcpy(&lanes, rest, sizeof lanes);
  see(lanes);
}

}  // namespace

bool measure(Ball& ball) {
  // By hand in lanes: a compiler without leave to ignore NaN does not vectorise a maximum.
  const Lanes infinity = Lanes{} + kInfinity, limit = Lanes{} + 0x1p100;
  Lanes largest{}, smallest = infinity;
  Masks sound = Masks{} - 1, narrow = sound;  // all finite; all narrow
  for_lanes(ball.v.get(), ball.count(), 0, [&](Lanes v) {
    const Lanes size = (Lanes)((Masks)v & 0x7fffffffffffffffll), nonzero = size == 0 ? infinity : size;
    sound &= size < infinity;
    largest = size > largest ? size : largest;
    smallest = nonzero < smallest ? nonzero : smallest;
  });
  if (ball.r) for_lanes(ball.r.get(), ball.count(), 0, [&](Lanes r) { narrow &= r < limit; });
  Extremes& out = ball.range;
  out = {kInfinity, 0, true};
  bool all_narrow = true;
  for (int k = 0; k < kLanes; ++k) {
    out.largest = std::max(out.largest, largest[k]), out.smallest = std::min(out.smallest, smallest[k]);
    out.finite &= sound[k] != 0, all_narrow &= narrow[k] != 0;
  }
  if (out.smallest == kInfinity) out.smallest = 1.0;
  return all_narrow;
}

}  // namespace ampcheck::reference
