// SPDX-License-Identifier: Apache-2.0
// What one tensor-core instruction computes for one element of its result, to the bit: d = a_1 b_1 + ... + a_k b_k + c.
//
// The instruction adds in blocks of L products. In a block every product is exact. E is the largest exponent among the
// products (a product's exponent is the sum of its factors', not normalised) and c. Each product and c is cut off
// toward zero below 2^(E-F); what is left is added exactly; the sum is rounded once. Blocks are chained over k,
// ascending: d of one is c of the next. L, F and the rounding differ by GPU generation: Rule has them, and their
// sources.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "src/accumulator.h"
#include "src/float_format.h"

namespace ampcheck::tensor_core {

/// Types of the factors. tf32 stands in the bits of an fp32, whose low 13 bits the core does not read.
enum class Input { fp16, bf16, tf32, e4m3, e5m2 };
/// Types of c and d.
enum class Output { fp32, fp16 };
/// The families of instructions: mma.sync (wmma is the same), Hopper's wgmma, Blackwell's tcgen05.mma. They differ for
/// factors of 8 bits alone.
enum class Unit { mma, wgmma, tcgen05 };

/// How small E may become. Two public models disagree, no public capture tells, and it matters only where all terms of
/// a block are near the subnormal numbers of the result.
enum class Floor {
  of_output,  ///< a least exponent of the generation and the result's type (Khattak and Mikaitis, MATLAB-tensor-core)
  of_zeros    ///< a zero factor, or c = 0, has the exponent -126 and takes part (Xie et al., MMA-Sim)
};

/// One instruction, as far as it bears on one element of its result.
struct Instruction {
  TensorCore generation = TensorCore::h100;  ///< neither none nor any
  Input a = Input::fp16, b = Input::fp16;    ///< two types only where both have 8 bits
  Output output = Output::fp32;
  int k = 16;  ///< products: 4, 8 or 16 of 16 bits; 4 or 8 of tf32; 16 or 32 of 8 bits
  Unit unit = Unit::mma;
  Floor floor = Floor::of_output;
  bool operator==(const Instruction&) const = default;
};

/// Empty, or why no GPU of this generation has the instruction: "got ..., want ...".
std::string lacking(const Instruction& instruction);

/// d in the output type's bits (fp32: 32, fp16: the low 16). a and b hold k codes each, one a word, in the bits of
/// their types; c in those of the output. Infinity and NaN as IEEE 754 has them; the NaN is 0x7fffffff or 0x7fff; a sum
/// that is zero, or is rounded to it, is +0. Throws Error where no such instruction is, or a size is wrong.
std::uint32_t dot(const Instruction& instruction, std::span<const std::uint32_t> a, std::span<const std::uint32_t> b,
                  std::uint32_t c);

/// The arithmetic of an instruction. Sources of the numbers: rule.cpp.
struct Rule {
  enum class Result {
    truncated,          ///< fp32, cut off toward zero
    truncated_13_bits,  ///< 13 bits of fraction in an fp32, cut off toward zero
    nearest_fp16        ///< to nearest, ties to even
  };
  int products = 16;  ///< L
  int fraction = 25;  ///< F
  Result result = Result::truncated;
  int least_exponent = -133;  ///< of E
  bool zeros_count = false;   ///< Floor::of_zeros
  /// Factors of 8 bits without arithmetic of their own: they become fp16, and two blocks of 16 products are added, of k
  /// whose bit 1 is 0 and then of the others, beginning at 0; c comes last, by an addition of its own, to nearest.
  bool by_two_fp16 = false;
};
Rule rule_of(const Instruction& instruction);

/// One block of a rule, at most rule.products of them; c and the result in the output type's bits.
std::uint32_t block(const Rule& rule, Input a_type, Input b_type, Output output, std::span<const std::uint32_t> a,
                    std::span<const std::uint32_t> b, std::uint32_t c);

const FloatFormat& format_of(Input type);
const FloatFormat& format_of(Output type);
const char* name(Input type);
const char* name(Output type);
const char* name(Unit unit);
bool find_input(std::string_view text, Input& out);
bool find_output(std::string_view text, Output& out);
bool find_unit(std::string_view text, Unit& out);
/// Products of the generation's largest instruction of this type; 0 where it has none.
int largest_k(TensorCore generation, Input type);

}  // namespace ampcheck::tensor_core
