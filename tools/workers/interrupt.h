// SPDX-License-Identifier: Apache-2.0
// Ctrl-C, SIGTERM, SIGHUP and SIGUSR1: no further case starts, and the program ends within a second with a summary of
// what was done.
#pragma once

#include <atomic>
#include <functional>

namespace ampcheck::tools {

/// While it lives, these signals set `flag()`. If the program still runs `kPatience` later, `emergency` is called
/// on a thread of its own, and the program ends by the signal without unwinding; so it does where writing what is known
/// takes longer than `kMostWriting`. One at a time.
class InterruptGuard {
 public:
  explicit InterruptGuard(std::function<void()> emergency);
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;

  const std::atomic<bool>* flag() const;
  /// Calls off the emergency: true unless it has begun, and then it never returns.
  void finish();
  /// Whether a signal came; then the program should end by end_by_signal().
  bool interrupted() const;

 private:
  struct State;
  State* state_;
};

/// InterruptGuard::flag(), for what lives longer than one guard.
const std::atomic<bool>* interrupt_flag();

/// Ends the program as the signal would have, so that a shell sees 128 + n and stops its script.
[[noreturn]] void end_by_signal();

}  // namespace ampcheck::tools
