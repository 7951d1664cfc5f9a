// SPDX-License-Identifier: Apache-2.0
// What a simulated GPU saw while a kernel ran. The kernel is called through doors that return nothing but a status, so
// the notes go by the thread that called it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "src/code.h"

namespace ampcheck {

struct LaunchNote {
  Code code = Code::none;  ///< none: no finding, only said where one of the same launch has to be explained
  std::string what;        ///< "race", "uninitialised read", ...
  std::string text;        ///< with its source lines
};

void note_launch(LaunchNote note);
/// Those of this thread since the last call.
std::vector<LaunchNote> take_launch_notes();

/// The seed of the order of warps and blocks: 0, 1, 2, 3 for the launches of a case, and again. So the relations that
/// launch twice see two orders, and a case that is run again sees the same ones.
void begin_schedules();
std::uint64_t next_schedule();

}  // namespace ampcheck
