// SPDX-License-Identifier: Apache-2.0
// Kills the program at many moments, and lets it go on from what it left.
#pragma once

#include <string>

namespace ampcheck::testing {

/// Kills a check with a run file until `kills` of them met it at work; each that comes to its end must leave the bytes
/// of one that was never killed. Returns how often it came to its end.
int expect_checks_go_on(int kills);
/// The same of a training that goes on from a checkpoint, with its trace and its own checkpoint.
int expect_trainings_go_on(int kills);

}  // namespace ampcheck::testing
