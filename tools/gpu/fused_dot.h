// SPDX-License-Identifier: Apache-2.0
// What a tensor core of Hopper is believed to compute of d = a . b + c, in integers: every product and c are cut off
// below a common last bit, added exactly, and rounded once. Two public models disagree on how far down the common
// exponent goes: north-numerical-computing/MATLAB-tensor-core (BSD 2-Clause) and microsoft/MMA-Sim (MIT).
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <vector>

#include "src/rounding.h"
#include "tools/gpu/instructions.h"

namespace ampcheck::gpu {

/// The least exponent to which terms are aligned: a number of the output type, or that of a zero operand.
enum class Floor { of_output, of_zeros };

struct DotRule {
  int fraction = 25;     ///< bits kept below the largest exponent
  int result_bits = 23;  ///< of the fraction of an fp32 result
  Floor floor = Floor::of_output;
};

namespace dot_detail {

inline const FloatFormat& format_of(Input input) {
  switch (input) {
    case Input::fp16: return kFp16;
    case Input::bf16: return kBf16;
    case Input::e4m3: return kE4m3fn;
    case Input::e5m2: return kE5m2;
    default: return kFp32;
  }
}

inline double decoded(const FloatFormat& format, std::uint32_t code) {
  double out = 0;
  decode(format, &code, std::span<double>(&out, 1));  // little-endian: the code's low bytes
  return out;
}

/// An operand as the core reads it: of tf32 the lower 13 bits are not there.
inline double operand(Input input, std::uint32_t code) {
  return decoded(format_of(input), input == Input::tf32 ? code & 0xffffe000u : code);
}

inline std::uint32_t encoded(Output output, double value) {
  std::uint32_t out = 0;
  encode(output == Output::fp16 ? kFp16 : kFp32, {}, std::span<const double>(&value, 1), &out);
  return out;
}

/// Exponent of a value of the format, of a subnormal that of the smallest normal number.
inline int exponent_of(double value, int least) { return std::max(std::ilogb(value), least); }

inline int least_exponent(Input input) {
  return input == Input::fp16 || input == Input::e5m2 ? -14 : input == Input::e4m3 ? -6 : -126;
}

inline std::uint32_t not_a_number(Output output) { return output == Output::fp16 ? 0x7fffu : 0x7fffffffu; }

/// Cut off toward zero after `bits` of the fraction; nothing else is rounded.
inline double truncated(double value, int bits) {
  if (value == 0) return 0;
  const int last = exponent_of(value, -126) - bits;
  const double out = std::ldexp(std::trunc(std::ldexp(value, -last)), last);
  return std::fabs(out) < 0x1p128 ? out : std::copysign(INFINITY, out);
}

struct Term {
  double value;
  int exponent;
};

/// One block: terms with their exponents (not normalised), c among them.
inline double block(const std::vector<Term>& terms, bool zeros, Output output, const DotRule& rule) {
  int largest = -100000;
  for (const Term& term : terms) largest = std::max(largest, term.exponent);
  if (terms.empty()) return 0;
  if (rule.floor == Floor::of_output) largest = std::max(largest, output == Output::fp16 ? -21 : -133);
  if (rule.floor == Floor::of_zeros && zeros) largest = std::max(largest, -126);
  const int last = largest - rule.fraction;
  double sum = 0;  // of less than 2^40 units of the last bit: exact
  for (const Term& term : terms) sum += std::trunc(std::ldexp(term.value, -last));
  const double exact = std::ldexp(sum, last);
  return output == Output::fp32 ? truncated(exact, rule.result_bits) : exact;
}

}  // namespace dot_detail

/// Bits of d in the output type; a NaN is the core's own.
inline std::uint32_t fused_dot(Input input, Output output, std::span<const std::uint32_t> a,
                               std::span<const std::uint32_t> b, std::uint32_t c, const DotRule& rule) {
  using namespace dot_detail;
  const double addend = decoded(output == Output::fp16 ? kFp16 : kFp32, c);
  const int least = least_exponent(input);
  std::vector<Term> terms;
  bool zeros = addend == 0;
  double special = std::isfinite(addend) ? 0 : addend;
  for (std::size_t k = 0; k < a.size(); ++k) {
    const double x = operand(input, a[k]), y = operand(input, b[k]), product = x * y;
    if (!std::isfinite(product)) special += product;
    if (product == 0)
      zeros = true;
    else if (std::isfinite(product))
      terms.push_back({product, exponent_of(x, least) + exponent_of(y, least)});
  }
  if (std::isnan(special)) return not_a_number(output);
  if (special != 0) return encoded(output, special);
  if (addend != 0) terms.push_back({addend, exponent_of(addend, output == Output::fp16 ? -14 : -126)});
  const double d = block(terms, zeros, output, rule);
  return d == 0 ? 0 : encoded(output, d);
}

/// d as the instruction computes it: mma has no arithmetic of 8 bits, it takes fp16's twice and adds c by itself.
inline std::uint32_t instruction_dot(Input input, Output output, Unit unit, std::span<const std::uint32_t> a,
                                     std::span<const std::uint32_t> b, std::uint32_t c, const DotRule& rule = {}) {
  using namespace dot_detail;
  if (input != Input::e4m3 && input != Input::e5m2) return fused_dot(input, output, a, b, c, rule);
  if (unit == Unit::wgmma)
    return fused_dot(input, output, a, b, c, {.fraction = 13, .result_bits = 13, .floor = rule.floor});
  std::uint32_t sum = 0;
  for (const std::size_t half : {std::size_t{0}, std::size_t{2}}) {  // k = 0, 1, 4, 5, ..., then 2, 3, 6, 7, ...
    std::vector<std::uint32_t> x, y;
    for (std::size_t k = 0; k < a.size(); ++k)
      if ((k & 2) == half) {
        x.push_back(encoded(Output::fp16, operand(input, a[k])));
        y.push_back(encoded(Output::fp16, operand(input, b[k])));
      }
    sum = fused_dot(Input::fp16, output, x, y, sum, rule);
  }
  const FloatFormat& format = output == Output::fp16 ? kFp16 : kFp32;
  const double total = decoded(format, sum) + decoded(format, c);
  return std::isnan(total) ? not_a_number(output) : encoded(output, total);
}

}  // namespace ampcheck::gpu
