// SPDX-License-Identifier: Apache-2.0
// What supervisor and worker agree on. Only tools/workers/isolation.cpp and tools/workers/worker.cpp include this.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ampcheck::tools {

inline constexpr int kRequests = 3, kReplies = 4;    ///< descriptors of the worker
inline constexpr int kClock = 5;                     ///< that of its KernelClock
inline constexpr char kWhole = 'w', kSampled = 's';  ///< first character of a request: how the case is to be judged
inline constexpr char
    kExplained = 'e',
    kJudged = 'j', kMeasured = 'm', kReduced = 'v',
    kFirst = 'f';  ///< the second: what is wrong explained, or not; explained, and the judge's power measured; not
                   ///< explained, and its values reduced; not explained, and ended by the first wrong value
inline constexpr std::uint64_t kNoMemoryAnswer = ~std::uint64_t{0};  ///< in the place of a reply's length
inline constexpr std::size_t kMostOutput = 64 << 20;  ///< bytes that a worker may write to standard output and error

}  // namespace ampcheck::tools
