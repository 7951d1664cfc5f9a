// SPDX-License-Identifier: Apache-2.0
#include "src/launch_time.h"

#include <utility>

namespace ampcheck {

namespace {

thread_local std::optional<double> last;

}  // namespace

void note_launch_time(double seconds) { last = seconds; }
std::optional<double> take_launch_time() { return std::exchange(last, std::nullopt); }

}  // namespace ampcheck
