// SPDX-License-Identifier: Apache-2.0
// What adds up a kernel's sums, as its precision contract declares it: a type, to which each partial sum is rounded, or
// the tensor cores of a GPU generation, which add products in blocks and truncate.
//
// The arithmetic of one block ("truncated fused dot-product-add", Xie et al., arXiv:2511.10909; checked against the
// captures of Khattak and Mikaitis, MATLAB-tensor-core): D = c + a_1 b_1 + ... + a_L b_L. Products are exact. Each of
// the L products and c is cut off, toward zero, below 2^(E-F), where E is the largest exponent among them; they are
// added exactly; the sum is cut off to m fraction bits. Blocks are chained: D of one is c of the next.
#pragma once

#include <string>
#include <string_view>

#include "src/dtype.h"

namespace ampcheck {

/// GPU generations whose tensor cores differ. `any`: whatever of these it is.
enum class TensorCore { none, v100, turing, a100, ada, h100, b200, any };

/// Implicit from a type: most contracts declare one.
struct Accumulator {
  Dtype dtype = Dtype::fp32;           ///< of all sums; with tensor cores, of those outside of products
  TensorCore core = TensorCore::none;  ///< of products
  constexpr Accumulator() = default;
  constexpr Accumulator(Dtype each) : dtype(each) {}
  constexpr Accumulator(TensorCore products) : core(products) {}
  bool operator==(const Accumulator&) const = default;
};

/// "fp32", "tensor_core(h100)": find_accumulator() reads it back.
std::string name(const Accumulator& accumulator);
/// fp32, fp16, bf16, tensor_core(GENERATION), and tensor_core for tensor_core(any). False if it is none of these.
bool find_accumulator(std::string_view text, Accumulator& out);
/// "got 'fp8', want fp32, fp16, ...": what to say of a text that is none.
std::string unknown_accumulator(const std::string& text);

/// The generation of a GPU by its compute capability; `any` for one that is not known, `none` below 7.0, where GPUs
/// have no tensor cores.
TensorCore tensor_core_of(int major, int minor);

/// Types of a product's operands on tensor cores. fp32 operands are cut off to tf32.
enum class ProductType { fp16, bf16, tf32, fp8 };

/// The blocks in which one generation adds products of one type.
struct TensorCoreBlock {
  int least = 0, most = 0;  ///< products of a block: of the smallest instruction and of the largest; 0: none has it
  int fraction = 0;         ///< F: bits that a term keeps below the exponent of the largest
  int result = 0;           ///< m: fraction bits of what a block gives
  bool exists() const { return most > 0; }

  /// A bound of what `nonzero` products other than zero, of a sum over `all` of them, may lose, in units of 2^-24 of
  /// the sum of their sizes S, whatever the order, and however the sum is split into partial sums that are added in
  /// fp32.
  ///
  /// A block of n products errs by no more than (n + 1) 2^(E-F) + 2^-m |D|, and 2^E <= S: its largest term has that
  /// exponent. |D| <= S too, since cutting off makes nothing larger. Over all blocks, B of them, and s partial sums:
  ///   (nonzero + B) 2^-F + B 2^-m + s 2^-24, times S.
  /// B is at most the blocks of the smallest instruction and one more for each partial sum, and a partial sum has at
  /// least one block of the largest. No more than nonzero - 1 steps join anything, and the others are exact.
  /// Source: Blanchard, Higham, Lopez, Mary and Pranesh, SISC 42(3), 2020, for truncation as above.
  double roundings(double nonzero, double all) const;
  /// The first part of it alone: what is cut off terms.
  double truncations(double nonzero, double all) const;
  /// Below 2^this times their lowest bit every such sum is exact.
  int exact_bits() const;

 private:
  double partial_sums(double nonzero, double all) const;
  double blocks(double nonzero, double all) const;
};

/// Of `any` the worst that some generation has.
TensorCoreBlock block_of(TensorCore core, ProductType type);

}  // namespace ampcheck
