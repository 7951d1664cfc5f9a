// SPDX-License-Identifier: Apache-2.0
#include "src/parallel.h"

#include <oneapi/tbb/blocked_range.h>
#include <oneapi/tbb/global_control.h>
#include <oneapi/tbb/info.h>
#include <oneapi/tbb/parallel_for.h>
#include <oneapi/tbb/task_arena.h>

#include <memory>

#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#endif

namespace ampcheck {

namespace {
std::unique_ptr<tbb::global_control> limit;

// oneTBB is not built with the thread sanitizer, which is told here who hands over to whom: without it every result of
// another thread looks like a race, and with TBB suppressed none would.
#if defined(__SANITIZE_THREAD__)
void hand_over(void* at) { __tsan_release(at); }
void take_over(void* at) { __tsan_acquire(at); }
#else
void hand_over(void*) {}
void take_over(void*) {}
#endif
}  // namespace

void parallel_for(std::int64_t n, std::int64_t grain, const std::function<void(std::int64_t, std::int64_t)>& work) {
  if (n <= 0) return;
  if (n <= grain || threads() == 1) {
    work(0, n);
    return;
  }
  char start = 0, end = 0;
  hand_over(&start);
  // Isolated: a thread that waits for its pieces takes no other outer work meanwhile.
  tbb::this_task_arena::isolate([&] {
    tbb::parallel_for(tbb::blocked_range<std::int64_t>(0, n, static_cast<std::size_t>(grain)), [&](const auto& range) {
      take_over(&start);
      work(range.begin(), range.end());
      hand_over(&end);
    });
  });
  take_over(&end);
}

void set_threads(int count) {
  limit.reset();
  if (count > 0)
    limit = std::make_unique<tbb::global_control>(tbb::global_control::max_allowed_parallelism,
                                                  static_cast<std::size_t>(count));
}

int threads() {
  return static_cast<int>(tbb::global_control::active_value(tbb::global_control::max_allowed_parallelism));
}

}  // namespace ampcheck
