// SPDX-License-Identifier: Apache-2.0
// Blackwell's products of factors with scales (OCP MX, NVFP4), as far as public data says what they compute.
//
// No capture of these instructions is public. What is here is the model of Xie et al. (arXiv:2511.10909, MMA-Sim):
// - kind mxf8f6f4, k = 32, one scale for either side: as an unscaled instruction with L = 32 and F = 25, the scales'
//   exponents added to every product's.
// - kind mxf4nvf4, k = 64: products in groups of 16 are added exactly; each group times the significands of its two
//   scales is one term, with the sum of the scales' exponents; terms and c are cut off below 2^(E-F) with F = 35.
// Open: F of the second kind (reports name 25 on RTX Blackwell and 34 to 37 on B200), whether a group or a scale that
// is zero takes part in E, and the least exponent. Results are those of the model, not of a known GPU.
#pragma once

#include <cstdint>
#include <span>

#include "src/float_format.h"

namespace ampcheck::tensor_core {

struct ScaledInstruction {
  enum class Kind {
    mxf8f6f4,  ///< factors kE4m3fn, kE5m2, kE3m2fn, kE2m3fn or kE2m1fn; scales kE8m0fnu
    mxf4nvf4   ///< factors kE2m1fn; scales kE8m0fnu for 32 of them, or kE4m3fn without its sign for 16
  } kind = Kind::mxf8f6f4;
  FloatFormat a = kE4m3fn, b = kE4m3fn, scale = kE8m0fnu;
  int fraction() const { return open_fraction > 0 ? open_fraction : kind == Kind::mxf8f6f4 ? 25 : 35; }
  int open_fraction = 0;  ///< F, where another one is to be tried; 0: the model's

  int k() const { return kind == Kind::mxf8f6f4 ? 32 : 64; }
  /// Factors that have one scale.
  int scaled_together() const { return scale == kE8m0fnu ? 32 : 16; }
};

/// d = sum over k of a_k b_k times their scales, + c: bits of an fp32, as c. Codes one a word; k() / scaled_together()
/// scales of either side. NaN if a scale, a factor or c is; infinity as IEEE 754 has it. Throws Error for formats or
/// sizes that the kind does not have.
std::uint32_t scaled_dot(const ScaledInstruction& instruction, std::span<const std::uint32_t> a,
                         std::span<const std::uint32_t> b, std::span<const std::uint32_t> a_scales,
                         std::span<const std::uint32_t> b_scales, std::uint32_t c);

}  // namespace ampcheck::tensor_core
