// SPDX-License-Identifier: Apache-2.0
// Two runs may not write into one file.
#pragma once

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <cerrno>

namespace ampcheck {

/// Takes a regular file for this process until it is closed. False where another one has it; a file system that knows
/// no locks takes none.
inline bool lock_file(int file) {
  struct stat facts {};
  if (::fstat(file, &facts) != 0 || !S_ISREG(facts.st_mode)) return true;
  return ::flock(file, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK;
}

}  // namespace ampcheck
