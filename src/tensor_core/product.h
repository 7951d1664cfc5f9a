// SPDX-License-Identifier: Apache-2.0
// Matrix products made of tensor-core instructions, in a declared order over k.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "src/tensor_core/instruction.h"

namespace ampcheck::tensor_core {

/// The order over k. k is cut into `split` runs of whole instructions, as even as they can be, the longer ones first. A
/// run is a chain of instructions, k ascending: d of one is c of the next. The first run begins at the product's c, the
/// others at 0, and the sums of the runs are added one after the other, to nearest, in the output type, outside of the
/// core.
struct Order {
  int split = 1;
  /// After so many instructions a chain is added to the run's sum, to nearest, outside of the core, and the next begins
  /// at 0; 0: never. Kernels of 8 bits on Hopper do so, every four instructions in CUTLASS.
  int promote = 0;
  bool operator==(const Order&) const = default;
};

struct Product {
  Instruction instruction;
  Order order;
};

/// A run or a chain within it: instructions [begin, end); `fresh`: it begins at 0 and is added to what is there.
struct Segment {
  std::int64_t begin = 0, end = 0;
  int run = 0;
  bool fresh = false;
};
/// How a product over k elements is done; none for k = 0.
std::vector<Segment> segments(const Product& product, std::int64_t k);

/// One element: a and b of any length; what lacks to whole instructions is zero.
std::uint32_t element(const Product& product, std::span<const std::uint32_t> a, std::span<const std::uint32_t> b,
                      std::uint32_t c);

/// x + y in the output type, to nearest even: the addition outside of the core.
std::uint32_t add_outside(Output output, std::uint32_t x, std::uint32_t y);

}  // namespace ampcheck::tensor_core
