// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include "tools/mutate/command_run.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>

#include "src/error.h"
#include "src/spawn_actions.h"

extern char** environ;

namespace ampcheck::tools {

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kMostOutput = 64 << 20, kMostMessages = 4000;

/// An unnamed file that takes what a command prints.
class Sink {
 public:
  Sink() : file_(memfd_create("output of a command", MFD_CLOEXEC)) {
    if (file_ < 0) throw EnvironmentError(std::string("[mutate] no file for outputs: ") + std::strerror(errno));
  }
  ~Sink() { close(file_); }
  Sink(const Sink&) = delete;
  Sink& operator=(const Sink&) = delete;
  int file() const { return file_; }
  /// The last bytes of it.
  std::string end(std::size_t most) const {
    struct stat facts {};
    if (fstat(file_, &facts) != 0) return "";
    const auto size = static_cast<std::size_t>(facts.st_size), from = size > most ? size - most : 0;
    std::string out(size - from, '\0');
    const ssize_t got = pread(file_, out.data(), out.size(), static_cast<off_t>(from));
    out.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
    return out;
  }

 private:
  int file_;
};

pid_t start(const std::vector<std::string>& words, const std::string& folder, int out, int messages) {
  std::vector<std::string> held = words.size() == 1 ? std::vector<std::string>{"/bin/sh", "-c", words.front()} : words;
  std::vector<char*> argv;
  for (std::string& word : held) argv.push_back(word.data());
  argv.push_back(nullptr);
  SpawnActions actions;
  actions.change_folder(folder.c_str());
  actions.open(0, "/dev/null", O_RDONLY);
  actions.duplicate(out, 1);
  actions.duplicate(messages, 2);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t all, none;
  sigfillset(&all);
  sigemptyset(&none);
  posix_spawnattr_setpgroup(&attributes, 0);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &all);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  pid_t child = 0;
  const int failed = posix_spawnp(&child, argv.front(), actions.get(), &attributes, argv.data(), environ);
  posix_spawnattr_destroy(&attributes);
  if (failed != 0)
    throw EnvironmentError("[mutate] got the command '" + held.front() +
                           "', which cannot be started: " + std::strerror(failed));
  return child;
}

}  // namespace

CommandRun run_command(const std::vector<std::string>& words, const std::string& folder, double seconds,
                       const std::atomic<bool>* cancel) {
  const Sink out, messages;
  const pid_t child = start(words, folder, out.file(), messages.file());
  const auto deadline =
      Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  CommandRun run;
  int status = 0;
  while (waitpid(child, &status, WNOHANG) == 0) {
    const bool unwanted = cancel != nullptr && cancel->load();
    if (unwanted || Clock::now() > deadline) {
      run.timed_out = !unwanted;
      kill(-child, SIGKILL);
      waitpid(child, &status, 0);
      break;
    }
    usleep(5000);
  }
  kill(-child, SIGKILL);  // what it left behind
  run.code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  run.out = out.end(kMostOutput);
  run.messages = messages.end(kMostMessages);
  return run;
}

}  // namespace ampcheck::tools
