// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include "tools/report/pager.h"

#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "tools/report/output.h"

namespace ampcheck::tools {

namespace {

/// Whether a terminal would show the end of it alone.
bool is_longer_than_the_screen(const std::string& text) {
  const char* const terminal = std::getenv("TERM");
  winsize size{};
  return ::isatty(STDOUT_FILENO) != 0 && terminal != nullptr && std::string(terminal) != "dumb" &&
         ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_row > 0 &&
         std::count(text.begin(), text.end(), '\n') >= size.ws_row;
}

}  // namespace

void page_stdout(const std::string& text) {
  constexpr int kNoSuchCommand = 127;
  const char* const chosen = std::getenv("PAGER");
  const std::string pager = chosen != nullptr ? chosen : "less";
  if (!pager.empty() && is_longer_than_the_screen(text)) {
    ::setenv("LESS", "FRX", 0);  // as git has it: colours, and no end of the page is lost
    if (std::FILE* const to = ::popen(pager.c_str(), "w")) {
      std::fwrite(text.data(), 1, text.size(), to);  // who leaves it early has seen enough
      const int status = ::pclose(to);
      if (!WIFEXITED(status) || WEXITSTATUS(status) != kNoSuchCommand) return;
    }
  }
  write_stdout(text);
}

}  // namespace ampcheck::tools
