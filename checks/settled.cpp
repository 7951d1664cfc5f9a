// SPDX-License-Identifier: Apache-2.0
// settled() over a block, compiled once per SIMD target.
#include <cmath>

#include "checks/interval.h"

#ifndef HWY_DISABLE_PCLMUL_AES
#define HWY_DISABLE_PCLMUL_AES  // unused here; with them x86-64-v3 would count as SSSE3 and be compiled again as AVX2
#endif
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "checks/settled.cpp"
#include <hwy/foreach_target.h>  // must precede highway.h
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace ampcheck::checks {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

/// |got - value| < half the spacing of storage at got towards the value, and |value| > share |value| + near + radius.
bool Settled(const double* got, const double* value, const double* radius, std::size_t n, double min_normal, double scale, double share, double near) {
  const hn::ScalableTag<double> d;
  const hn::ScalableTag<std::int64_t> i;
  const auto exponent = hn::Set(i, 0x7ff0000000000000), one = hn::Set(i, 1);
  const auto least = hn::Set(d, min_normal), scales = hn::Set(d, scale), shares = hn::Set(d, 1 - share), nears = hn::Set(d, near);
  auto holds = hn::Eq(least, least);
  const auto see = [&](auto g, auto v, auto r) HWY_ATTR {
    const auto size = hn::Abs(g), away = hn::Abs(v);
    // Below a power of two the spacing is that of the next double towards the value.
    const auto bits = hn::BitCast(i, size), below = hn::IfThenElse(hn::RebindMask(i, hn::Lt(away, size)), hn::Sub(bits, one), bits);
    const auto clamped = hn::Max(hn::BitCast(d, below), least);
    const auto half = hn::Mul(hn::BitCast(d, hn::And(hn::BitCast(i, clamped), exponent)), scales);
    holds = hn::And(holds, hn::And(hn::Lt(hn::Abs(hn::Sub(g, v)), half), hn::Gt(hn::Mul(away, shares), hn::Add(nears, r))));
  };
  std::size_t k = 0;
  for (; k + hn::Lanes(d) <= n; k += hn::Lanes(d))
    see(hn::LoadU(d, got + k), hn::LoadU(d, value + k), radius != nullptr ? hn::LoadU(d, radius + k) : hn::Zero(d));
  for (; k < n; ++k) see(hn::Set(d, got[k]), hn::Set(d, value[k]), hn::Set(d, radius != nullptr ? radius[k] : 0.0));
  return hn::AllTrue(d, holds);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace ampcheck::checks
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ampcheck::checks {

HWY_EXPORT(Settled);

bool settled(std::span<const double> got, const reference::Ball& ball, std::int64_t first, Dtype dtype) {
  const FloatFormat& storage = format(dtype);
  const double *value = ball.v.get() + first, scale = std::ldexp(1.0, -storage.precision), slack = 1 + 0x1p-30;
  const auto all = [&](const double* radius, double share, double near) {
    return HWY_DYNAMIC_DISPATCH(Settled)(got.data(), value, radius, got.size(), storage.min_normal(), scale, share, near);
  };
  if (ball.all.relative == 0 && ball.all.absolute == 0) return all(nullptr, 0, -1);  // a radius of zero hides nothing
  // Otherwise no end of an interval may round to zero.
  if (ball.r) return all(ball.r.get() + first, ball.all.relative * slack + 0x1p-30, storage.min_subnormal());
  return all(nullptr, ball.all.relative * slack + 0x1p-30, ball.all.absolute * slack + storage.min_subnormal());
}

}  // namespace ampcheck::checks
#endif  // HWY_ONCE
