// SPDX-License-Identifier: Apache-2.0
#include "src/tensor_core/block_scaled.h"

#include <cmath>
#include <string>
#include <vector>

#include "src/error.h"
#include "src/rounding.h"
#include "src/tensor_core/number.h"

namespace ampcheck::tensor_core {

namespace {

using namespace detail;

constexpr int kExponentOfZero = -126;

void require(const ScaledInstruction& i, std::size_t a, std::size_t b, std::size_t a_scales, std::size_t b_scales) {
  const auto is_one_of = [](const FloatFormat& f, std::initializer_list<FloatFormat> all) {
    return std::find(all.begin(), all.end(), f) != all.end();
  };
  const bool mx = i.kind == ScaledInstruction::Kind::mxf8f6f4;
  for (const FloatFormat& f : {i.a, i.b})
    if (mx ? !is_one_of(f, {kE4m3fn, kE5m2, kE3m2fn, kE2m3fn, kE2m1fn}) : f != kE2m1fn)
      throw Error("[tensor_core] factors with scales, got " + std::string(f.name) + ", want " +
                  (mx ? "e4m3fn, e5m2, e3m2fn, e2m3fn or e2m1fn" : "e2m1fn"));
  if (i.scale != kE8m0fnu && (mx || i.scale != kE4m3fn))
    throw Error("[tensor_core] scales, got " + std::string(i.scale.name) + ", want " +
                (mx ? "e8m0fnu" : "e8m0fnu or e4m3fn"));
  const auto k = static_cast<std::size_t>(i.k()), scales = k / static_cast<std::size_t>(i.scaled_together());
  if (a != k || b != k || a_scales != scales || b_scales != scales)
    throw Error("[tensor_core] factors and scales, got " + std::to_string(a) + ", " + std::to_string(b) + ", " +
                std::to_string(a_scales) + " and " + std::to_string(b_scales) + ", want " + std::to_string(k) +
                " factors and " + std::to_string(scales) + " scales of each");
}

/// A scale, which has no sign: significand 2^(exponent - bits).
Number scale_of(const FloatFormat& f, std::uint32_t code) {
  Number out;
  if (f != kE8m0fnu) return number_of(f, code & 0x7fu);
  out.significand = 1;
  out.exponent = static_cast<int>(code & 0xffu) - f.bias;
  if ((code & 0xffu) == 0xffu) out.kind = Number::Kind::nan;
  return out;
}

int exponent_of(const Number& n) { return n.significand == 0 ? kExponentOfZero : n.exponent; }

/// Terms of one instruction with their exponents in the search for the largest.
struct Terms {
  std::vector<Term> all;
  int largest = -100000;

  void add(const Term& term, int exponent) {
    all.push_back(term);
    largest = std::max(largest, exponent);
  }
};

}  // namespace

std::uint32_t scaled_dot(const ScaledInstruction& i, std::span<const std::uint32_t> a, std::span<const std::uint32_t> b,
                         std::span<const std::uint32_t> a_scales, std::span<const std::uint32_t> b_scales,
                         std::uint32_t c) {
  require(i, a.size(), b.size(), a_scales.size(), b_scales.size());
  const bool groups = i.kind == ScaledInstruction::Kind::mxf4nvf4;
  const int scale_bits = i.scale.fraction_bits(), product_bits = i.a.fraction_bits() + i.b.fraction_bits();
  Terms terms;
  double special = decode_scalar(kFp32, c);  // finite, unless something is not
  special = std::isfinite(special) ? 0 : special;
  const Number addend = number_of(kFp32, c);
  terms.add({addend.negative, addend.significand, addend.exponent, kFp32.fraction_bits()}, exponent_of(addend));
  for (std::size_t k = 0; k < a.size(); k += 16) {
    const std::size_t at = k / static_cast<std::size_t>(i.scaled_together());
    const Number x_scale = scale_of(i.scale, a_scales[at]), y_scale = scale_of(i.scale, b_scales[at]);
    if (x_scale.kind == Number::Kind::nan || y_scale.kind == Number::Kind::nan) return nan_of(Output::fp32);
    const int scale = exponent_of(x_scale) + exponent_of(y_scale);
    std::int64_t sum = 0;  // of a group, in units of 2^-product_bits
    for (std::size_t n = k; n < k + 16; ++n) {
      const double product = decode_scalar(i.a, a[n]) * decode_scalar(i.b, b[n]);
      if (!std::isfinite(product)) special += product;
      const Number x = number_of(i.a, a[n]), y = number_of(i.b, b[n]);
      const std::int64_t size = x.significand * y.significand;
      if (!groups)
        terms.add({x.negative != y.negative, size, x.exponent + y.exponent + scale, product_bits},
                  exponent_of(x) + exponent_of(y) + scale);
      else
        sum += (x.negative != y.negative ? -1 : 1) * (size << (x.exponent + y.exponent));  // exponents of e2m1: 0 to 2
    }
    if (groups)
      terms.add({sum < 0, (sum < 0 ? -sum : sum) * x_scale.significand * y_scale.significand,
                 x_scale.exponent + y_scale.exponent, product_bits + 2 * scale_bits},
                scale);
  }
  if (std::isnan(special)) return nan_of(Output::fp32);
  if (special != 0) return infinity_of(Output::fp32, special < 0);
  const int last = terms.largest - i.fraction();
  std::int64_t total = 0;
  for (const Term& term : terms.all)
    if (term.significand != 0) total += aligned(term, last);
  return total == 0 ? 0 : truncated(total, last, 23);
}

}  // namespace ampcheck::tensor_core
