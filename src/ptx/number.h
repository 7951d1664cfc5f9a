// SPDX-License-Identifier: Apache-2.0
// What an instruction does to floats, for the shadow in fp64 (src/ptx/shades.h): told from its words alone.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace ampcheck::ptx {

enum class NumberOp : std::uint8_t {
  none,  ///< no floats come out, or what comes out starts anew
  add,
  sub,
  mul,
  div,
  fma,
  fma_minus_sum,      ///< a b - c
  fma_minus_product,  ///< c - a b
  minimum,
  maximum,
  neg,
  abs,
  sqrt,
  rcp,
  rsqrt,
  ex2,
  lg2,
  sin,
  cos,
  tanh,
  copysign,
  convert,
  move,
  pack,
  unpack,
  choose,
  shuffle,
  load,
  store,
  atomic_add,
  matrix,   ///< a fragment by ldmatrix
  product,  ///< mma
  wmma_load,
  wmma_store,
  wmma_product
};

enum class NumberFormat : std::uint8_t { none, single, half, bfloat, wide };

struct Number {
  NumberOp op = NumberOp::none;
  NumberFormat result = NumberFormat::none, operand = NumberFormat::none;
  bool pair = false;  ///< two of 16 bits in a register
  bool saturates = false, relu = false;
};

Number number_of(const std::vector<std::string>& words);

}  // namespace ampcheck::ptx
