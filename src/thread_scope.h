// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

namespace ampcheck {

class ThreadLimit;

/// While it lives, parallel_for (src/parallel.h) of the thread that made it, and of the work that this hands out, uses
/// at most `threads` cores; 0: as many as before. No other thread notices. Scopes of a thread end in the reverse order.
class ThreadScope {
 public:
  explicit ThreadScope(int threads);
  ~ThreadScope();
  ThreadScope(const ThreadScope&) = delete;
  ThreadScope& operator=(const ThreadScope&) = delete;

 private:
  std::unique_ptr<ThreadLimit> limit_;
  ThreadLimit* outer_ = nullptr;
};

}  // namespace ampcheck
