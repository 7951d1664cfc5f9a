// SPDX-License-Identifier: Apache-2.0
#include "src/parallel.h"

#include <oneapi/tbb/blocked_range.h>
#include <oneapi/tbb/global_control.h>
#include <oneapi/tbb/info.h>
#include <oneapi/tbb/parallel_for.h>
#include <oneapi/tbb/task_arena.h>

#include <algorithm>
#include <memory>
#include <optional>

#include "src/thread_scope.h"

#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#endif

namespace ampcheck {

/// At most so many threads: an arena of that size. What runs in an arena stays in it, so work that is handed out keeps
/// the limit of its caller.
class ThreadLimit {
 public:
  explicit ThreadLimit(int threads) : threads_(threads) {
    if (threads == 1) return;  // nothing is handed out
    if (threads > tbb::info::default_concurrency())
      more_.emplace(tbb::global_control::max_allowed_parallelism, static_cast<std::size_t>(threads));
    arena_.emplace(threads);
  }
  int threads() const { return threads_; }
  template <class F>
  void run(F work) {
    arena_->execute(work);
  }

 private:
  int threads_;
  std::optional<tbb::global_control> more_;  ///< more threads than cores exist only on request; it never lowers a limit
  std::optional<tbb::task_arena> arena_;
};

namespace {

thread_local std::unique_ptr<ThreadLimit> base;  ///< of set_threads()
thread_local ThreadLimit* scope = nullptr;       ///< of the innermost ThreadScope

ThreadLimit* limit() { return scope != nullptr ? scope : base.get(); }

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
  const auto spread = [&] {
    tbb::this_task_arena::isolate([&] {
      tbb::parallel_for(tbb::blocked_range<std::int64_t>(0, n, static_cast<std::size_t>(grain)),
                        [&](const auto& range) {
                          take_over(&start);
                          work(range.begin(), range.end());
                          hand_over(&end);
                        });
    });
  };
  if (ThreadLimit* const own = limit(); own != nullptr)
    own->run(spread);
  else
    spread();
  take_over(&end);
}

ThreadScope::ThreadScope(int threads) : outer_(scope) {
  if (threads <= 0) return;
  limit_ = std::make_unique<ThreadLimit>(threads);
  scope = limit_.get();
}
ThreadScope::~ThreadScope() { scope = outer_; }

void set_threads(int count) { base = count > 0 ? std::make_unique<ThreadLimit>(count) : nullptr; }

int threads() {
  if (const ThreadLimit* const own = limit(); own != nullptr) return own->threads();
  // In a piece of somebody's work the limit is that of its arena; else the machine's, less what a program around us
  // allows. A scope of another thread that asked for more than there are cores counts for nobody else.
  const auto allowed = tbb::global_control::active_value(tbb::global_control::max_allowed_parallelism);
  return std::min(static_cast<int>(allowed), tbb::this_task_arena::max_concurrency());
}

}  // namespace ampcheck
