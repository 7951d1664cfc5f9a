// SPDX-License-Identifier: Apache-2.0
// How long a kernel took that ran in another process: whoever called it sees the way there and back as well.
#pragma once

#include <optional>

namespace ampcheck {

/// Seconds of the call that this thread just made.
void note_launch_time(double seconds);
/// Those of the last call of this thread since this was asked; nothing of a kernel that ran here.
std::optional<double> take_launch_time();

}  // namespace ampcheck
