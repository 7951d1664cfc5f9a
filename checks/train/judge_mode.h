// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace ampcheck::checks::train {

/// Which calls are judged.
enum class JudgeMode : std::uint8_t {
  none,
  sampled,  ///< those of steps 1, 2, 4, 8, ..., of one micro-batch; and whose local error has grown beyond the judged
            ///< ones'. Of the steps as a whole the first 24, one in seven, and where the loss scale changes
  all,
};

}  // namespace ampcheck::checks::train
