// SPDX-License-Identifier: Apache-2.0
#include "reference/certify/digits.h"

#include <boost/math/constants/constants.hpp>
#include <cmath>
#include <cstdio>
#include <map>
#include <unordered_map>

#include "reference/certify/certify.h"
#include "src/error.h"

namespace ampcheck::reference {

namespace {

namespace mp = boost::multiprecision;

const Digits& epsilon() {
  static const Digits kEpsilon("1e-122");
  return kEpsilon;
}

Digits from_exp(const Digits& x, Digits y) {
  // Halley on exp(y) = x triples the digits: 16 -> 48 -> 144.
  for (int step = 0; step < 2; ++step) {
    const Digits e = mp::exp(y);
    y += 2 * (x - e) / (x + e);
  }
  return y;
}

/// exp(x) - 1 for |x| < 1/2 by x/2^8 and (1 + m)^2 - 1 = m (2 + m), which keeps the relative precision.
Digits small_expm1(const Digits& x) {
  constexpr int kHalvings = 8;
  const Digits r = x / (1 << kHalvings);
  Digits term = r, m = r;
  for (unsigned n = 2; mp::abs(term) > mp::abs(m) * epsilon(); ++n) {
    term = term * r / n;
    m += term;
  }
  for (int i = 0; i < kHalvings; ++i) m = m * (2 + m);
  return m;
}

/// erf by its series of positive terms, 2x/sqrt(pi) exp(-x^2) sum_n (2x^2)^n / (1 3 5 ... (2n+1)); Abramowitz and
/// Stegun 7.1.6. For |x| up to 5, where 1 - erf still has 109 digits.
Digits erf_series(const Digits& x) {
  const Digits two_squares = 2 * x * x;
  Digits term = 1, total = 1;
  for (unsigned n = 1; term > total * epsilon(); ++n) {
    term = term * two_squares / (2 * n + 1);
    total += term;
  }
  return DigitsPolicy::named_constant("2/sqrt(pi)") * x * mp::exp(-x * x) * total;
}

/// erfc for x > 5 by its continued fraction x + (1/2)/(x + (2/2)/(x + (3/2)/ ..., Abramowitz and Stegun 7.1.14, from
/// the tail. Level n multiplies the error by exp(-2 asinh(x / sqrt(2n))), the ratio of the recurrence's two solutions.
Digits erfc_fraction(const Digits& x) {
  const double size = x.convert_to<double>();
  int levels = 0;
  for (double exponent = 0; exponent < 290; exponent += 2 * std::asinh(size / std::sqrt(2.0 * levels)))
    ++levels;  // 1e-126
  Digits tail = x;
  for (int n = levels; n >= 1; --n) tail = x + Digits(n) / (2 * tail);
  return mp::exp(-x * x) / tail * DigitsPolicy::named_constant("2/sqrt(pi)") / 2;
}

/// Results of a function by argument. A difference moves one coordinate, so nearly every argument comes again, and
/// again in the other forms: most of a certificate's time would go into numbers that it already has.
template <class Function>
Digits remembered(std::unordered_map<Digits, Digits>& known, const Digits& x, Function function) {
  constexpr std::size_t kMost = 4096;  // 144 bytes each
  if (const auto found = known.find(x); found != known.end()) return found->second;
  if (known.size() >= kMost) known.clear();
  return known.emplace(x, function(x)).first->second;
}

}  // namespace

Digits DigitsPolicy::named_constant(const std::string& name) {
  static const Digits kPi = boost::math::constants::pi<Digits>(), kLog2 = log(Digits(2));
  static const std::map<std::string, Digits> kKnown = {{"1/sqrt(2)", mp::sqrt(Digits(2)) / 2},
                                                       {"2/sqrt(pi)", 2 / mp::sqrt(kPi)},
                                                       {"sqrt(2/pi)", mp::sqrt(2 / kPi)},
                                                       {"1/sqrt(2 pi)", 1 / mp::sqrt(Digits(2 * kPi))},
                                                       {"log(2)", kLog2},
                                                       {"1/log(2)", 1 / kLog2},
                                                       {"pi", kPi}};
  if (const auto known = kKnown.find(name); known != kKnown.end()) return known->second;
  const std::size_t slash = name.find('/');
  if (slash == std::string::npos) throw Error("[digits] unknown constant, got '" + name + "', want a fraction");
  return Digits(name.substr(0, slash)) / Digits(name.substr(slash + 1));
}

Digits DigitsPolicy::exp(const Digits& x) {
  thread_local std::unordered_map<Digits, Digits> known;
  return remembered(known, x, [](const Digits& v) -> Digits { return mp::exp(v); });
}

Digits DigitsPolicy::expm1(const Digits& x) { return mp::abs(x) < 0.5 ? small_expm1(x) : Digits(mp::exp(x) - 1); }

Digits DigitsPolicy::log(const Digits& x) {
  thread_local std::unordered_map<Digits, Digits> known;
  return remembered(known, x, [](const Digits& v) -> Digits {
    const double near = v.convert_to<double>();
    if (!(near > 1e-300 && near < 1e300)) return mp::log(v);
    return mp::abs(v - 1) < 0.25 ? log1p(v - 1) : from_exp(v, std::log(near));
  });
}

Digits DigitsPolicy::log1p(const Digits& x) {
  const double near = x.convert_to<double>();
  if (std::fabs(near) < 1e-40) return x * (1 - x * (Digits(1) / 2 - x / 3));
  if (!(std::fabs(near) < 0.5)) return log(1 + x);
  Digits y = std::log1p(near);
  for (int step = 0; step < 2; ++step) {  // as from_exp, on expm1(y) = x
    const Digits m = expm1(y);
    y += 2 * (x - m) / (2 + x + m);
  }
  return y;
}

Digits DigitsPolicy::tanh(const Digits& x) {
  if (mp::abs(x) > 200) return x > 0 ? 1 : -1;
  thread_local std::unordered_map<Digits, Digits> known;
  return remembered(known, x, [](const Digits& v) -> Digits {
    const Digits m = expm1(2 * v);
    return m / (m + 2);
  });
}

Digits DigitsPolicy::erf(const Digits& x) {
  thread_local std::unordered_map<Digits, Digits> known;
  return remembered(known, x, [](const Digits& v) -> Digits {
    if (mp::abs(v) <= 5) return erf_series(v);
    return v > 0 ? Digits(1 - erfc_fraction(v)) : Digits(erfc_fraction(-v) - 1);
  });
}

Digits DigitsPolicy::erfc(const Digits& x) { return x <= 5 ? Digits(1 - erf(x)) : erfc_fraction(x); }

Digits DigitsPolicy::sin(const Digits& x) {
  thread_local std::unordered_map<Digits, Digits> known;
  return remembered(known, x, [](const Digits& v) -> Digits { return mp::sin(v); });
}

Digits DigitsPolicy::cos(const Digits& x) {
  thread_local std::unordered_map<Digits, Digits> known;
  return remembered(known, x, [](const Digits& v) -> Digits { return mp::cos(v); });
}

Digits DigitsPolicy::sqrt(const Digits& x) { return mp::sqrt(x); }

Digits DigitsPolicy::pow(const Digits& x, const Digits& p) {
  constexpr long kMostFactors = 64;  // beyond, exp and log are as exact and no slower
  if (mp::abs(p) <= kMostFactors && p == mp::floor(p)) {
    const long whole = p.convert_to<long>();
    Digits product = 1, square = x;
    for (long left = whole < 0 ? -whole : whole; left > 0; left /= 2, square *= square)
      if (left % 2 != 0) product *= square;
    return whole < 0 ? 1 / product : product;
  }
  if (x > 0) return exp(p * log(x));
  if (x == 0) return p > 0 ? Digits(0) : Digits(std::numeric_limits<double>::infinity());
  if (p != mp::floor(p)) return std::numeric_limits<Digits>::quiet_NaN();
  const Digits size = exp(p * log(Digits(-x)));
  return p / 2 == mp::floor(Digits(p / 2)) ? size : Digits(-size);
}

Digits DigitsPolicy::sum(const std::vector<Digits>& terms) {
  Digits total = 0;
  for (const Digits& term : terms) total += term;
  return total;
}

std::string function_in_digits(Primitive function, const std::string& x, int digits) {
  const Digits v(x);
  const auto text = [digits](const Digits& y) { return y.str(digits, std::ios_base::scientific); };
  switch (function) {
    case Primitive::exp: return text(DigitsPolicy::exp(v));
    case Primitive::expm1: return text(DigitsPolicy::expm1(v));
    case Primitive::log: return text(DigitsPolicy::log(v));
    case Primitive::log1p: return text(DigitsPolicy::log1p(v));
    case Primitive::tanh: return text(DigitsPolicy::tanh(v));
    case Primitive::erf: return text(DigitsPolicy::erf(v));
    case Primitive::erfc: return text(DigitsPolicy::erfc(v));
    case Primitive::sin: return text(DigitsPolicy::sin(v));
    case Primitive::cos: return text(DigitsPolicy::cos(v));
    case Primitive::sqrt: return text(DigitsPolicy::sqrt(v));
    default: throw Error(std::string("[digits] no function ") + name(function));
  }
}

}  // namespace ampcheck::reference
