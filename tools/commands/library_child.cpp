// SPDX-License-Identifier: Apache-2.0
#include "tools/commands/library_child.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "src/error.h"
#include "tools/report/exit_code.h"
#include "tools/report/output.h"

namespace ampcheck::tools {

void go_on_in_child(const std::string& verb, const std::string& path) {
  const pid_t parent = getpid(), child = fork();
  if (child < 0) throw Error("[" + verb + "] no process for '" + path + "'");
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(static_cast<int>(ExitCode::internal));  // it ended before that
    return;
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
  if (WIFEXITED(status)) _exit(WEXITSTATUS(status));
  write_stderr(fmt::format("ampcheck: [{}] '{}' crashed: signal {} ({})\n", verb, path, WTERMSIG(status),
                           strsignal(WTERMSIG(status))));
  _exit(static_cast<int>(ExitCode::findings));
}

}  // namespace ampcheck::tools
