// SPDX-License-Identifier: Apache-2.0
// unsettled_codes() and unsettled() over a block, compiled once per SIMD target.
#include <algorithm>
#include <bit>
#include <cmath>
#include <vector>

#include "checks/case/interval.h"
#include "src/rounding.h"

#ifndef HWY_DISABLE_PCLMUL_AES
#define HWY_DISABLE_PCLMUL_AES  // unused here; with them x86-64-v3 would count as SSSE3 and be compiled again as AVX2
#endif
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "checks/case/settled.cpp"
#include <hwy/foreach_target.h>  // must precede highway.h
#include <hwy/highway.h>

#ifndef AMPCHECK_CHECKS_CODES_TEST
#define AMPCHECK_CHECKS_CODES_TEST
namespace ampcheck::checks {
namespace {
/// Constants of unsettled_codes() for one tensor: codes of normal numbers, and how the bits of a double become one.
struct CodesTest {
  std::uint16_t least, most;
  int shift;
  std::uint64_t rebase;
  double share, near;
};
}  // namespace
}  // namespace ampcheck::checks
#endif

HWY_BEFORE_NAMESPACE();
namespace ampcheck::checks {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

/// |got - value| is less than half the spacing of storage at got towards the value, or as much and got is the even one,
/// and |value| > share |value| + near + radius.
struct Nearest {
  using D = hn::ScalableTag<double>;
  using I = hn::ScalableTag<std::int64_t>;
  hn::Vec<D> least, scales, shares, nears;
  hn::Vec<I> last;
  HWY_INLINE explicit Nearest(const NearestTest& t) {
    const D d;
    least = hn::Set(d, t.min_normal);
    scales = hn::Set(d, t.scale);
    shares = hn::Set(d, 1 - t.share);
    nears = hn::Set(d, t.near);
    last = hn::Set(I(), t.last_bit);
  }
  HWY_INLINE hn::Mask<D> operator()(hn::Vec<D> g, hn::Vec<D> v, hn::Vec<D> r) const {
    const D d;
    const I i;
    const auto size = hn::Abs(g), away = hn::Abs(v);
    // Below a power of two the spacing is that of the next double towards the value.
    const auto bits = hn::BitCast(i, size),
               below = hn::IfThenElse(hn::RebindMask(i, hn::Lt(away, size)), hn::Sub(bits, hn::Set(i, 1)), bits);
    const auto clamped = hn::Max(hn::BitCast(d, below), least);
    const auto half = hn::Mul(hn::BitCast(d, hn::And(hn::BitCast(i, clamped), hn::Set(i, 0x7ff0000000000000))), scales);
    const auto apart = hn::Abs(hn::Sub(g, v));
    const auto even = hn::And(hn::RebindMask(d, hn::Eq(hn::And(bits, last), hn::Zero(i))),
                              hn::Ge(size, least));  // of subnormals the last bit lies elsewhere
    return hn::And(hn::Or(hn::Lt(apart, half), hn::And(hn::Eq(apart, half), even)),
                   hn::Gt(hn::Mul(away, shares), hn::Add(nears, r)));
  }
};

bool Settled(double got, double value, double radius, const NearestTest& test) {
  const hn::ScalableTag<double> d;
  return hn::AllTrue(d, Nearest(test)(hn::Set(d, got), hn::Set(d, value), hn::Set(d, radius)));
}

void Unsettled(const double* got, const double* value, const double* radius, std::size_t n, const NearestTest& test,
               std::size_t most, std::vector<std::int64_t>& out) {
  const hn::ScalableTag<double> d;
  const Nearest nearest(test);
  std::size_t k = 0;
  for (; k + hn::Lanes(d) <= n; k += hn::Lanes(d)) {
    const auto holds = nearest(hn::LoadU(d, got + k), hn::LoadU(d, value + k),
                               radius != nullptr ? hn::LoadU(d, radius + k) : hn::Zero(d));
    if (HWY_LIKELY(hn::AllTrue(d, holds))) continue;
    if (out.size() > most) return;
    std::uint8_t bits[8] = {};
    hn::StoreMaskBits(d, holds, bits);
    for (std::size_t lane = 0; lane < hn::Lanes(d); ++lane)
      if ((bits[lane / 8] >> (lane % 8) & 1) == 0) out.push_back(static_cast<std::int64_t>(k + lane));
  }
  for (; k < n; ++k)
    if (!hn::AllTrue(
            d, nearest(hn::Set(d, got[k]), hn::Set(d, value[k]), hn::Set(d, radius != nullptr ? radius[k] : 0.0))))
      out.push_back(static_cast<std::int64_t>(k));
}

/// Whether all are codes of finite numbers of the normal range.
bool normal_codes(const std::uint16_t* codes, std::size_t n, const CodesTest& test) {
  const hn::ScalableTag<std::uint16_t> d;
  const auto magnitude = hn::Set(d, 0x7fff);
  auto low = hn::Set(d, test.least), high = hn::Set(d, test.most);
  std::size_t k = 0;
  for (; k + hn::Lanes(d) <= n; k += hn::Lanes(d)) {
    const auto size = hn::And(hn::LoadU(d, codes + k), magnitude);
    low = hn::Min(low, size);
    high = hn::Max(high, size);
  }
  bool normal =
      hn::AllTrue(d, hn::Eq(low, hn::Set(d, test.least))) && hn::AllTrue(d, hn::Eq(high, hn::Set(d, test.most)));
  for (; k < n; ++k) normal &= (codes[k] & 0x7fff) >= test.least && (codes[k] & 0x7fff) <= test.most;
  return normal;
}

/// Whether these are the codes of the values, rounded to nearest even as numbers of the normal range, whose mantissas
/// lose kShift bits; and |value| share > near + radius.
template <int kShift, bool kRadii>
bool codes_hold(const std::uint16_t* codes, const double* value, const double* radius, std::size_t n,
                const CodesTest& test) {
  const hn::ScalableTag<double> d;
  const hn::ScalableTag<std::uint64_t> u;
  const hn::Rebind<std::uint16_t, decltype(u)> d16;
  const hn::Rebind<std::uint32_t, decltype(u)> d32;
  const auto magnitude = hn::Set(u, 0x7fffffffffffffff), one = hn::Set(u, 1),
             below_half = hn::Set(u, (std::uint64_t{1} << (kShift - 1)) - 1 - test.rebase);
  const auto share = hn::Set(d, test.share), near = hn::Set(d, test.near);
  auto wrong = hn::Zero(u);
  auto seen = hn::Eq(share, share);
  const auto look = [&](hn::Vec<decltype(u)> code, hn::Vec<decltype(d)> v, hn::Vec<decltype(d)> r) HWY_ATTR {
    const auto bits = hn::BitCast(u, v);
    const auto odd = hn::And(hn::ShiftRight<kShift>(bits), one);
    // Beyond the range of the format, bits between the sign and the code are not zero.
    wrong = hn::Or(wrong, hn::Xor(code, hn::ShiftRight<kShift>(hn::Add(hn::Add(bits, below_half), odd))));
    seen = hn::And(seen,
                   hn::Gt(hn::Mul(hn::BitCast(d, hn::And(bits, magnitude)), share), kRadii ? hn::Add(near, r) : near));
  };
  /// The sign where that of a double comes to lie.
  const auto spread = [&](hn::Vec<decltype(d32)> code) HWY_ATTR {
    const auto sign = hn::Set(d32, 0x8000);
    return hn::Or(hn::AndNot(sign, code), hn::ShiftLeft<63 - kShift - 15>(hn::And(code, sign)));
  };
  std::size_t k = 0;
  for (; k + hn::Lanes(d) <= n; k += hn::Lanes(d))
    look(hn::PromoteTo(u, spread(hn::PromoteTo(d32, hn::LoadU(d16, codes + k)))), hn::LoadU(d, value + k),
         kRadii ? hn::LoadU(d, radius + k) : hn::Zero(d));
  for (; k < n; ++k)
    look(hn::PromoteTo(u, spread(hn::Set(d32, codes[k]))), hn::Set(d, value[k]), hn::Set(d, kRadii ? radius[k] : 0.0));
  return hn::AllTrue(d, seen) && hn::AllTrue(u, hn::Eq(wrong, hn::Zero(u)));
}

/// Lists what of a block does not hold, until that is more than `most`.
template <int kShift, bool kRadii>
void list_codes(const std::uint16_t* codes, const double* value, const double* radius, std::size_t n,
                const CodesTest& test, std::size_t most, std::vector<std::int64_t>& out) {
  constexpr std::size_t kBlock = 128, kPart = 16;  // in a block that does not hold, few elements are to blame
  const auto hold = [&](std::size_t from, std::size_t count) HWY_ATTR {
    return normal_codes(codes + from, count, test) &&
           codes_hold<kShift, kRadii>(codes + from, value + from, kRadii ? radius + from : nullptr, count, test);
  };
  for (std::size_t start = 0; start < n && out.size() <= most; start += kBlock) {
    const std::size_t end = std::min(n, start + kBlock);
    if (HWY_LIKELY(hold(start, end - start))) continue;
    for (std::size_t part = start; part < end; part += kPart) {
      const std::size_t part_end = std::min(end, part + kPart);
      if (hold(part, part_end - part)) continue;
      for (std::size_t k = part; k < part_end; ++k)
        if (!hold(k, 1)) out.push_back(static_cast<std::int64_t>(k));
    }
  }
}

void UnsettledCodes(const std::uint16_t* codes, const double* value, const double* radius, std::size_t n,
                    const CodesTest& test, std::size_t most, std::vector<std::int64_t>& out) {
  if (test.shift == 45)
    return radius ? list_codes<45, true>(codes, value, radius, n, test, most, out)
                  : list_codes<45, false>(codes, value, radius, n, test, most, out);
  return radius ? list_codes<42, true>(codes, value, radius, n, test, most, out)
                : list_codes<42, false>(codes, value, radius, n, test, most, out);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace ampcheck::checks
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ampcheck::checks {

HWY_EXPORT(Settled);
HWY_EXPORT(Unsettled);
HWY_EXPORT(UnsettledCodes);

namespace {

constexpr double kSlack = 1 + 0x1p-30;  ///< what the radius is widened by before its ends are rounded, and more

/// The last bit of a normal number's mantissa, where a double has it.
std::int64_t last_bit(const FloatFormat& storage) { return std::int64_t{1} << (53 - storage.precision); }

/// The test of some elements of a ball, and their radii where they have their own.
NearestTest test_of(const reference::Ball& ball, Dtype dtype) {
  const FloatFormat& storage = format(dtype);
  const NearestTest any{storage.min_normal(), std::ldexp(1.0, -storage.precision), 0, -1, last_bit(storage)};
  if (!ball.r && ball.all.relative == 0 && ball.all.absolute == 0) return any;  // a radius of zero hides nothing
  // Otherwise no end of an interval may round to zero.
  return {any.min_normal, any.scale, ball.all.relative * kSlack + 0x1p-30,
          (ball.r ? 0.0 : ball.all.absolute * kSlack) + storage.min_subnormal(), any.last_bit};
}
const double* radii_of(const reference::Ball& ball, std::int64_t first) {
  return ball.r ? ball.r.get() + first : nullptr;
}

}  // namespace

bool unsettled_codes(const std::byte* got, std::size_t n, const reference::Ball& ball, std::int64_t first, Dtype dtype,
                     std::vector<std::int64_t>& out, std::size_t most) {
  if (dtype != Dtype::bf16 && dtype != Dtype::fp16) return false;
  const FloatFormat& storage = format(dtype);
  const NearestTest test = test_of(ball, dtype);
  const CodesTest by_code{static_cast<std::uint16_t>(1u << storage.fraction_bits()),
                          static_cast<std::uint16_t>(storage.max_code()),
                          52 - storage.fraction_bits(),
                          static_cast<std::uint64_t>(kFp64.bias - storage.bias) << 52,
                          1 - test.share,
                          test.near};
  const auto* const codes = reinterpret_cast<const std::uint16_t*>(got);
  const double *const values = ball.v.get() + first, *const radii = radii_of(ball, first);
  HWY_DYNAMIC_DISPATCH(UnsettledCodes)(codes, values, radii, n, by_code, most, out);
  if (out.size() > most) return false;
  std::erase_if(out, [&](std::int64_t i) {  // a tie, or no number of the normal range
    return HWY_DYNAMIC_DISPATCH(Settled)(decode_scalar(storage, codes[i]), values[i], radii == nullptr ? 0.0 : radii[i],
                                         test);
  });
  return true;
}

bool settled(double got, double value, double radius, Dtype dtype) {
  if (value == 0 && radius == 0) return got == 0;
  const FloatFormat& storage = format(dtype);
  return HWY_DYNAMIC_DISPATCH(Settled)(
      got, value, radius,
      {storage.min_normal(), std::ldexp(1.0, -storage.precision), 0x1p-30, storage.min_subnormal(), last_bit(storage)});
}

void unsettled(std::span<const double> got, const reference::Ball& ball, std::int64_t first, Dtype dtype,
               std::vector<std::int64_t>& out, std::size_t most) {
  HWY_DYNAMIC_DISPATCH(Unsettled)
  (got.data(), ball.v.get() + first, radii_of(ball, first), got.size(), test_of(ball, dtype), most, out);
}

}  // namespace ampcheck::checks
#endif  // HWY_ONCE
