// SPDX-License-Identifier: Apache-2.0
#include "tools/workers/child.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
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
#include "checks/doors/loading.h"
#include "src/error.h"
#include "src/spawn_actions.h"
#include "tools/report/output.h"
#include "tools/workers/limits.h"
#include "tools/workers/orphans.h"
#include "tools/workers/runner.h"

extern char** environ;

namespace ampcheck::tools {

namespace {

using Clock = std::chrono::steady_clock;

constexpr const char* kMark = "AMPCHECK_CHILD";
constexpr int kDone = 5;  ///< descriptor on which the child says how far it is, a letter each
constexpr char kLoads = 'l', kLoaded = 'o', kRunsKernels = 'k', kStuck = 's',
               kApart = 'a',  ///< behind kLoads: another process loads the library
    kFinished = 'f',          ///< with the exit code behind it
    kEndsAlike = 'd';         ///< what a library did ended that other process, and this one ends in the same way; the
                              ///< library's path behind it

void say(std::string_view what) {
  while (write(kDone, what.data(), what.size()) < 0 && errno == EINTR) {
  }
}

std::atomic<bool> counts_kernels{false};
std::atomic<Clock::rep> loading_since{0};  ///< 0: nothing is being loaded

/// Ends this process, the child, where loading or one call of a kernel lasts too long: it may hear nothing else.
void watch(double timeout) {
  std::thread([timeout] {
    const auto patience = std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(timeout)).count();
    const auto stuck = [&] {
      const Clock::rep since = loading_since;
      return (counts_kernels && checks::seconds_in_launch() >= timeout) ||
             (since != 0 && Clock::now().time_since_epoch().count() - since >= patience);
    };
    while (!stuck()) std::this_thread::sleep_for(std::chrono::milliseconds(100));
    say(std::string(1, kStuck));
    kill(getpid(), SIGKILL);
  }).detach();
}

volatile std::sig_atomic_t running = 0;  ///< the child
void pass_on(int signal) { kill(running, signal); }

std::vector<std::string> own_command_line() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  if (!file) throw EnvironmentError(std::string("[child] cannot open /proc/self/cmdline: ") + std::strerror(errno));
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
  SpawnActions actions;
  actions.duplicate(done, kDone);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t all;
  sigfillset(&all);
  sigdelset(&all, SIGHUP);                           // nohup has it ignored, and that holds for the child
  posix_spawnattr_setsigdefault(&attributes, &all);  // a shell starts background jobs with SIGINT ignored
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF);
  setenv(kMark, std::to_string(getpid()).c_str(), 1);
  pid_t child = 0;
  const int failed = posix_spawn(&child, "/proc/self/exe", actions.get(), &attributes, argv.data(), environ);
  posix_spawnattr_destroy(&attributes);
  unsetenv(kMark);
  if (failed != 0) throw EnvironmentError(std::string("[child] cannot be started: ") + std::strerror(failed));
  return child;
}

/// Passes the signals that ask a program to end on to the child: whoever is asked, the child ends first.
void pass_signals_on(pid_t child) {
  running = child;
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1}) {
    struct sigaction now {};
    if (sigaction(signal, nullptr, &now) == 0 && now.sa_handler == SIG_IGN && signal == SIGHUP) continue;
    now.sa_handler = pass_on;
    now.sa_flags = 0;
    sigaction(signal, &now, nullptr);
  }
}

/// What the child said and how it ended. Once it is finished, it may take `timeout` seconds to unload what it loaded.
struct Ended {
  std::string said;
  int status = 0;
  bool unloading_took_too_long = false;
  std::string alike;  ///< the library of kEndsAlike, which is no part of `said`

  bool finished() const { return said.size() > 1 && said[said.size() - 2] == kFinished; }
  char last() const { return said.empty() ? '\0' : said.back(); }
  /// Whether its end is that of its own work: no library was in the process, and none ended it.
  bool is_its_own() const {
    return !finished() && last() != kStuck && alike.empty() &&
           std::ranges::count(said, kLoads) == std::ranges::count(said, kApart);
  }

  void take_end_alike() {
    for (std::size_t at = 0; at < said.size(); at += said[at] == kFinished ? 2 : 1) {
      if (said[at] != kEndsAlike) continue;
      alike = said.substr(at + 1);
      said.resize(at);
    }
  }
};

Ended wait_for(pid_t child, int said, double timeout) {
  Ended out;
  std::optional<Clock::time_point> deadline;
  fcntl(said, F_SETFL, O_NONBLOCK);
  const auto read_all = [&] {
    char buffer[64];
    for (ssize_t got = 0; (got = read(said, buffer, sizeof buffer)) > 0;)
      out.said.append(buffer, static_cast<std::size_t>(got));
    if (out.finished() && !deadline)
      deadline = Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(timeout));
  };
  for (;;) {
    pollfd at = {said, POLLIN, 0};
    poll(&at, 1, 20);  // in slices: a fork of the library's may hold the pipe open
    read_all();
    const pid_t ended = waitpid(child, &out.status, WNOHANG);
    if (ended == child) break;
    if ((at.revents & POLLHUP) != 0) {  // nobody can say anything more: it ends, or has closed its descriptors
      while (waitpid(child, &out.status, 0) < 0 && errno == EINTR) {
      }
      break;
    }
    if (deadline && Clock::now() > *deadline) {
      out.unloading_took_too_long = true;
      kill(child, SIGKILL);
      waitpid(child, &out.status, 0);
      break;
    }
  }
  read_all();
  out.take_end_alike();
  return out;
}

/// What is wrong with a library whose process did not end as its command did.
void explain_end(const Ended& ended, double timeout, ChildEnd& out) {
  const std::string pinned = "; 'ampcheck check " + out.library + "' pins it to a case";
  const bool runs = ended.said.find(kRunsKernels) != std::string::npos;
  if (ended.finished()) {
    out.found = ended.unloading_took_too_long ? Code::ac502 : Code::ac501;
    out.why =
        ended.unloading_took_too_long
            ? fmt::format("'{}' was not unloaded in {:g} s (--timeout)", out.library, timeout)
            : fmt::format("'{}' ended its process {} as it was unloaded", out.library, how_it_ended(ended.status));
  } else if (ended.last() == kStuck) {
    out.found = Code::ac502;
    out.why = runs
                  ? fmt::format("a kernel of '{}' did not return in {:g} s (--timeout){}", out.library, timeout, pinned)
                  : fmt::format(
                        "'{}' was not loaded in {:g} s (--timeout): its initialisers or its description do "
                        "not return",
                        out.library, timeout);
  } else {
    out.found = Code::ac501;
    const std::string how = how_it_ended(ended.status);
    out.why = runs ? fmt::format("a kernel of '{}' ended its process {}{}", out.library, how, pinned)
              : ended.last() == kLoads || ended.last() == kApart
                  ? fmt::format("'{}' ended its process {} as it was loaded", out.library, how)
                  : fmt::format("the process that had loaded '{}' ended {}, outside of its kernels", out.library, how);
  }
}

}  // namespace

bool is_child() {
  const char* const parent = std::getenv(kMark);
  return parent != nullptr && parent == std::to_string(getppid());
}

void become_child(double timeout, std::function<std::optional<checks::OutsideDescription>(const std::string&)> outside,
                  std::function<void(const std::string&, std::vector<checks::OpDef>&)> kernels) {
  if (!is_child()) return;
  prctl(PR_SET_PDEATHSIG, SIGKILL);  // nobody would hear its answer
  fcntl(kDone, F_SETFD, FD_CLOEXEC);
  adopt_orphans();
  checks::watch_loading({.before =
                             [](const std::string&) {
                               say(std::string(1, kLoads));
                               loading_since = Clock::now().time_since_epoch().count();
                             },
                         .after =
                             [](const std::string& path, const std::string& left) {
                               loading_since = 0;
                               say(std::string(1, kLoaded));
                               if (!left.empty())
                                 write_stderr("ampcheck: loading '" + path + "' left " + left + "; it was put back\n");
                             },
                         .outside =
                             [outside = std::move(outside)](const std::string& path) {
                               std::optional<checks::OutsideDescription> out;
                               if (!outside) return out;
                               say(std::string(1, kApart));
                               out = outside(path);
                               if (!out) say(std::string(1, kLoads));  // here
                               return out;
                             },
                         .kernels = std::move(kernels)});
  KernelRunner::before_ending_alike([](const std::string& library) { say(kEndsAlike + library); });
  watch(timeout);
}

ChildEnd run_in_child(const std::string& library, double timeout) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) throw EnvironmentError(std::string("[child] no pipe: ") + std::strerror(errno));
  const int high = fcntl(ends[1], F_DUPFD_CLOEXEC, 64);  // not the number that it goes to
  close(ends[1]);
  adopt_orphans();
  const pid_t child = start_own_child([high] { return start(high); });
  close(high);
  pass_signals_on(child);
  const Ended ended = wait_for(child, ends[0], timeout);
  close(ends[0]);
  own_child_ended(child);
  end_orphans();
  if (!ended.finished() && ended.last() != kStuck && WIFSIGNALED(ended.status))
    for (const int asked : {SIGINT, SIGTERM, SIGHUP, SIGUSR1})
      if (WTERMSIG(ended.status) == asked) {
        std::signal(asked, SIG_DFL);
        raise(asked);
      }
  ChildEnd out{.code = ExitCode::findings,
               .found = Code::none,
               .reported = ended.finished(),
               .library = ended.alike.empty() ? library : ended.alike,
               .why = {}};
  if (ended.is_its_own()) {
    out.reported = true;
    out.code = ExitCode::environment;
    if (WIFEXITED(ended.status) && WEXITSTATUS(ended.status) != 0)  // it has said why
      out.code = static_cast<ExitCode>(WEXITSTATUS(ended.status));
    else
      write_stderr("ampcheck: the process of this command ended " + how_it_ended(ended.status) +
                   ", and no library was at work; is there enough memory?\n");
    return out;
  }
  const int code = ended.finished() ? static_cast<unsigned char>(ended.said.back()) : -1;
  if (code >= 0) out.code = static_cast<ExitCode>(code);
  const bool as_said = code >= 0 && WIFEXITED(ended.status) && WEXITSTATUS(ended.status) == code;
  if (as_said) return out;
  explain_end(ended, timeout, out);
  out.code = worse(out.code, ExitCode::findings);
  return out;
}

void run_kernels_here(const std::vector<const checks::OpDef*>& ops, const IsolationOptions& options, Device device) {
  if (ops.empty() || !options.isolation || !is_child()) return;
  limit_memory(device);
  counts_kernels = true;
  say(std::string(1, kRunsKernels));
}

void child_is_done(ExitCode code) {
  if (!is_child() || fcntl(kDone, F_GETFD) < 0) return;
  const char text[] = {kFinished, static_cast<char>(code)};
  say({text, sizeof text});
}

}  // namespace ampcheck::tools
