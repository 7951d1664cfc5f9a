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

/// Counts what is no ordinary number, which few blocks have; returns the largest finite magnitudes, by lane.
template <class T>
auto ScanTop(const T* x, std::int64_t n, const ScanLimits& limits, CodeScan& scan) {
  const hn::ScalableTag<T> d;
  const auto mask = hn::Set(d, static_cast<T>(limits.magnitude_mask)), top = hn::Set(d, static_cast<T>(limits.top)),
             max_code = hn::Set(d, static_cast<T>(limits.max_code));
  auto finite = hn::Zero(d), nans = finite, at_max = finite;
  for (std::int64_t i = 0; i < n; i += static_cast<std::int64_t>(hn::Lanes(d))) {
    const auto magnitude = hn::And(hn::LoadU(d, x + i), mask);
    finite = hn::Max(finite, hn::IfThenZeroElse(hn::Gt(magnitude, max_code), magnitude));
    nans = hn::Sub(nans, hn::VecFromMask(d, hn::Gt(magnitude, top)));
    at_max = hn::Sub(at_max, hn::VecFromMask(d, hn::Eq(magnitude, max_code)));
  }
  scan.nans += Total(d, nans);
  scan.at_max += Total(d, at_max);
  return finite;
}

/// Signed lanes: a magnitude never reaches the sign bit, and signed comparisons are what AVX2 has.
template <class T>
std::int64_t Scan(const T* x, std::int64_t n, const ScanLimits& limits, CodeScan& scan) {
  const hn::ScalableTag<T> d;
  using V = hn::Vec<decltype(d)>;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const V mask = hn::Set(d, static_cast<T>(limits.magnitude_mask)),
          max_code = hn::Set(d, static_cast<T>(limits.max_code)), zero = hn::Zero(d);
  V largest = zero, finite = zero, smallest = mask;
  std::int64_t done = 0;
  while (done + lanes <= n) {
    const std::int64_t begin = done, end = std::min(n, done + kChunk);
    V zeros = zero, negatives = zero, most = zero;
    for (; done + lanes <= end; done += lanes) {
      const V code = hn::LoadU(d, x + done);
      const V magnitude = hn::And(code, mask);
      const auto is_zero = hn::Eq(magnitude, zero);
      most = hn::Max(most, magnitude);
      smallest = hn::Min(smallest, hn::IfThenElse(is_zero, mask, magnitude));
      zeros = hn::Sub(zeros, hn::VecFromMask(d, is_zero));
      negatives = hn::Sub(negatives, hn::BroadcastSignBit(code));
    }
    scan.zeros += Total(d, zeros);
    scan.negatives += Total(d, negatives);
    largest = hn::Max(largest, most);
    if (hn::AllTrue(d, hn::Lt(most, max_code)))
      finite = hn::Max(finite, most);
    else
      finite = hn::Max(finite, ScanTop(x + begin, done - begin, limits, scan));
    if (end == n) break;
  }
  scan.largest = std::max(scan.largest, Extreme(d, largest, true));
  scan.largest_finite = std::max(scan.largest_finite, Extreme(d, finite, true));
  const std::uint64_t least = Extreme(d, smallest, false);
  if (least <= limits.max_code) scan.smallest = std::min(scan.smallest, least);
  return done;
}

using Bytes = hn::ScalableTag<std::uint8_t>;
using ByteVec = hn::Vec<Bytes>;

/// plane, a, b: their sums by bit position, in `plane`, and the carries.
ByteVec CarrySave(ByteVec& plane, ByteVec a, ByteVec b) {
  const ByteVec carries = hn::OrAnd(hn::And(a, b), plane, hn::Xor(a, b));
  plane = hn::Xor3(plane, a, b);
  return carries;
}

/// counts[b] = how many bytes have bit b of what `bit` gives, at 0, 1, ..., `vectors` - 1: by carry-save adders (Harley
/// and Seal), of which plane p holds the bits of weight 2^p. 16 vectors at a time, fewer than 512 of them.
template <class BitAt>
void CountBits(std::int64_t vectors, const BitAt& bit, std::int64_t* counts) {
  const Bytes d;
  ByteVec one = hn::Zero(d), two = one, four = one, eight = one, p16 = one, p32 = one, p64 = one, p128 = one,
          p256 = one;
  const auto ripple = [](ByteVec& plane, ByteVec& more) {
    const ByteVec carries = hn::And(plane, more);
    plane = hn::Xor(plane, more);
    more = carries;
  };
  const auto four_of = [&](std::int64_t at) {
    const ByteVec first = CarrySave(one, bit(at), bit(at + 1)), second = CarrySave(one, bit(at + 2), bit(at + 3));
    return CarrySave(two, first, second);
  };
  const auto eight_of = [&](std::int64_t at) {
    const ByteVec first = four_of(at), second = four_of(at + 4);
    return CarrySave(four, first, second);
  };
  for (std::int64_t i = 0; i < vectors; i += 16) {
    const ByteVec first = eight_of(i), second = eight_of(i + 8);
    ByteVec more = CarrySave(eight, first, second);
    ripple(p16, more);
    ripple(p32, more);
    ripple(p64, more);
    ripple(p128, more);
    ripple(p256, more);
  }
  for (int b = 0; b < 8; ++b) {
    const ByteVec mask = hn::Set(d, static_cast<std::uint8_t>(1 << b));
    const auto of = [&](ByteVec plane, int weight) {
      return static_cast<std::int64_t>(hn::CountTrue(d, hn::TestBit(plane, mask))) << weight;
    };
    counts[b] = of(one, 0) + of(two, 1) + of(four, 2) + of(eight, 3) + of(p16, 4) + of(p32, 5) + of(p64, 6);
    if (vectors >= 128) counts[b] += of(p128, 7) + of(p256, 8);
  }
}

void CountSixteen(const std::uint8_t* bytes, std::int64_t n, int first, std::int64_t* counts) {
  static_assert(kCountedBytes % (16 * hn::MaxLanes(Bytes())) == 0 && kScanBlock / 16 < 512,
                "whole rounds, and no carry is lost");
  alignas(16) static constexpr std::uint8_t kLow[16] = {1, 2, 4, 8, 16, 32, 64, 128},
                                            kHigh[16] = {0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 4, 8, 16, 32, 64, 128};
  const Bytes d;
  const ByteVec base = hn::Set(d, static_cast<std::uint8_t>(first)),
                beyond = hn::Set(d, std::uint8_t{0x70});  // 16 or more gets its top bit, which looks up 0
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  for (int half = 0; half < 2; ++half) {
    const ByteVec table = hn::LoadDup128(d, half == 0 ? kLow : kHigh);
    const auto bit = [&](std::int64_t i) {
      return hn::TableLookupBytesOr0(table, hn::SaturatedAdd(hn::Sub(hn::LoadU(d, bytes + i * lanes), base), beyond));
    };
    CountBits(n / lanes, bit, counts + 8 * half);
  }
}

using Words = hn::ScalableTag<std::uint32_t>;

struct Shifted {
  hn::Vec<Words> first, second;
};

/// `at(i)`: two vectors of codes, shifted so that the fields of the first are in the low byte, of the second in the one
/// above.
template <class At>
void PairFields(std::int64_t pairs, const At& at, std::uint32_t* indices) {
  static_assert(kPairRow == (1 << 8) + (1 << 4) && kPairedCodes % (2 * hn::MaxLanes(Words())) == 0);
  const Words d;
  const auto low = hn::Set(d, 0xffu), high = hn::Set(d, 0xff00u);
  for (std::int64_t i = 0; i < pairs; i += static_cast<std::int64_t>(hn::Lanes(d))) {
    const Shifted codes = at(i);
    const auto a = hn::And(codes.first, low), b = hn::And(codes.second, high);
    hn::StoreU(hn::Add(hn::Add(a, b), hn::ShiftRight<4>(b)), d, indices + i);
  }
}

void Pair16(const std::uint16_t* x, std::int64_t n, std::uint32_t* indices) {
  PairFields(
      n / 2,
      [&](std::int64_t i) {
        const auto two = hn::BitCast(Words(), hn::LoadU(hn::ScalableTag<std::uint16_t>(), x + 2 * i));
        return Shifted{hn::ShiftRight<7>(two), hn::ShiftRight<15>(two)};
      },
      indices);
}

void Pair32(const std::uint32_t* x, std::int64_t n, std::uint32_t* indices) {
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(Words()));
  PairFields(
      n / 2,
      [&](std::int64_t i) {
        return Shifted{hn::ShiftRight<23>(hn::LoadU(Words(), x + 2 * i)),
                       hn::ShiftRight<15>(hn::LoadU(Words(), x + 2 * i + lanes))};
      },
      indices);
}

std::int64_t Scan16(const std::int16_t* x, std::int64_t n, const ScanLimits& limits, CodeScan& scan) {
  return Scan(x, n, limits, scan);
}
std::int64_t Scan32(const std::int32_t* x, std::int64_t n, const ScanLimits& limits, CodeScan& scan) {
  return Scan(x, n, limits, scan);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace ampcheck::stats_detail
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ampcheck {
namespace stats_detail {

HWY_EXPORT(Scan16);
HWY_EXPORT(Scan32);
HWY_EXPORT(CountSixteen);
HWY_EXPORT(Pair16);
HWY_EXPORT(Pair32);

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
void count_sixteen(const std::uint8_t* bytes, std::int64_t n, int first, std::int64_t* counts) {
  HWY_DYNAMIC_DISPATCH(stats_detail::CountSixteen)(bytes, n, first, counts);
}
void pair_fields(const std::uint16_t* x, std::int64_t n, std::uint32_t* indices) {
  HWY_DYNAMIC_DISPATCH(stats_detail::Pair16)(x, n, indices);
}
void pair_fields(const std::uint32_t* x, std::int64_t n, std::uint32_t* indices) {
  HWY_DYNAMIC_DISPATCH(stats_detail::Pair32)(x, n, indices);
}

}  // namespace ampcheck
#endif  // HWY_ONCE
