// SPDX-License-Identifier: Apache-2.0
#include "checks/doors/call_state.h"

#include <pthread.h>

#include <algorithm>
#include <mutex>

namespace ampcheck::checks {

namespace {

const char* rounding_name(int mode) {
  switch (mode) {
    case FE_UPWARD: return "upward";
    case FE_DOWNWARD: return "downward";
    case FE_TOWARDZERO: return "toward zero";
    default: return "to nearest";
  }
}

/// What differs beside the rounding mode, in words.
std::string other_arithmetic([[maybe_unused]] const std::fenv_t& before, [[maybe_unused]] const std::fenv_t& now) {
#if defined(__x86_64__)
  constexpr unsigned kFlushes = 0x8040, kTraps = 0x1f80, kRounds = 0xc00;  // of the x87 word its own rounding mode
  std::string out;
  if (((before.__mxcsr ^ now.__mxcsr) & kFlushes) != 0) out += ", the flushing of subnormal numbers";
  if (((before.__mxcsr ^ now.__mxcsr) & kTraps) != 0) out += ", the traps of floating-point exceptions";
  if (((before.__control_word ^ now.__control_word) & ~kRounds) != 0) out += ", the x87 control word";
  return out;
#elif defined(__aarch64__)
  constexpr unsigned kRounds = 3u << 22;
  return ((before.__fpcr ^ now.__fpcr) & ~kRounds) != 0 ? ", the floating-point control register" : "";
#else
  return "";
#endif
}

std::string locale_now() {
  const char* const name = std::setlocale(LC_ALL, nullptr);
  return name == nullptr ? "C" : name;
}

bool same_signals(const sigset_t& a, const sigset_t& b) {
  for (int signal = 1; signal < NSIG; ++signal)
    if (sigismember(&a, signal) != sigismember(&b, signal)) return false;
  return true;
}

/// Of the process, which has one locale for all threads.
struct Calls {
  std::mutex mutex;
  int running = 0;
  std::int64_t begun = 0;
  std::string locale;  ///< before the first of those that run
};
Calls& calls() {
  static Calls out;
  return out;
}

}  // namespace

CallState::CallState() : of_thread_(uselocale(nullptr)) {
  {
    Calls& all = calls();
    const std::lock_guard lock(all.mutex);
    alone_ = all.running++ == 0;
    number_ = ++all.begun;
    if (alone_) all.locale = locale_now();
  }
  std::fegetenv(&arithmetic_);
  pthread_sigmask(SIG_SETMASK, nullptr, &blocked_);
}

CallState::~CallState() {
  const std::lock_guard lock(calls().mutex);
  --calls().running;
}

std::string CallState::restore() const {
  std::string changed;
  const int rounds = std::fegetround();
  std::fenv_t now{};
  std::fegetenv(&now);
  std::fesetenv(&arithmetic_);
  if (rounds != std::fegetround()) changed += std::string(", the rounding mode ") + rounding_name(rounds);
  changed += other_arithmetic(arithmetic_, now);
  if (uselocale(nullptr) != of_thread_) {
    uselocale(of_thread_);
    changed += ", the locale of the thread";
  }
  {
    const std::lock_guard lock(calls().mutex);
    if (const std::string name = locale_now(); name != calls().locale) {
      std::setlocale(LC_ALL, calls().locale.c_str());
      if (alone_ && calls().begun == number_) changed += ", the locale " + name;
    }
  }
  sigset_t blocked{};
  pthread_sigmask(SIG_SETMASK, &blocked_, &blocked);
  if (!same_signals(blocked, blocked_)) changed += ", the blocked signals";
  return changed.substr(std::min<std::size_t>(changed.size(), 2));
}

}  // namespace ampcheck::checks
