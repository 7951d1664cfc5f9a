// SPDX-License-Identifier: Apache-2.0
// Which register of which lane holds which element of a matrix, for the shadow in fp64.
#pragma once

#include <cstdint>
#include <vector>

#include "src/ptx/lanes.h"

namespace ampcheck::ptx {

struct MatrixPlace {
  Slot slot = kNone;
  std::uint8_t lane = 0, part = 0;  ///< part: the upper half of a register
};

/// d = a b + c by rows; m is 0 for numbers that have no shadow (whole ones, and those of 8 bits).
struct ProductPlaces {
  int m = 0, n = 0, k = 0;
  NumberFormat factor = NumberFormat::half, sum = NumberFormat::single;
  std::vector<MatrixPlace> a, b, c, d;
};
ProductPlaces mma_places(const Program& program, const Instruction& in);
ProductPlaces wmma_places(const Program& program, const Instruction& in);

/// An element that wmma loads or stores, and where it lies in memory.
struct FragmentPlace : MatrixPlace {
  std::uint64_t address = 0;
};
/// `bytes`: of an element. Where an element stands in several registers, each of them is there.
std::vector<FragmentPlace> fragment_places(const Warp& w, const Instruction& in, std::uint32_t& bytes);

}  // namespace ampcheck::ptx
