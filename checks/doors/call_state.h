// SPDX-License-Identifier: Apache-2.0
// What code of a library may leave changed in the thread that called it: how numbers are rounded, flushed and trapped,
// the locale, and which signals are blocked. The next case, and the judge's own arithmetic, would meet it.
#pragma once

#include <cfenv>
#include <clocale>
#include <csignal>
#include <cstdint>
#include <string>

namespace ampcheck::checks {

/// Remembers the state of this thread, and puts it back.
class CallState {
 public:
  CallState();
  ~CallState();
  CallState(const CallState&) = delete;
  CallState& operator=(const CallState&) = delete;
  /// Puts back what differs by now, and says what it was: "the rounding mode upward, the locale de_DE"; empty: nothing
  /// did. Flags of exceptions that were raised are no part of it. The locale is the process's: what other threads did
  /// to it meanwhile cannot be told from what this one did, so it is put back and not named where another call ran at
  /// the same time.
  std::string restore() const;

 private:
  std::fenv_t arithmetic_{};
  sigset_t blocked_{};
  locale_t of_thread_{};
  std::int64_t number_ = 0;  ///< of this call in the process
  bool alone_ = false;       ///< no other one ran when it began
};

}  // namespace ampcheck::checks
