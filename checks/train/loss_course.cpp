// SPDX-License-Identifier: Apache-2.0
#include "checks/train/loss_course.h"

#include <algorithm>
#include <cmath>

namespace ampcheck::checks::train {

namespace {

bool above(std::span<const double> losses, double loss) { return !(loss <= kLeavesAt * std::fabs(losses.front())); }

}  // namespace

int first_above(std::span<const double> losses) {
  const auto first = std::find_if(losses.begin(), losses.end(), [&](double loss) { return above(losses, loss); });
  return first == losses.end() ? -1 : static_cast<int>(first - losses.begin());
}

bool come_back(std::span<const double> losses, int at) {
  const std::span<const double> from = losses.subspan(static_cast<std::size_t>(at));
  return std::all_of(from.begin(), from.end(), [](double loss) { return std::isfinite(loss); }) &&
         2 * std::count_if(from.begin(), from.end(), [&](double loss) { return above(losses, loss); }) <=
             std::ssize(from);
}

int leaves(std::span<const double> losses) {
  const int at = first_above(losses);
  return at >= 0 && !come_back(losses, at) ? at : -1;
}

}  // namespace ampcheck::checks::train
