// SPDX-License-Identifier: Apache-2.0
// Arithmetic beside the shadow, and what is counted of it. How shades move is in shades_move.cpp.
#include "src/ptx/shades.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "src/ptx/rounded.h"

namespace ampcheck::ptx {

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr std::int16_t kAllBits = 1100;  ///< lost by a number that is infinite, NaN or zero now and should not be

struct Facts {
  int digits, least_exponent;
};
Facts facts_of(NumberFormat format) {
  switch (format) {
    case NumberFormat::half: return {11, -14};
    case NumberFormat::bfloat: return {8, -126};
    case NumberFormat::single: return {24, -126};
    default: return {53, -1022};
  }
}

double ulp_of(NumberFormat format, double x) {
  const Facts facts = facts_of(format);
  const int exponent = x == 0 ? facts.least_exponent : std::max(std::ilogb(x), facts.least_exponent);
  return std::ldexp(1.0, exponent - facts.digits + 1);
}

/// What a result misses of what it should be, relative; 0 where that is not finite.
double apart(double got, double want) {
  if (!std::isfinite(want)) return 0;
  if (!std::isfinite(got)) return kInfinity;
  if (got == want) return 0;
  return want == 0 ? 1 : std::fabs(got - want) / std::fabs(want);
}

double computed(NumberOp op, double a, double b, double c) {
  switch (op) {
    case NumberOp::add: return a + b;
    case NumberOp::sub: return a - b;
    case NumberOp::mul: return a * b;
    case NumberOp::div: return a / b;
    case NumberOp::fma: return std::fma(a, b, c);
    case NumberOp::fma_minus_sum: return std::fma(a, b, -c);
    case NumberOp::fma_minus_product: return std::fma(-a, b, c);
    case NumberOp::neg: return -a;
    case NumberOp::abs: return std::fabs(a);
    case NumberOp::copysign: return std::copysign(b, a);
    case NumberOp::sqrt: return std::sqrt(a);
    case NumberOp::rcp: return 1 / a;
    case NumberOp::rsqrt: return 1 / std::sqrt(a);
    case NumberOp::ex2: return std::exp2(a);
    case NumberOp::lg2: return std::log2(a);
    case NumberOp::sin: return std::sin(a);
    case NumberOp::cos: return std::cos(a);
    case NumberOp::tanh: return std::tanh(a);
    default: return a;
  }
}

bool chooses(NumberOp op) { return op == NumberOp::minimum || op == NumberOp::maximum; }
bool fuses(NumberOp op) {
  return op == NumberOp::fma || op == NumberOp::fma_minus_sum || op == NumberOp::fma_minus_product;
}
bool sums(NumberOp op) { return op == NumberOp::add || op == NumberOp::sub || fuses(op); }

/// 1.5 * 2^k, or a little above: added to a number and taken away again it rounds that to a multiple of a power of two,
/// on purpose. Of any number of one sign less than 2^(k-1) the sum stays between two powers of two.
bool rounds_to_multiples(double constant, double other) {
  constexpr int kLeastExponent = 12;  // below, it is a number like others
  if (!std::isfinite(constant) || constant == 0) return false;
  const int exponent = std::ilogb(constant);
  const double leading = std::ldexp(std::fabs(constant), -exponent);
  return exponent >= kLeastExponent && leading >= 1.5 && leading < 1.5 + 0x1p-14 &&
         std::fabs(other) <= std::ldexp(1.0, exponent - 1);
}

double treated(const Number& number, double x) {
  if (number.saturates) x = saturated(x);
  return number.relu && x < 0 ? 0 : x;
}

}  // namespace

unsigned operands_of(NumberOp op) {
  using enum NumberOp;
  if (fuses(op)) return 3;
  return op == add || op == sub || op == mul || op == div || op == NumberOp::copysign || chooses(op) ? 2 : 1;
}

double real_of(NumberFormat format, std::uint64_t bits) {
  switch (format) {
    case NumberFormat::half: return widened(Half{static_cast<std::uint16_t>(bits)});
    case NumberFormat::bfloat: return widened(BFloat{static_cast<std::uint16_t>(bits)});
    case NumberFormat::single: return std::bit_cast<float>(static_cast<std::uint32_t>(bits));
    default: return std::bit_cast<double>(bits);
  }
}

bool has_half_its_digits(NumberFormat format, double got, double want) {
  return apart(got, want) <= std::ldexp(1.0, -facts_of(format).digits / 2);
}

/// Such a sum of f32: what it makes is the number that was wanted.
bool Shades::rounds_on_purpose(const Number& number, const Operand* from) {
  if (number.operand != NumberFormat::single || !sums(number.op)) return false;
  const auto exact = [](const Operand& operand) { return operand.real == operand.shade.value; };
  if (fuses(number.op)) return exact(from[2]) && rounds_to_multiples(from[2].real, from[0].real * from[1].real);
  return (exact(from[0]) && rounds_to_multiples(from[0].real, from[1].real)) ||
         (exact(from[1]) && rounds_to_multiples(from[1].real, from[0].real));
}

void Shades::compute(const WarpState& w, const Instruction& in) {
  const Number& number = in.number_of_it;
  const unsigned n = operands_of(number.op), parts = number.pair ? 2 : 1;
  Lanes& to = made(w, in.to[0]);
  for (Mask rest = w.mask; rest != 0; rest &= rest - 1) {
    const auto lane = static_cast<unsigned>(std::countr_zero(rest));
    for (unsigned part = 0; part < parts; ++part) {
      const Operand from[3] = {from_[0][part][lane], from_[1][part][lane], from_[2][part][lane]};
      const Operand result = read(w, in.to[0], number.result, part, lane);
      const std::uint64_t bits = result.shade.bits;
      Shade& shade = to.part[part][lane];
      shade = settle(in, result.real, from, n);
      shade.bits = bits;
      shade.format = number.result;
    }
    if (parts == 1) to.part[1][lane].format = NumberFormat::none;
  }
}

Shades::Shade Shades::settle(const Instruction& in, double got, const Operand* from, unsigned n) {
  const Number& number = in.number_of_it;
  LineErrors& line = lines_[in.place];
  ++line.results;
  Shade out;
  double exact = got;
  if (chooses(number.op)) {
    out = n == 2 && from[0].real != got && from[1].real == got ? from[1].shade : from[0].shade;
  } else {
    exact = treated(number, computed(number.op, from[0].real, from[1].real, from[2].real));
    out.value = treated(number, computed(number.op, from[0].shade.value, from[1].shade.value, from[2].shade.value));
  }
  count(line, in, got, exact, from, n);
  if (rounds_on_purpose(number, from)) {
    out.value = got;
    return out;
  }
  const double carried = apart(got, out.value);
  line.carried = std::max(line.carried, carried);
  if (carried != 0 && out.value != 0)
    line.carried_ulp =
        std::max(line.carried_ulp,
                 std::isfinite(got) ? std::fabs(got - out.value) / ulp_of(number.result, out.value) : kInfinity);
  if (chooses(number.op)) return out;
  std::int64_t cancelled = 0;
  const bool with_errors = std::any_of(from, from + n, [](const Operand& o) { return o.real != o.shade.value; });
  if (sums(number.op) && with_errors && std::isfinite(exact)) {
    const bool fused = fuses(number.op);
    const double a = std::fabs(fused ? from[0].real * from[1].real : from[0].real),
                 b = std::fabs(fused ? from[2].real : from[1].real), largest = std::max(a, b);
    if (largest != 0 && std::isfinite(largest))
      cancelled = exact == 0 ? facts_of(number.operand).digits : std::ilogb(largest) - std::ilogb(exact);
    line.cancelled_bits = std::max(line.cancelled_bits, cancelled);
  }
  blame(out, in, got, exact, from, n, cancelled);
  return out;
}

/// What one operation does to the numbers that it has.
void Shades::count(LineErrors& line, const Instruction& in, double got, double exact, const Operand* from, unsigned n) {
  const NumberFormat format = in.number_of_it.result;
  if (format == NumberFormat::wide) return;  // the shadow is no better
  const double least = std::ldexp(1.0, facts_of(format).least_exponent);
  bool normal = true;
  for (unsigned i = 0; i < n; ++i) {
    if (!std::isfinite(from[i].real)) return;
    normal = normal && (from[i].real == 0 || std::fabs(from[i].real) >= least);
  }
  if (std::isnan(got)) {
    ++line.nans;
    return;
  }
  if (std::isinf(got)) {
    ++line.infinities;
    return;
  }
  if (got == 0 && exact != 0) ++line.underflows;
  if (got != 0 && std::fabs(got) < least && normal) ++line.subnormals;
  if (got == exact || !std::isfinite(exact)) return;
  line.local_ulp = std::max(line.local_ulp, std::fabs(got - exact) / ulp_of(format, exact));
  line.local = std::max(line.local, apart(got, exact));
}

/// Who has taken most digits: this line, or the one that the operand remembers whose error weighs most.
void Shades::blame(Shade& out, const Instruction& in, double got, double exact, const Operand* from, unsigned n,
                   std::int64_t cancelled) const {
  const Number& number = in.number_of_it;
  double most = -1, before = std::ldexp(1.0, -facts_of(number.operand).digits);
  for (unsigned i = 0; i < n; ++i) {
    const double error = std::fabs(from[i].real - from[i].shade.value),
                 share = apart(from[i].real, from[i].shade.value);
    double weight = share;
    if (sums(number.op) && std::isfinite(error))
      weight = fuses(number.op) && i < 2 ? error * std::fabs(from[1 - i].real) : error;
    before = std::max(before, share);
    if (!(weight > most)) continue;
    most = weight;
    out.origin = from[i].shade.origin;
    out.lost = from[i].shade.lost;
    out.why = from[i].shade.why;
  }
  const double now = apart(got, out.value);
  if (!(now > before)) return;
  const std::int16_t bits =
      std::isfinite(now) ? static_cast<std::int16_t>(std::ilogb(now) - std::ilogb(before)) : kAllBits;
  if (bits <= out.lost) return;
  out.origin = in.place;
  out.lost = bits;
  const double least = std::ldexp(1.0, facts_of(number.result).least_exponent);
  using Why = LineErrors::Why;
  out.why = !std::isfinite(got)                        ? Why::overflow
            : got != exact && std::fabs(exact) < least ? Why::underflow
            : cancelled > 0                            ? Why::cancellation
                                                       : Why::rounding;
}

std::vector<LineErrors> Shades::lines(const std::string& kernel) const {
  std::vector<LineErrors> out;
  for (std::size_t i = 0; i < lines_.size(); ++i) {
    if (lines_[i].results == 0 && lines_[i].lost() == 0) continue;
    out.push_back(lines_[i]);
    out.back().kernel = kernel;
    out.back().place = program_.text.place_text(static_cast<int>(i));
  }
  return out;
}

}  // namespace ampcheck::ptx
