// SPDX-License-Identifier: Apache-2.0
// One look at every code, compiled once per SIMD target and chosen at run time.
#include "src/amp/stats_scan.h"

#include <algorithm>

#ifndef HWY_DISABLE_PCLMUL_AES
#define HWY_DISABLE_PCLMUL_AES  // unused here; with them x86-64-v3 would count as SSSE3 and be compiled again as AVX2
#endif
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/amp/stats_scan.cpp"
#include <hwy/foreach_target.h>  // must precede highway.h
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace ampcheck::stats_detail {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

constexpr std::int64_t kChunk = 16384;  // a 16-bit lane counts at most this many divided by the lanes

template <class D>
std::int64_t Total(D d, hn::Vec<D> counts) {
  HWY_ALIGN hn::TFromD<D> lanes[64 / sizeof(hn::TFromD<D>)];
  hn::Store(counts, d, lanes);
  std::int64_t total = 0;
  for (std::size_t i = 0; i < hn::Lanes(d); ++i) total += lanes[i];
  return total;
}

template <class D>
std::uint64_t Extreme(D d, hn::Vec<D> values, bool largest) {
  HWY_ALIGN hn::TFromD<D> lanes[64 / sizeof(hn::TFromD<D>)];
  hn::Store(values, d, lanes);
  hn::TFromD<D>* const end = lanes + hn::Lanes(d);
  return static_cast<std::uint64_t>(largest ? *std::max_element(lanes, end) : *std::min_element(lanes, end));
}

/// Signed lanes: a magnitude never reaches the sign bit, and signed comparisons are what AVX2 has.
template <class T>
std::int64_t Scan(const T* x, std::int64_t n, const ScanLimits& limits, CodeScan& scan) {
  const hn::ScalableTag<T> d;
  using V = hn::Vec<decltype(d)>;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const V mask = hn::Set(d, static_cast<T>(limits.magnitude_mask)), top = hn::Set(d, static_cast<T>(limits.top));
  const V max_code = hn::Set(d, static_cast<T>(limits.max_code)), zero = hn::Zero(d);
  V largest = zero, finite = zero, smallest = mask;
  std::int64_t done = 0;
  while (done + lanes <= n) {
    const std::int64_t end = std::min(n, done + kChunk);
    V zeros = zero, nans = zero, at_max = zero, negatives = zero;
    for (; done + lanes <= end; done += lanes) {
      const V code = hn::LoadU(d, x + done);
      const V magnitude = hn::And(code, mask);
      const auto is_zero = hn::Eq(magnitude, zero);
      largest = hn::Max(largest, magnitude);
      finite = hn::Max(finite, hn::IfThenZeroElse(hn::Gt(magnitude, max_code), magnitude));
      smallest = hn::Min(smallest, hn::IfThenElse(is_zero, mask, magnitude));
      zeros = hn::Sub(zeros, hn::VecFromMask(d, is_zero));
      nans = hn::Sub(nans, hn::VecFromMask(d, hn::Gt(magnitude, top)));
      at_max = hn::Sub(at_max, hn::VecFromMask(d, hn::Eq(magnitude, max_code)));
      negatives = hn::Sub(negatives, hn::BroadcastSignBit(code));
    }
    scan.zeros += Total(d, zeros);
    scan.nans += Total(d, nans);
    scan.at_max += Total(d, at_max);
    scan.negatives += Total(d, negatives);
    if (end == n) break;
  }
  scan.largest = std::max(scan.largest, Extreme(d, largest, true));
  scan.largest_finite = std::max(scan.largest_finite, Extreme(d, finite, true));
  const std::uint64_t least = Extreme(d, smallest, false);
  if (least <= limits.max_code) scan.smallest = std::min(scan.smallest, least);
  return done;
}

std::int64_t Scan16(const std::int16_t* x, std::int64_t n, const ScanLimits& limits, CodeScan& scan) { return Scan(x, n, limits, scan); }
std::int64_t Scan32(const std::int32_t* x, std::int64_t n, const ScanLimits& limits, CodeScan& scan) { return Scan(x, n, limits, scan); }

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace ampcheck::stats_detail
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ampcheck {
namespace stats_detail {

HWY_EXPORT(Scan16);
HWY_EXPORT(Scan32);

/// One at a time: the rest of a block, and the widths without SIMD here.
template <class Code>
void scan_scalar(const Code* x, std::int64_t n, const ScanLimits& limits, CodeScan& scan) {
  for (std::int64_t i = 0; i < n; ++i) {
    const std::uint64_t magnitude = x[i] & limits.magnitude_mask;
    scan.zeros += magnitude == 0;
    scan.nans += magnitude > limits.top;
    scan.at_max += magnitude == limits.max_code;
    scan.negatives += magnitude != x[i];
    scan.largest = std::max(scan.largest, magnitude);
    if (magnitude > limits.max_code) continue;
    scan.largest_finite = std::max(scan.largest_finite, magnitude);
    if (magnitude != 0) scan.smallest = std::min(scan.smallest, magnitude);
  }
}

std::int64_t scan_vectors(const std::int16_t* x, std::int64_t n, const ScanLimits& limits, CodeScan& scan) {
  return HWY_DYNAMIC_DISPATCH(Scan16)(x, n, limits, scan);
}
std::int64_t scan_vectors(const std::int32_t* x, std::int64_t n, const ScanLimits& limits, CodeScan& scan) {
  return HWY_DYNAMIC_DISPATCH(Scan32)(x, n, limits, scan);
}

}  // namespace stats_detail

void scan_codes(const std::uint16_t* x, std::int64_t n, const ScanLimits& limits, CodeScan& scan) {
  const std::int64_t done = stats_detail::scan_vectors(reinterpret_cast<const std::int16_t*>(x), n, limits, scan);
  stats_detail::scan_scalar(x + done, n - done, limits, scan);
}
void scan_codes(const std::uint32_t* x, std::int64_t n, const ScanLimits& limits, CodeScan& scan) {
  const std::int64_t done = stats_detail::scan_vectors(reinterpret_cast<const std::int32_t*>(x), n, limits, scan);
  stats_detail::scan_scalar(x + done, n - done, limits, scan);
}
void scan_codes(const std::uint8_t* x, std::int64_t n, const ScanLimits& limits, CodeScan& scan) {
  stats_detail::scan_scalar(x, n, limits, scan);
}
void scan_codes(const std::uint64_t* x, std::int64_t n, const ScanLimits& limits, CodeScan& scan) {
  stats_detail::scan_scalar(x, n, limits, scan);
}

}  // namespace ampcheck
#endif  // HWY_ONCE
