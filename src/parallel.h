// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>

namespace ampcheck {

/// Runs work(begin, end) over [0, n) in pieces of at least `grain`, on all cores (oneTBB). Pieces are independent, so
/// the result does not depend on the number of threads. Exceptions reach the caller.
void parallel_for(std::int64_t n, std::int64_t grain, const std::function<void(std::int64_t, std::int64_t)>& work);

/// Limits the cores that parallel_for uses in this thread from now on; 0 = all. For a while: src/thread_scope.h.
void set_threads(int threads);
int threads();

}  // namespace ampcheck
