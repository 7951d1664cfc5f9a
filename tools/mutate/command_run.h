// SPDX-License-Identifier: Apache-2.0
// A command in a process group of its own, with a limit of time; it ends with whatever it started.
#pragma once

#include <atomic>
#include <string>
#include <vector>

namespace ampcheck::tools {

struct CommandRun {
  int code = -1;           ///< exit code; 128 + n by signal n
  bool timed_out = false;  ///< it took too long, and was killed
  std::string out;         ///< what it printed on standard output
  std::string messages;    ///< and on standard error: the end of it
};

/// Runs words[0] with its arguments in `folder`; a single word is a line for a shell. `seconds`: how long it may take.
/// Once `cancel` is set, it is killed. EnvironmentError if it cannot be started.
CommandRun run_command(const std::vector<std::string>& words, const std::string& folder, double seconds,
                       const std::atomic<bool>* cancel);

}  // namespace ampcheck::tools
