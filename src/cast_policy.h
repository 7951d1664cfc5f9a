// SPDX-License-Identifier: Apache-2.0
// What autocast does with the arguments of an op: torch's words.
#pragma once

#include <cstdint>

namespace ampcheck {

enum class CastPolicy : std::uint8_t {
  lower_precision_fp,  ///< every eligible argument in the region's dtype
  fp32,                ///< every eligible argument in fp32
  fp32_set_opt_dtype,  ///< arguments as they are; dtype=fp32 if not given and the first argument is eligible
  fp32_append_dtype,   ///< arguments as they are; the result in fp32 (the norms)
  promote,             ///< the widest of fp32 and the region's dtype
  banned,              ///< an error
  unlisted             ///< nothing: runs in its arguments' dtypes, but what it is made of may be listed
};

}  // namespace ampcheck
