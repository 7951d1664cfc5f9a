// SPDX-License-Identifier: Apache-2.0
// Whether losses leave where they began and stay there.
#pragma once

#include <span>

namespace ampcheck::checks::train {

/// Higher than this many times the first loss, it has left: a run that begins at chance cannot be so wrong by chance.
inline constexpr double kLeavesAt = 3;

/// The first of them that is not finite or has left; -1: none.
int first_above(std::span<const double> losses);
/// From there on all are finite, and most have not left.
bool come_back(std::span<const double> losses, int at);
/// The first of them that has left where most of those behind it have too; -1: none, or they come back.
int leaves(std::span<const double> losses);

}  // namespace ampcheck::checks::train
