// SPDX-License-Identifier: Apache-2.0
#include "src/launch_notes.h"

#include <utility>

namespace ampcheck {

namespace {
std::vector<LaunchNote>& notes() {
  thread_local std::vector<LaunchNote> all;
  return all;
}
thread_local std::uint64_t launches = 0;
}  // namespace

void begin_schedules() { launches = 0; }
std::uint64_t next_schedule() { return launches++ % 4; }

void note_launch(LaunchNote note) { notes().push_back(std::move(note)); }

std::vector<LaunchNote> take_launch_notes() { return std::exchange(notes(), {}); }

}  // namespace ampcheck
