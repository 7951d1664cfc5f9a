// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>

namespace ampcheck {

/// Runs work(begin, end) over [0, n) in pieces of at least `grain`, on all cores (oneTBB). Pieces are independent, so
/// the result does not depend on the number of threads. Exceptions reach the caller.
void parallel_for(std::int64_t n, std::int64_t grain, const std::function<void(std::int64_t, std::int64_t)>& work);

/// Limits the cores used by parallel_for from now on; 0 = all.
void set_threads(int threads);
int threads();

}  // namespace ampcheck
