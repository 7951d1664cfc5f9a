// SPDX-License-Identifier: Apache-2.0
#include "checks/train/noise.h"

#include <algorithm>

#include "checks/train/gradient_range.h"

namespace ampcheck::checks::train {

void Noise::add(Phase phase, const Sizes& sizes) {
  const auto at = static_cast<std::size_t>(phase);
  exact_[at] = std::max(exact_[at], sizes.exact.value_or(0));
  fp64_[at] = std::max(fp64_[at], sizes.fp64.value_or(0));
}

bool Noise::is(Phase phase, const Sizes& sizes) const {
  const auto at = static_cast<std::size_t>(phase);
  if (sizes.fp64) return fp64_[at] > 0 && *sizes.fp64 <= kNoiseShare * fp64_[at];
  return sizes.exact && exact_[at] > 0 && *sizes.exact <= kFp32.unit_roundoff() * exact_[at];
}

}  // namespace ampcheck::checks::train
