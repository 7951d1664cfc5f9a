// SPDX-License-Identifier: Apache-2.0
#include "tools/commands/library_child.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "src/error.h"
#include "tools/report/output.h"

namespace ampcheck::tools {

namespace {

int said_to = -1;  ///< where a child says that the program has ended, and how

}  // namespace

void end_in_child(ExitCode code) {
  const auto said = static_cast<unsigned char>(code);
  if (said_to < 0) return;
  while (write(said_to, &said, 1) < 0 && errno == EINTR) continue;
}

void go_on_in_child(const std::string& verb, const std::string& path) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) throw Error("[" + verb + "] no pipe for '" + path + "'");
  const pid_t parent = getpid(), child = fork();
  if (child < 0) throw Error("[" + verb + "] no process for '" + path + "'");
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(static_cast<int>(ExitCode::internal));  // it ended before that
    close(ends[0]);
    said_to = ends[1];
    return;
  }
  close(ends[1]);
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
  fcntl(ends[0], F_SETFL, O_NONBLOCK);  // a process that the library started may hold the other end
  unsigned char said = 0;
  if (WIFEXITED(status) && read(ends[0], &said, 1) == 1 && said == WEXITSTATUS(status)) _exit(said);
  if (WIFEXITED(status))
    write_stderr(fmt::format("ampcheck: [{}] '{}' ended its process by itself with exit code {}\n", verb, path,
                             WEXITSTATUS(status)));
  else
    write_stderr(fmt::format("ampcheck: [{}] '{}' crashed: signal {} ({})\n", verb, path, WTERMSIG(status),
                             strsignal(WTERMSIG(status))));
  _exit(static_cast<int>(ExitCode::findings));
}

}  // namespace ampcheck::tools
