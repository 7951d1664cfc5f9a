// SPDX-License-Identifier: Apache-2.0
// The process of an audited library, from outside. Only tools/commands/audited_library.cpp includes this.
#pragma once

#include <fmt/format.h>
#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <new>
#include <string>

#include "checks/scaler/library.h"
#include "src/error.h"
#include "tools/commands/audited_library.h"
#include "tools/commands/audited_wire.h"

namespace ampcheck::tools::audited {

inline constexpr int kAsked = 3, kAnswered = 4;  ///< descriptors of the process

/// How each answer begins; then a text, and what was asked for if it was done.
enum class Said : std::uint8_t { done, library_error, environment_error, no_memory, threw };

/// The process ended, or was silent for too long. What it had answered and not sent is lost.
struct ProcessEnded : LibraryEnded {
  using LibraryEnded::LibraryEnded;
};

/// Words for a message: "as it was loaded".
using When = std::function<std::string()>;

/// One request at a time, and one or more answers to it.
class Process {
 public:
  Process(const char* kind, const AuditedLibrary& library);
  ~Process();
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  void send(const std::string& request, const When& when);
  /// `read` takes what was asked for.
  template <class Read>
  void answer(const When& when, const Read& read);
  /// After the last answer to a request. More than was asked for would be taken for answers to the next one.
  void no_more(const When& when) const {
    if (next_ != received_.size()) unreadable(when);
  }
  /// Lets it end, which unloads the library.
  void unload();

 private:
  using Clock = std::chrono::steady_clock;

  Clock::time_point after_timeout() const;
  std::string receive(const When& when);
  bool has_message(std::uint64_t& size, const When& when) const;
  bool waited(int how);
  void end();
  [[noreturn]] void ended(const When& when);
  [[noreturn]] void too_late(const When& when) const;
  [[noreturn]] void unreadable(const When& when) const {
    throw LibraryEnded(fmt::format("'{}' answered with what cannot be read {}", library_.path, when()));
  }

  AuditedLibrary library_;
  pid_t process_ = 0;
  int to_ = -1, from_ = -1, status_ = 0;
  std::string received_;
  std::size_t next_ = 0;  ///< message, in received_
};

template <class Read>
void Process::answer(const When& when, const Read& read) {
  const std::string answer = receive(when);
  In in(answer);
  int said = 0;
  std::string text;
  try {
    in(said);
    in(text);
    if (static_cast<Said>(said) == Said::done) {
      read(in);
      in.end();
    }
  } catch (const Error&) {
    unreadable(when);
  }
  switch (static_cast<Said>(said)) {
    case Said::done: return;
    case Said::library_error: throw checks::scaler::LibraryError(text);
    case Said::environment_error: throw EnvironmentError(text);
    case Said::no_memory: throw std::bad_alloc();
    default: throw LibraryEnded(fmt::format("'{}' let an exception out {}: {}", library_.path, when(), text));
  }
}

}  // namespace ampcheck::tools::audited
