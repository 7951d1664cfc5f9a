// SPDX-License-Identifier: Apache-2.0
#include "tools/commands/audited_process.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <utility>

#include "src/spawn_actions.h"
#include "tools/workers/message.h"
#include "tools/workers/orphans.h"

extern char** environ;

namespace ampcheck::tools::audited {

namespace {

constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 30;  ///< of a message: a loop hands out its state

}  // namespace

Process::Process(const char* kind, const AuditedLibrary& library) : library_(library) {
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
  if (failed != 0) throw EnvironmentError(std::string("[audit] a process cannot be started: ") + std::strerror(failed));
}

Process::~Process() {
  end();
  close(from_);
}

void Process::send(const std::string& request, const When& when) {
  if (!send_message(to_, request)) ended(when);
}

void Process::unload() {
  const auto when = [] { return std::string("as it was unloaded"); };
  close(std::exchange(to_, -1));
  const auto deadline = after_timeout();
  while (!waited(WNOHANG)) {
    if (Clock::now() > deadline) too_late(when);
    usleep(1000);
  }
  if (!WIFEXITED(status_) || WEXITSTATUS(status_) != 0) ended(when);
}

Process::Clock::time_point Process::after_timeout() const {
  return Clock::now() + std::chrono::microseconds(static_cast<std::int64_t>(1e6 * library_.timeout));
}

/// Whether one is here as a whole; its size.
bool Process::has_message(std::uint64_t& size, const When& when) const {
  const std::size_t here = received_.size() - next_;
  if (here < sizeof size) return false;
  std::memcpy(&size, received_.data() + next_, sizeof size);
  if (size > kMostBytes) unreadable(when);
  return here - sizeof size >= size;
}

/// In slices: a process that the library started may hold the pipe open.
std::string Process::receive(const When& when) {
  constexpr int kSlice = 50;  // milliseconds
  const auto deadline = after_timeout();
  std::uint64_t size = 0;
  for (char buffer[1 << 16]; !has_message(size, when);) {
    const ssize_t got = read(from_, buffer, sizeof buffer);
    if (got > 0) {
      received_.erase(0, std::exchange(next_, 0));
      received_.append(buffer, static_cast<std::size_t>(got));
      continue;
    }
    if (got == 0 || waited(WNOHANG)) ended(when);
    if (Clock::now() > deadline) too_late(when);
    pollfd at = {from_, POLLIN, 0};
    poll(&at, 1, kSlice);
  }
  std::string out = received_.substr(next_ + sizeof size, size);
  next_ += sizeof size + size;
  return out;
}

bool Process::waited(int how) {
  if (process_ == 0) return true;
  if (waitpid(process_, &status_, how) != process_) return false;
  kill(-process_, SIGKILL);  // what it left behind
  own_child_ended(std::exchange(process_, 0));
  return true;
}

void Process::end() {
  if (to_ >= 0) close(std::exchange(to_, -1));
  if (process_ == 0) return;
  kill(-process_, SIGKILL);
  kill(process_, SIGKILL);  // it may not have its group yet
  while (!waited(0) && errno == EINTR) continue;
}

void Process::ended(const When& when) {
  constexpr auto kMercy = std::chrono::seconds(1);
  const auto deadline = Clock::now() + kMercy;
  while (!waited(WNOHANG)) {  // it may have closed its descriptors, and go on
    if (Clock::now() > deadline)
      throw ProcessEnded(fmt::format("'{}' closed what is not its own {}", library_.path, when()));
    usleep(1000);
  }
  throw ProcessEnded(fmt::format("'{}' ended its process {} {}", library_.path, how_it_ended(status_), when()));
}

void Process::too_late(const When& when) const {
  throw ProcessEnded(fmt::format("'{}' took more than {:g} s (--timeout) {}", library_.path, library_.timeout, when()));
}

}  // namespace ampcheck::tools::audited
