// SPDX-License-Identifier: Apache-2.0
// One tile of a product: kTileRows rows of a by two vectors of columns of b, block after block. Between multiply.cpp,
// which packs matrices, and the code of each width (tile_lanes.h).
#pragma once

#include <cstdint>

#include "src/tensor_core/instruction.h"

namespace ampcheck::tensor_core {

inline constexpr int kTileRows = 4;

/// Packed values of one panel of rows of a (kTileRows of them) or columns of b (two vectors of them), k outermost. What
/// no fast way takes stands there as zero, and `odd` says so.
struct PanelView {
  const float* values = nullptr;
  const std::int16_t* exponents = nullptr;  ///< of a zero: Settings::zero_exponent
  const std::uint8_t* odd = nullptr;        ///< of each block: not for the fast way
};

struct Settings {
  Rule::Result result = Rule::Result::truncated;
  int fraction = 25;
  int least_exponent = -133;
  int zero_exponent = 0;        ///< of c = 0, and of zeros in the panels
  int c_least_exponent = -126;  ///< of subnormal c
  int products = 16;            ///< of a block: 4, 8, 16 or 32
};

/// Operands whose exponents are outside are odd: with these, no product, and no scale of one, leaves fp32's range.
inline constexpr int kLeastOperand = -50, kLargestOperand = 50;
/// A zero takes no part in the search for the largest exponent.
inline constexpr int kNoExponent = -8000;

/// Does blocks begin, begin + 1, ... of the tile c, rows `stride` apart, and stops before `end` at one that needs the
/// reference: an odd block, c that is not finite, a subnormal result. Returns where it stopped.
using TileFunction = std::int64_t (*)(const Settings& settings, const PanelView& a, const PanelView& b,
                                      std::int64_t begin, std::int64_t end, float* c, std::int64_t stride);

std::int64_t tile_of_8(const Settings& settings, const PanelView& a, const PanelView& b, std::int64_t begin,
                       std::int64_t end, float* c, std::int64_t stride);
std::int64_t tile_of_16(const Settings& settings, const PanelView& a, const PanelView& b, std::int64_t begin,
                        std::int64_t end, float* c, std::int64_t stride);
std::int64_t tile_of_16_in_parts(const Settings& settings, const PanelView& a, const PanelView& b, std::int64_t begin,
                                 std::int64_t end, float* c, std::int64_t stride);

}  // namespace ampcheck::tensor_core
