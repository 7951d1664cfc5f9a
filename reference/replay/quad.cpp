// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include "reference/replay/quad.h"

#include <boost/math/constants/constants.hpp>
#include <boost/math/special_functions/erf.hpp>
#include <boost/math/special_functions/expm1.hpp>
#include <boost/math/special_functions/log1p.hpp>
#include <boost/multiprecision/cpp_bin_float.hpp>
#include <limits>
#include <map>
#include <string>

#include "reference/replay/plain_evaluator.h"
#include "src/error.h"

namespace ampcheck::reference {

namespace {

namespace mp = boost::multiprecision;

using Quad = mp::cpp_bin_float_quad;

/// Policy of PlainEvaluator. Boost throws at poles and outside of domains, where kernels have infinity and NaN.
struct QuadPolicy {
  using Real = Quad;
  static Quad constant(double v) { return Quad(v); }
  static Quad named_constant(const std::string& name);
  static Quad divide(const Quad& a, const Quad& b) {
    if (b != 0 || mp::isnan(a) || mp::isnan(b)) return a / b;
    return a == 0 ? nan() : (a < 0) != mp::signbit(b) ? Quad(-infinity()) : infinity();
  }
  static Quad exp(const Quad& x) { return special(x) ? (x < 0 ? Quad(0) : x) : Quad(mp::exp(x)); }
  static Quad expm1(const Quad& x) {
    if (special(x)) return x < 0 ? Quad(-1) : x;
    return mp::abs(x) < 0.5 ? Quad(boost::math::expm1(x)) : Quad(mp::exp(x) - 1);
  }
  static Quad log(const Quad& x) {
    if (x < 0) return nan();
    if (x == 0) return -infinity();
    return special(x) ? x : Quad(mp::log(x));
  }
  static Quad log1p(const Quad& x) {
    if (x < -1) return nan();
    if (x == -1) return -infinity();
    return special(x) ? x : mp::abs(x) < 0.5 ? Quad(boost::math::log1p(x)) : Quad(mp::log(1 + x));
  }
  static Quad tanh(const Quad& x) {
    if (mp::isnan(x)) return x;
    if (mp::abs(x) > 60) return x > 0 ? 1 : -1;
    const Quad m = expm1(2 * x);
    return m / (m + 2);
  }
  static Quad erf(const Quad& x) {
    if (mp::isnan(x)) return x;
    return mp::abs(x) > 12 ? Quad(x > 0 ? 1 : -1) : Quad(boost::math::erf(x));
  }
  static Quad erfc(const Quad& x) {
    constexpr int kBelowEveryDouble = 30;
    if (mp::isnan(x)) return x;
    if (mp::abs(x) > kBelowEveryDouble) return x > 0 ? 0 : 2;
    return boost::math::erfc(x);
  }
  static Quad sin(const Quad& x) { return special(x) ? nan() : Quad(mp::sin(reduced(x))); }
  static Quad cos(const Quad& x) { return special(x) ? nan() : Quad(mp::cos(reduced(x))); }
  static Quad sqrt(const Quad& x) { return x < 0 ? nan() : special(x) ? x : Quad(mp::sqrt(x)); }
  static Quad pow(const Quad& x, const Quad& p) {
    if (p == 0) return 1;
    if (mp::isnan(x) || mp::isnan(p)) return nan();
    if (special(x) || special(p) || x == 0)
      return Quad(std::pow(x.convert_to<double>(), p.convert_to<double>()));  // 0, 1, infinity or NaN
    const bool whole = p == mp::floor(p);
    if (x < 0 && !whole) return nan();
    const Quad size = mp::exp(p * mp::log(mp::abs(x)));
    return x < 0 && mp::fmod(mp::abs(p), Quad(2)) == 1 ? Quad(-size) : size;
  }
  static const Quad& round(const Quad& x) { return x; }
  static Quad sum(const std::vector<Quad>& terms) {
    Quad total = 0;
    for (const Quad& term : terms) total += term;
    return total;
  }
  static const std::vector<Quad>& stored(const std::string&, const std::vector<Quad>& v) { return v; }

 private:
  static Quad nan() { return std::numeric_limits<Quad>::quiet_NaN(); }
  static Quad infinity() { return std::numeric_limits<Quad>::infinity(); }
  static Quad reduced(const Quad& x);
  static bool special(const Quad& x) { return mp::isnan(x) || mp::isinf(x); }
};

/// What is left of an angle after whole turns: of a large one, with as many digits of pi as the largest double takes.
Quad QuadPolicy::reduced(const Quad& x) {
  using Wide = mp::number<mp::cpp_bin_float<360>, mp::et_off>;
  constexpr double kNear = 0x1p20;  // 93 bits are left behind the point
  if (mp::abs(x) <= kNear) return x;
  static const Wide kTurn = 2 * boost::math::constants::pi<Wide>();
  const Wide turns = Wide(x) / kTurn;
  return Quad(Wide((turns - mp::round(turns)) * kTurn));
}

Quad QuadPolicy::named_constant(const std::string& name) {
  static const Quad kPi = boost::math::constants::pi<Quad>(), kLog2 = mp::log(Quad(2));
  static const std::map<std::string, Quad> kKnown = {{"1/sqrt(2)", mp::sqrt(Quad(2)) / 2},
                                                     {"2/sqrt(pi)", 2 / mp::sqrt(kPi)},
                                                     {"sqrt(2/pi)", mp::sqrt(Quad(2 / kPi))},
                                                     {"1/sqrt(2 pi)", 1 / mp::sqrt(Quad(2 * kPi))},
                                                     {"log(2)", kLog2},
                                                     {"1/log(2)", 1 / kLog2},
                                                     {"pi", kPi}};
  if (const auto known = kKnown.find(name); known != kKnown.end()) return known->second;
  const std::size_t slash = name.find('/');
  if (slash == std::string::npos) throw Error("[quad] unknown constant, got '" + name + "', want a fraction");
  return Quad(name.substr(0, slash)) / Quad(name.substr(slash + 1));
}

}  // namespace

struct QuadEvaluator::Impl {
  explicit Impl(const Graph& graph) : of(graph) {}
  PlainEvaluator<QuadPolicy> of;
};

QuadEvaluator::QuadEvaluator(const Graph& graph) : impl_(std::make_unique<Impl>(graph)) {}
QuadEvaluator::~QuadEvaluator() = default;

void QuadEvaluator::set(Expr leaf, const std::vector<double>& values) {
  impl_->of.set(leaf, std::vector<Quad>(values.begin(), values.end()));
}

std::vector<double> QuadEvaluator::value(Expr target) {
  const std::vector<Quad>& values = impl_->of.value(target);
  std::vector<double> out;
  out.reserve(values.size());
  for (const Quad& value : values) out.push_back(value.convert_to<double>());
  return out;
}

}  // namespace ampcheck::reference
