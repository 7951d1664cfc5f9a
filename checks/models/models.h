// SPDX-License-Identifier: Apache-2.0
// One training step of each net, forward: puts the calls and the loss on the tape.
#pragma once

#include "checks/models/real_data.h"
#include "checks/models/tape.h"

namespace ampcheck::checks::models {

/// Eight digits, the first of the file.
void digits_model(Tape& tape, const Digits& digits);
/// Four passages of 16 characters, each to predict the next one.
void text_model(Tape& tape, const Text& text);

}  // namespace ampcheck::checks::models
