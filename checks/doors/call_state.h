// SPDX-License-Identifier: Apache-2.0
// What code of a library may leave changed in the thread that called it: how numbers are rounded, flushed and trapped,
// the locale, and which signals are blocked. The next case, and the judge's own arithmetic, would meet it.
#pragma once

#include <cfenv>
#include <clocale>
#include <csignal>
#include <string>

namespace ampcheck::checks {

/// Remembers the state of this thread, and puts it back.
class CallState {
 public:
  CallState();
  /// Puts back what differs by now, and says what it was: "the rounding mode upward, the locale de_DE"; empty: nothing
  /// did. Flags of exceptions that were raised are no part of it.
  std::string restore() const;

 private:
  std::fenv_t arithmetic_{};
  sigset_t blocked_{};
  locale_t of_thread_{};
  std::string locale_;
};

}  // namespace ampcheck::checks
