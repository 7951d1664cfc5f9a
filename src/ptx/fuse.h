// SPDX-License-Identifier: Apache-2.0
// mul and add without a rounding modifier may become one fma: PTX leaves that to the assembler of a GPU, which does it
// for halves and bfloats of an ordinary build. Device ptx does it or not, as it is asked: what differs between both is
// what a kernel leaves open.
#pragma once

#include "src/ptx/text.h"

namespace ampcheck::ptx {

/// Words of an fma whose product or sum is negated; no text can say them.
inline constexpr const char *kMinusSum = "-c", *kMinusProduct = "-ab";

/// Each add or sub without rounding whose operand is the product of such a mul of the same block becomes an fma; where
/// both operands are, that of the first. Returns how many.
int fuse_products(Module& module);

}  // namespace ampcheck::ptx
