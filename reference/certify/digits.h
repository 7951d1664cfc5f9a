// SPDX-License-Identifier: Apache-2.0
// 100-digit arithmetic for the certificate. Boost's headers are slow to compile: only digits.cpp and certify.cpp
// include this file.
#pragma once

#include <boost/multiprecision/cpp_dec_float.hpp>
#include <string>
#include <vector>

namespace ampcheck::reference {

/// 100 significant digits. Decimal, because its exp takes a third of the time of the binary type's; kept in 16 limbs of
/// 8 digits, so that at least 121 digits are carried.
using Digits = boost::multiprecision::number<boost::multiprecision::cpp_dec_float<100>, boost::multiprecision::et_off>;
/// What a value computed from numbers of size 1 can be off by: the 121 digits carried, less five for what accumulates.
inline constexpr int kCarriedDigits = 116;

/// Policy of PlainEvaluator. Functions err by less than 1e-100 relative, erfc's tail included; log takes positive
/// numbers, log1p numbers above -1.
struct DigitsPolicy {
  using Real = Digits;
  static Digits constant(double v) { return Digits(v); }
  static Digits named_constant(const std::string& name);
  static Digits divide(const Digits& a, const Digits& b) { return a / b; }
  static Digits exp(const Digits& x);
  static Digits expm1(const Digits& x);
  static Digits log(const Digits& x);
  static Digits log1p(const Digits& x);
  static Digits tanh(const Digits& x);
  static Digits erf(const Digits& x);
  static Digits erfc(const Digits& x);
  static Digits sin(const Digits& x);  ///< of an angle below 10^6; beyond it, digits go with those of the whole turns
  static Digits cos(const Digits& x);
  static Digits sqrt(const Digits& x);
  /// NaN of a negative number to a power that is no whole number.
  static Digits pow(const Digits& x, const Digits& p);
  static const Digits& round(const Digits& x) { return x; }
  static Digits sum(const std::vector<Digits>& terms);
  static const std::vector<Digits>& stored(const std::string&, const std::vector<Digits>& v) { return v; }
};

}  // namespace ampcheck::reference
