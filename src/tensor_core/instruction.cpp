// SPDX-License-Identifier: Apache-2.0
// The reference: whole numbers alone, one product at a time.
#include "src/tensor_core/instruction.h"

#include <algorithm>
#include <bit>

#include "src/error.h"
#include "src/rounding.h"
#include "src/tensor_core/number.h"
#include "src/tensor_core/product.h"

namespace ampcheck::tensor_core {

namespace {

using namespace detail;

std::uint32_t rounded(const Rule& rule, std::int64_t sum, int last) {
  if (sum == 0) return 0;
  switch (rule.result) {
    case Rule::Result::truncated: return truncated(sum, last, 23);
    case Rule::Result::truncated_13_bits: return truncated(sum, last, 13);
    case Rule::Result::nearest_fp16: break;
  }
  // Fewer than 53 bits, and far above fp64's subnormal numbers: the double is exact.
  const double exact = static_cast<double>(sum) * exact_power_of_two(std::max(last, -900));
  const auto code = static_cast<std::uint32_t>(encode_scalar(kFp16, exact));
  return (code & kFp16.magnitude_mask()) == 0 ? 0 : code;
}

/// What is not finite among the terms: IEEE 754's rules.
struct Special {
  bool nan = false, up = false, down = false;

  void add(const Number& n) {
    if (n.kind == Number::Kind::nan) nan = true;
    if (n.kind == Number::Kind::infinite) (n.negative ? down : up) = true;
  }
  void add_product(const Number& x, const Number& y) {
    if (x.kind == Number::Kind::nan || y.kind == Number::Kind::nan) nan = true;
    if (nan || (x.kind == Number::Kind::finite && y.kind == Number::Kind::finite)) return;
    const bool zero = (x.kind == Number::Kind::finite && x.significand == 0) ||
                      (y.kind == Number::Kind::finite && y.significand == 0);
    if (zero)
      nan = true;
    else
      (x.negative != y.negative ? down : up) = true;
  }
  bool any() const { return nan || up || down; }
  std::uint32_t result(Output output) const { return nan || (up && down) ? nan_of(output) : infinity_of(output, down); }
};

constexpr int kExponentOfZero = -126;  // Floor::of_zeros

/// Exponent of a number in the search for the largest; a zero has none unless zeros count.
int exponent_of(const Number& n, bool zeros_count) {
  return n.significand == 0 && zeros_count ? kExponentOfZero : n.exponent;
}

}  // namespace

std::uint32_t block(const Rule& rule, Input a_type, Input b_type, Output output, std::span<const std::uint32_t> a,
                    std::span<const std::uint32_t> b, std::uint32_t c) {
  const FloatFormat &a_format = format_of(a_type), &b_format = format_of(b_type), &c_format = format_of(output);
  std::vector<Term> terms;
  Special special;
  int largest = rule.least_exponent;
  const Number addend = number_of(c_format, c);
  special.add(addend);
  if (addend.significand != 0 || rule.zeros_count) largest = std::max(largest, exponent_of(addend, rule.zeros_count));
  terms.push_back({addend.negative, addend.significand, addend.exponent, c_format.fraction_bits()});
  for (std::size_t k = 0; k < a.size(); ++k) {
    const Number x = number_of(a_format, a[k]), y = number_of(b_format, b[k]);
    special.add_product(x, y);
    const std::int64_t product = x.significand * y.significand;
    if (product != 0 || rule.zeros_count)
      largest = std::max(largest, exponent_of(x, rule.zeros_count) + exponent_of(y, rule.zeros_count));
    terms.push_back({x.negative != y.negative, product, x.exponent + y.exponent,
                     a_format.fraction_bits() + b_format.fraction_bits()});
  }
  if (special.any()) return special.result(output);
  const int last = largest - rule.fraction;
  std::int64_t sum = 0;
  for (const Term& term : terms)
    if (term.significand != 0) sum += aligned(term, last);
  return rounded(rule, sum, last);
}

std::uint32_t add_outside(Output output, std::uint32_t x, std::uint32_t y) {
  const FloatFormat& f = format_of(output);
  const double sum = decode_scalar(f, x) + decode_scalar(f, y);  // of fp16 exact; of fp32 rounded to a double first
  if (sum != sum) return nan_of(output);
  if (output == Output::fp16) return static_cast<std::uint32_t>(encode_scalar(f, sum));
  return std::bit_cast<std::uint32_t>(std::bit_cast<float>(x) + std::bit_cast<float>(y));
}

namespace {

std::uint32_t chain(const Rule& rule, const Instruction& i, std::span<const std::uint32_t> a,
                    std::span<const std::uint32_t> b, std::uint32_t c) {
  const auto step = static_cast<std::size_t>(rule.products);
  for (std::size_t k = 0; k < a.size(); k += step) {
    const std::size_t n = std::min(step, a.size() - k);
    c = block(rule, i.a, i.b, i.output, a.subspan(k, n), b.subspan(k, n), c);
  }
  return c;
}

std::uint32_t by_two_fp16(const Rule& rule, const Instruction& i, std::span<const std::uint32_t> a,
                          std::span<const std::uint32_t> b, std::uint32_t c) {
  const auto as_fp16 = [](Input type, std::uint32_t code) {  // exact: fp16 holds every number of 8 bits
    return static_cast<std::uint32_t>(encode_scalar(kFp16, decode_scalar(format_of(type), code)));
  };
  std::uint32_t sum = 0;
  for (const std::size_t half : {std::size_t{0}, std::size_t{2}}) {
    std::vector<std::uint32_t> x, y;
    for (std::size_t k = 0; k < a.size(); ++k)
      if ((k & 2) == half) {
        x.push_back(as_fp16(i.a, a[k]));
        y.push_back(as_fp16(i.b, b[k]));
      }
    sum = block(rule, Input::fp16, Input::fp16, i.output, x, y, sum);
  }
  return add_outside(i.output, sum, c);
}

}  // namespace

std::uint32_t dot(const Instruction& i, std::span<const std::uint32_t> a, std::span<const std::uint32_t> b,
                  std::uint32_t c) {
  const Rule rule = rule_of(i);
  const auto k = static_cast<std::size_t>(i.k);
  if (a.size() != k || b.size() != k)
    throw Error("[tensor_core] factors, got " + std::to_string(a.size()) + " and " + std::to_string(b.size()) +
                ", want " + std::to_string(k) + " of each");
  return rule.by_two_fp16 ? by_two_fp16(rule, i, a, b, c) : chain(rule, i, a, b, c);
}

}  // namespace ampcheck::tensor_core
