// SPDX-License-Identifier: Apache-2.0
// What a process that is started finds open. Each step may find no memory: a process without one of them would read
// from nowhere, and be blamed for it.
#pragma once

#include <spawn.h>

#include <cerrno>
#include <cstring>
#include <new>
#include <string>

#include "src/error.h"

namespace ampcheck {

class SpawnActions {
 public:
  /// std::bad_alloc, as each member.
  SpawnActions() { checked(posix_spawn_file_actions_init(&all_)); }
  ~SpawnActions() { posix_spawn_file_actions_destroy(&all_); }
  SpawnActions(const SpawnActions&) = delete;
  SpawnActions& operator=(const SpawnActions&) = delete;

  void duplicate(int file, int number) { checked(posix_spawn_file_actions_adddup2(&all_, file, number)); }
  /// `mode`: of a file that O_CREAT makes.
  void open(int number, const char* path, int flags, mode_t mode = 0) {
    checked(posix_spawn_file_actions_addopen(&all_, number, path, flags, mode));
  }
  void change_folder(const char* path) { checked(posix_spawn_file_actions_addchdir_np(&all_, path)); }
  const posix_spawn_file_actions_t* get() const { return &all_; }

 private:
  static void checked(int error) {
    if (error == ENOMEM) throw std::bad_alloc();
    if (error != 0) throw EnvironmentError(std::string("[process] cannot be started: ") + std::strerror(error));
  }

  posix_spawn_file_actions_t all_;
};

}  // namespace ampcheck
