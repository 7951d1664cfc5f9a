// SPDX-License-Identifier: Apache-2.0
// One training step of each net, forward: puts the calls and the loss on the tape.
#pragma once

#include "checks/models/real_data.h"
#include "checks/models/tape.h"

namespace ampcheck::checks::models {

/// As many images as there are.
void digits_model(Tape& tape, const Digits& digits);
void channel_model(Tape& tape, const Digits& digits);

inline constexpr std::int64_t kPassage = 16;  ///< characters
/// Passages of kPassage characters, one after the other, each to predict the next character.
struct Passages {
  std::vector<double> tokens, next, places;
};
/// Adds passage `at` of `of` that are spread evenly over the text. Error for a text too short for them.
void add_passage(Passages& passages, const Text& text, std::int64_t at, std::int64_t of);
void text_model(Tape& tape, const Passages& passages, std::int64_t vocabulary);

}  // namespace ampcheck::checks::models
