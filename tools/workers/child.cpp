// SPDX-License-Identifier: Apache-2.0
#include "tools/workers/child.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fmt/format.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include "checks/case/launch.h"
#include "src/error.h"
#include "tools/report/output.h"
#include "tools/workers/limits.h"

extern char** environ;

namespace ampcheck::tools {

namespace {

constexpr const char* kMark = "AMPCHECK_CHILD";
constexpr int kDone = 5;  ///< descriptor on which the child says how it ends
constexpr char kFinished = 'f', kStuck = 's';

void say(char what) {
  while (write(kDone, &what, 1) < 0 && errno == EINTR) {
  }
}

/// Ends this process, the child, where one call of a kernel lasts longer than that: the kernel may hear nothing else.
void watch_kernels(double timeout) {
  std::thread([timeout] {
    while (checks::seconds_in_launch() < timeout) std::this_thread::sleep_for(std::chrono::milliseconds(100));
    say(kStuck);
    kill(getpid(), SIGKILL);
  }).detach();
}

volatile std::sig_atomic_t running = 0;  ///< the child
void pass_on(int signal) { kill(running, signal); }

std::vector<std::string> own_command_line() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  std::vector<std::string> words;
  for (std::size_t at = 0; at < text.size(); at += words.back().size() + 1) words.emplace_back(text.c_str() + at);
  return words;
}

pid_t start(int done) {
  std::vector<std::string> words = own_command_line();
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, done, kDone);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t all;
  sigfillset(&all);
  posix_spawnattr_setsigdefault(&attributes, &all);  // a shell starts background jobs with SIGINT ignored
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF);
  setenv(kMark, std::to_string(getpid()).c_str(), 1);
  pid_t child = 0;
  const int failed = posix_spawn(&child, "/proc/self/exe", &actions, &attributes, argv.data(), environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  unsetenv(kMark);
  if (failed != 0) throw EnvironmentError(std::string("[child] cannot be started: ") + std::strerror(failed));
  return child;
}

}  // namespace

bool is_child() {
  const char* const parent = std::getenv(kMark);
  return parent != nullptr && parent == std::to_string(getppid());
}

std::optional<ExitCode> run_in_child(const std::vector<const checks::OpDef*>& ops, const IsolationOptions& options,
                                     Device device) {
  if (ops.empty() || !options.isolation) return std::nullopt;
  if (is_child()) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);  // nobody would hear its answer
    limit_memory(device);
    watch_kernels(options.timeout);
    return std::nullopt;
  }
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) throw EnvironmentError(std::string("[child] no pipe: ") + std::strerror(errno));
  const int high = fcntl(ends[1], F_DUPFD_CLOEXEC, 64);  // not the number that it goes to
  close(ends[1]);
  const pid_t child = start(high);
  close(high);
  running = child;  // whoever is asked to end, the child ends first
  std::signal(SIGINT, pass_on);
  std::signal(SIGTERM, pass_on);
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  char said = 0;
  fcntl(ends[0], F_SETFL, O_NONBLOCK);  // a fork of the kernel's may hold the pipe open
  if (read(ends[0], &said, 1) != 1) said = 0;
  close(ends[0]);
  if (said == kFinished && WIFEXITED(status)) return static_cast<ExitCode>(WEXITSTATUS(status));
  if (WIFSIGNALED(status) && (WTERMSIG(status) == SIGINT || WTERMSIG(status) == SIGTERM)) {
    std::signal(WTERMSIG(status), SIG_DFL);
    raise(WTERMSIG(status));
  }
  const std::string library = ops.front()->plugin, pinned = "; 'ampcheck check " + library + "' pins it to a case\n";
  if (said == kStuck) {
    write_stderr(fmt::format("ampcheck: TIMEOUT (AC502): a kernel of '{}' did not return in {:g} s (--timeout){}",
                             library, options.timeout, pinned));
    return ExitCode::findings;
  }
  const std::string how =
      WIFSIGNALED(status) ? "by signal " + std::to_string(WTERMSIG(status)) + " (" + strsignal(WTERMSIG(status)) + ")"
                          : "by itself with exit code " + std::to_string(WEXITSTATUS(status));
  write_stderr("ampcheck: CRASH (AC501): a kernel of '" + library + "' ended its process " + how + pinned);
  return ExitCode::findings;
}

void child_is_done() {
  if (std::getenv(kMark) == nullptr || fcntl(kDone, F_GETFD) < 0) return;
  say(kFinished);
}

}  // namespace ampcheck::tools
