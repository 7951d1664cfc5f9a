// SPDX-License-Identifier: Apache-2.0
// What a kernel of a library starts ends with the process that ran it, also where it left its process group: orphans
// come to this process, which ends them.
#pragma once

#include <sys/types.h>

#include <functional>
#include <string>

namespace ampcheck::tools {

/// From now on orphaned descendants become children of this process. Children that it has already are none of them: a
/// shell that became this program may have started some. Only of a program whose further children are all its own.
void adopt_orphans();

/// Starts a child that is no orphan: `start` returns its process id, or 0.
pid_t start_own_child(const std::function<pid_t()>& start);
/// That child has ended and was waited for.
void own_child_ended(pid_t child);

/// "by signal 11 (Segmentation fault)", "by itself with exit code 3", of a status of waitpid().
std::string how_it_ended(int status);

/// Ends every child of this process but its own ones, and theirs in turn. Nothing where no orphans are adopted.
void end_orphans();

}  // namespace ampcheck::tools
