// SPDX-License-Identifier: Apache-2.0
// What a run may take: memory for the cases that run at a time, and time after which no further case starts.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "checks/run/runner.h"

namespace ampcheck::checks {

/// About how many bytes the check of a case takes: 12 times the op's tensors where its formula goes by rows, 40 times
/// otherwise (the bounds that ampcheck_bench holds), and 64 MiB; 0 where the inputs are below 1 MiB, which no machine
/// notices. Without a form the inputs alone count. No more than about `enough` is reckoned exactly.
std::int64_t memory_need(const OpDef& op, const OpCall& call, std::int64_t enough);

/// Bytes that this process may still take: what the system calls available, less where a control group allows less.
std::int64_t available_memory();

class Budget {
 public:
  explicit Budget(const RunOptions& options);

  /// A case's share of the memory, until it goes. `refused` says why the case is not to run; otherwise it is empty.
  class Share {
   public:
    Share(Budget& budget, std::int64_t bytes, std::string refused, bool sampled = false)
        : refused(std::move(refused)), sampled(sampled), budget_(budget), bytes_(bytes) {}
    ~Share() { budget_.give(bytes_); }
    Share(const Share&) = delete;
    Share& operator=(const Share&) = delete;
    const std::string refused;
    const bool sampled;  ///< the share is for sampled rows alone

   private:
    Budget& budget_;
    std::int64_t bytes_;
  };
  /// Waits until the cases that run leave enough. A case that needs more than there is at all is judged on sampled rows
  /// (checks/run/sampled.h), or refused where that cannot be, as is one that would start after the time is up.
  Share share(const Case& item);

 private:
  void give(std::int64_t bytes);

  const std::int64_t memory_;
  const double seconds_;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::mutex mutex_;
  std::condition_variable freed_;
  std::int64_t taken_ = 0;
};

/// The order in which cases start when time may run out: the first case of every op and storage type, then the second
/// ones, and so on, since each op's cases come with what finds most first.
std::vector<std::size_t> fair_order(const std::vector<Case>& cases);

}  // namespace ampcheck::checks
