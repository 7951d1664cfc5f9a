// SPDX-License-Identifier: Apache-2.0
// What loops see of numbers while these are in registers, once per SIMD target: read after highway.h by files that are
// compiled so. An eye waits for what it saw last, so loops have several and join them.
#include <algorithm>

#include "reference/ball/ball_rules.h"

#if defined(AMPCHECK_REFERENCE_EYES_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef AMPCHECK_REFERENCE_EYES_INL_H
#undef AMPCHECK_REFERENCE_EYES_INL_H
#else
#define AMPCHECK_REFERENCE_EYES_INL_H
#endif

HWY_BEFORE_NAMESPACE();
namespace ampcheck::reference {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using D = hn::ScalableTag<double>;
using I = hn::ScalableTag<std::int64_t>;
using Lanes = hn::Vec<D>;
constexpr std::int64_t kMagnitude = 0x7fffffffffffffff;

#if HWY_TARGET == HWY_AVX2
/// As below, where 64-bit integers have no maximum: of doubles. An extreme of a NaN and a number is the second one: the
/// number.
template <bool numbers>
struct EyesFor {
  Lanes largest, smallest, nonzero, odd;
  HWY_INLINE EyesFor() {
    const D d;
    largest = odd = hn::Zero(d);
    smallest = nonzero = hn::Set(d, kInfinity);
  }
  HWY_INLINE void see(Lanes v) {
    const D d;
    const I i;
    const Lanes size = hn::Abs(v);
    largest = hn::Max(size, largest);
    smallest = hn::Min(size, smallest);
    nonzero = hn::Min(hn::BitCast(d, hn::Sub(hn::BitCast(i, size), hn::Set(i, 1))),
                      nonzero);  // the bits before zero's are a NaN's
    if (!numbers) odd = hn::Or(odd, hn::Sub(v, v));
  }
  HWY_INLINE void join(const EyesFor& other) {
    largest = hn::Max(largest, other.largest);
    smallest = hn::Min(smallest, other.smallest);
    nonzero = hn::Min(nonzero, other.nonzero);
    odd = hn::Or(odd, other.odd);
  }
  HWY_INLINE void report(Extremes& out) const {
    const D d;
    const I i;
    const double most = hn::GetLane(hn::MaxOfLanes(d, largest)), least = hn::GetLane(hn::MinOfLanes(d, nonzero));
    const bool finite = most < kInfinity && hn::AllTrue(i, hn::Eq(hn::BitCast(i, hn::Abs(odd)), hn::Zero(i)));
    out.finite &= finite;
    if (finite) out.largest = std::max(out.largest, most);
    if (least < kInfinity)
      out.smallest = std::min(out.smallest, __builtin_bit_cast(double, __builtin_bit_cast(std::int64_t, least) + 1));
    out.zero |= hn::GetLane(hn::MinOfLanes(d, smallest)) == 0;
  }
};
using Eyes = EyesFor<false>;
using NumbersEyes = EyesFor<true>;  ///< the same of what is not NaN
#else
/// The extremes of some lanes, on bits: as whole numbers, magnitudes order like the numbers, and NaN above infinity.
struct Eyes {
  hn::Vec<I> largest, smallest, nonzero;
  HWY_INLINE Eyes() {
    const I i;
    largest = hn::Zero(i);
    smallest = nonzero = hn::Set(i, kMagnitude);
  }
  HWY_INLINE void see(Lanes v) {
    const I i;
    const auto magnitude = hn::Set(i, kMagnitude);
    const auto size = hn::And(hn::BitCast(i, v), magnitude);
    largest = hn::Max(largest, size);
    smallest = hn::Min(smallest, size);
    nonzero = hn::Min(nonzero, hn::And(hn::Sub(size, hn::Set(i, 1)), magnitude));  // zero wraps around to the largest
  }
  HWY_INLINE void join(const Eyes& other) {
    largest = hn::Max(largest, other.largest);
    smallest = hn::Min(smallest, other.smallest);
    nonzero = hn::Min(nonzero, other.nonzero);
  }
  HWY_INLINE void report(Extremes& out) const {
    const I i;
    const std::int64_t most = hn::GetLane(hn::MaxOfLanes(i, largest)), least = hn::GetLane(hn::MinOfLanes(i, nonzero));
    const double size = __builtin_bit_cast(double, most);
    out.finite &= size < kInfinity;
    out.largest = std::max(out.largest, size < kInfinity ? size : 0.0);
    if (least != kMagnitude) out.smallest = std::min(out.smallest, __builtin_bit_cast(double, least + 1));
    out.zero |= hn::GetLane(hn::MinOfLanes(i, smallest)) == 0;
  }
};
using NumbersEyes = Eyes;
#endif

/// The largest alone, and whether all are finite: a third of the work.
struct OneEye {
  hn::Vec<I> largest;
  HWY_INLINE OneEye() { largest = hn::Zero(I()); }
  HWY_INLINE void see(Lanes v) {
    const I i;
    largest = hn::Max(largest, hn::And(hn::BitCast(i, v), hn::Set(i, kMagnitude)));
  }
  HWY_INLINE void join(const OneEye& other) { largest = hn::Max(largest, other.largest); }
  HWY_INLINE void report(Extremes& out) const {
    const double size = __builtin_bit_cast(double, hn::GetLane(hn::MaxOfLanes(I(), largest)));
    out.finite &= size < kInfinity;
    out.largest = std::max(out.largest, size < kInfinity ? size : 0.0);
  }
};

#if HWY_TARGET == HWY_AVX2
/// The same of what is not NaN.
struct NumbersEye {
  Lanes largest;
  HWY_INLINE NumbersEye() { largest = hn::Zero(D()); }
  HWY_INLINE void see(Lanes v) { largest = hn::Max(hn::Abs(v), largest); }
  HWY_INLINE void join(const NumbersEye& other) { largest = hn::Max(largest, other.largest); }
  HWY_INLINE void report(Extremes& out) const {
    const double size = hn::GetLane(hn::MaxOfLanes(D(), largest));
    out.finite &= size < kInfinity;
    out.largest = std::max(out.largest, size < kInfinity ? size : 0.0);
  }
};
#else
using NumbersEye = OneEye;
#endif

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace ampcheck::reference
HWY_AFTER_NAMESPACE();
#endif
