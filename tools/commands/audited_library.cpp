// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include "tools/commands/audited_library.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstring>
#include <new>
#include <utility>

#include "checks/scaler/library.h"
#include "src/spawn_actions.h"
#include "tools/choose/sandbox_choice.h"
#include "tools/commands/audited_wire.h"
#include "tools/workers/limits.h"
#include "tools/workers/message.h"
#include "tools/workers/orphans.h"
#include "tools/workers/sandbox.h"

extern char** environ;

namespace ampcheck::tools {

namespace {

using namespace audited;
using Clock = std::chrono::steady_clock;

constexpr int kAsked = 3, kAnswered = 4;                      ///< descriptors of the process
constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 30;  ///< of a message: a loop hands out its state

enum class Said : std::uint8_t { done, library_error, environment_error, no_memory, threw };

/// The process of a library, one message at a time.
class Process {
 public:
  Process(const char* kind, const AuditedLibrary& library) : library_(library) {
    int to[2], from[2];
    if (pipe2(to, O_CLOEXEC) != 0 || pipe2(from, O_CLOEXEC) != 0)
      throw EnvironmentError(std::string("[audit] cannot make a pipe: ") + std::strerror(errno));
    SpawnActions actions;
    // Through high numbers first: a descriptor may be the number that another goes to.
    const int asked = fcntl(to[0], F_DUPFD_CLOEXEC, 64), answered = fcntl(from[1], F_DUPFD_CLOEXEC, 64);
    actions.open(STDIN_FILENO, "/dev/null", O_RDONLY);
    actions.duplicate(STDERR_FILENO, STDOUT_FILENO);  // standard output is the report's
    actions.duplicate(asked, kAsked);
    actions.duplicate(answered, kAnswered);
    posix_spawnattr_t attributes;
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setpgroup(&attributes, 0);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
    std::string words[] = {"ampcheck", "--audited", kind, library.path};
    char* argv[] = {words[0].data(), words[1].data(), words[2].data(), words[3].data(), nullptr};
    int failed = 0;
    process_ = start_own_child([&] {
      pid_t child = 0;
      failed = posix_spawn(&child, library.program.c_str(), actions.get(), &attributes, argv, environ);
      return failed == 0 ? child : 0;
    });
    posix_spawnattr_destroy(&attributes);
    for (const int file : {asked, answered, to[0], from[1]}) close(file);
    to_ = to[1];
    from_ = from[0];
    fcntl(from_, F_SETFL, O_NONBLOCK);
    if (failed != 0)
      throw EnvironmentError(std::string("[audit] a process cannot be started: ") + std::strerror(failed));
  }
  ~Process() {
    end();
    close(from_);
  }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  /// `read` takes the rest of an answer to `request`, or of the first message without one. `when`: words for a message.
  template <class Read>
  void ask(const std::string& request, const std::string& when, const Read& read) {
    if (!request.empty() && !send_message(to_, request)) ended(when);
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
      throw LibraryEnded(fmt::format("'{}' answered with what cannot be read {}", library_.path, when));
    }
    switch (static_cast<Said>(said)) {
      case Said::done: return;
      case Said::library_error: throw LibraryError(text);
      case Said::environment_error: throw EnvironmentError(text);
      case Said::no_memory: throw std::bad_alloc();
      default: throw LibraryEnded(fmt::format("'{}' let an exception out {}: {}", library_.path, when, text));
    }
  }

  /// Lets it end, which unloads the library.
  void unload() {
    const std::string when = "as it was unloaded";
    close(std::exchange(to_, -1));
    const auto deadline = after_timeout();
    while (!waited(WNOHANG)) {
      if (Clock::now() > deadline) too_late(when);
      usleep(1000);
    }
    if (!WIFEXITED(status_) || WEXITSTATUS(status_) != 0) ended(when);
  }

 private:
  Clock::time_point after_timeout() const {
    return Clock::now() + std::chrono::microseconds(static_cast<std::int64_t>(1e6 * library_.timeout));
  }

  /// A message, in slices: a process that the library started may hold the pipe open.
  std::string receive(const std::string& when) {
    constexpr int kSlice = 50;  // milliseconds
    const auto deadline = after_timeout();
    std::string out;
    for (char buffer[1 << 16];;) {
      std::uint64_t size = 0;
      if (out.size() >= sizeof size) {
        std::memcpy(&size, out.data(), sizeof size);
        if (size > kMostBytes || out.size() - sizeof size > size)
          throw LibraryEnded(fmt::format("'{}' answered with what cannot be read {}", library_.path, when));
        if (out.size() - sizeof size == size) return out.substr(sizeof size);
      }
      const ssize_t got = read(from_, buffer, sizeof buffer);
      if (got > 0) {
        out.append(buffer, static_cast<std::size_t>(got));
        continue;
      }
      if (got == 0 || waited(WNOHANG)) ended(when);
      if (Clock::now() > deadline) too_late(when);
      pollfd at = {from_, POLLIN, 0};
      poll(&at, 1, kSlice);
    }
  }

  bool waited(int how) {
    if (process_ == 0) return true;
    if (waitpid(process_, &status_, how) != process_) return false;
    kill(-process_, SIGKILL);  // what it left behind
    own_child_ended(std::exchange(process_, 0));
    return true;
  }
  void end() {
    if (to_ >= 0) close(std::exchange(to_, -1));
    if (process_ == 0) return;
    kill(-process_, SIGKILL);
    kill(process_, SIGKILL);  // it may not have its group yet
    while (!waited(0) && errno == EINTR) continue;
  }
  [[noreturn]] void ended(const std::string& when) {
    constexpr auto kMercy = std::chrono::seconds(1);
    const auto deadline = Clock::now() + kMercy;
    while (!waited(WNOHANG)) {  // it may have closed its descriptors, and go on
      if (Clock::now() > deadline)
        throw LibraryEnded(fmt::format("'{}' closed what is not its own {}", library_.path, when));
      usleep(1000);
    }
    throw LibraryEnded(fmt::format("'{}' ended its process {} {}", library_.path, how_it_ended(status_), when));
  }
  [[noreturn]] void too_late(const std::string& when) const {
    throw LibraryEnded(fmt::format("'{}' took more than {:g} s (--timeout) {}", library_.path, library_.timeout, when));
  }

  AuditedLibrary library_;
  pid_t process_ = 0;
  int to_ = -1, from_ = -1, status_ = 0;
};

constexpr const char* kLoaded = "as it was loaded";
constexpr std::size_t kShownCalls = 12;

/// "behind 'scale, backward, ...'", for a message: the last of many.
template <class Call>
std::string when_of(std::span<const Call> calls) {
  std::string out = calls.size() > kShownCalls ? "..." : "";
  for (const Call& call : calls.last(std::min(kShownCalls, calls.size()))) {
    if (!out.empty()) out += ", ";
    out += call.str();
  }
  return "in these calls: " + out;
}

class Scaler : public ApartSubject {
 public:
  explicit Scaler(const AuditedLibrary& library) : process_("scaler", library) {
    process_.ask("", kLoaded, [&](In& in) { in(sets_window_); });
  }
  std::vector<Reply> run(const Setup& setup, std::span<const Call> calls) override {
    Out request;
    fields_of_setup(request, setup);
    request.count(calls.size(), 0);
    for (const Call& call : calls) fields_of_call(request, call);
    std::vector<Reply> out;
    process_.ask(request.take(), when_of(calls), [&](In& in) {
      field_list(in, out, 40, [&](Reply& reply) { fields_of_reply(in, reply); });
      if (out.size() > calls.size()) throw Error("more replies than calls");
    });
    return out;
  }
  bool sets_window() const override { return sets_window_; }
  void unload() override { process_.unload(); }

 private:
  Process process_;
  bool sets_window_ = false;
};

class ApartLoopOfLibrary : public ApartLoop {
 public:
  explicit ApartLoopOfLibrary(const AuditedLibrary& library) : process_("loop", library) {
    process_.ask("", kLoaded, [&](In& in) {
      for (bool& has : has_) in(has);
    });
  }
  std::vector<LoopReply> run(const LoopSetup& setup, std::span<const LoopCall> calls) override {
    Out request;
    fields_of_loop_setup(request, setup);
    request.count(calls.size(), 0);
    for (const LoopCall& call : calls) fields_of_loop_call(request, call);
    std::vector<LoopReply> out;
    process_.ask(request.take(), when_of(calls), [&](In& in) {
      field_list(in, out, 24, [&](LoopReply& reply) { fields_of_loop_reply(in, reply); });
      if (out.size() > calls.size()) throw Error("more replies than calls");
    });
    return out;
  }
  bool has(Ability ability) const override { return has_[static_cast<std::size_t>(ability)]; }
  void unload() override { process_.unload(); }

 private:
  Process process_;
  bool has_[std::size(kAbilities)] = {};
};

// ---- The process.

/// Sends what `say` writes, or what is thrown instead.
template <class Say>
bool answer_with(const Say& say) {
  Said said = Said::done;
  std::string text;
  Out rest;
  const auto failed = [&](Said how, const char* why) {
    said = how;
    text = why;
  };
  try {
    say(rest);
  } catch (const LibraryError& error) {
    failed(Said::library_error, error.what());
  } catch (const EnvironmentError& error) {
    failed(Said::environment_error, error.what());
  } catch (const std::bad_alloc&) {
    failed(Said::no_memory, "");
  } catch (const std::exception& error) {
    failed(Said::threw, error.what());
  }
  Out out;
  out(static_cast<int>(said));
  out(text);
  return send_message(kAnswered, out.take() + (said == Said::done ? rest.take() : ""));
}

void answer_of_scaler(Subject& subject, const std::string& request, Out& out) {
  In in(request);
  Setup setup;
  std::vector<Call> calls;
  fields_of_setup(in, setup);
  field_list(in, calls, 40, [&](Call& call) { fields_of_call(in, call); });
  const std::vector<Reply> replies = subject.run(setup, calls);
  field_list(out, replies, 0, [&](const Reply& reply) { fields_of_reply(out, reply); });
}

void answer_of_loop(Loop& loop, const std::string& request, Out& out) {
  In in(request);
  LoopSetup setup;
  std::vector<LoopCall> calls;
  fields_of_loop_setup(in, setup);
  field_list(in, calls, 40, [&](LoopCall& call) { fields_of_loop_call(in, call); });
  const std::vector<LoopReply> replies = loop.run(setup, calls);
  field_list(out, replies, 0, [&](const LoopReply& reply) { fields_of_loop_reply(out, reply); });
}

/// Of what was loaded by `load`: `describe` writes its abilities, `answer` runs calls.
template <class Load, class Describe, class Answer>
void serve(const std::string& path, const Load& load, const Describe& describe, const Answer& answer) {
  decltype(load(path)) subject;
  const bool up = answer_with([&](Out& out) {
    if (libraries_are_sandboxed()) enter_sandbox(path);
    subject = load(path);
    describe(*subject, out);
  });
  const pid_t self = getpid();
  for (std::string request; up && subject && receive_message(kAsked, request);) {
    const bool sent = answer_with([&](Out& out) { answer(*subject, request, out); });
    if (getpid() != self) _exit(0);  // a fork of the library's, come this far
    if (!sent) break;
  }
}

}  // namespace

std::unique_ptr<ApartSubject> scaler_apart(const AuditedLibrary& library) { return std::make_unique<Scaler>(library); }

std::unique_ptr<ApartLoop> loop_apart(const AuditedLibrary& library) {
  return std::make_unique<ApartLoopOfLibrary>(library);
}

ExitCode audited_main(int argc, char** argv) {
  if (argc != 4) return ExitCode::usage;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  limit_memory(Device::cpu);
  if (std::string_view(argv[2]) == "scaler")
    serve(
        argv[3], library_scaler, [](const Subject& s, Out& out) { out(s.sets_window()); }, answer_of_scaler);
  else
    serve(
        argv[3], library_loop,
        [](const Loop& loop, Out& out) {
          for (const Ability ability : kAbilities) out(loop.has(ability));
        },
        answer_of_loop);
  std::exit(0);  // the library is unloaded as by a program of the user's
}

}  // namespace ampcheck::tools
