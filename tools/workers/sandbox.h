// SPDX-License-Identifier: Apache-2.0
// A process that runs a library's code and reads nothing but libraries, writes nothing, and has no network: Landlock
// for files, TCP ports and signals, seccomp for sockets and for ways around both. Linux 5.13 or later.
#pragma once

#include <string>

namespace ampcheck::tools {

/// EnvironmentError where this system has no sandbox.
void require_sandbox();

/// From now on this process, and all that it starts: reads the system's programs and libraries, the folders of
/// LD_LIBRARY_PATH, `library` (of a TOML file the library that it names, too) and the shared libraries beside it;
/// writes to /dev/null and to what is open already; opens no socket. Its environment holds paths, numbers of threads
/// and ampcheck's own variables alone. For a process of one thread. EnvironmentError if that cannot be had.
void enter_sandbox(const std::string& library);

}  // namespace ampcheck::tools
