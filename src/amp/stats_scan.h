// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <limits>

namespace ampcheck {

inline constexpr std::int64_t kScanBlock = 4096;     // elements that stay in the first cache between two looks at them
inline constexpr std::int64_t kCountedBytes = 1024;  // of which count_sixteen() takes whole multiples

struct ScanLimits {
  std::uint64_t magnitude_mask;
  std::uint64_t top;       ///< infinity, or the largest finite code of a format without it: NaN lies above
  std::uint64_t max_code;  ///< the largest finite one
};

/// What one look at each code finds; parts add up.
struct CodeScan {
  std::int64_t zeros = 0, nans = 0, at_max = 0, negatives = 0;
  std::uint64_t largest = 0, largest_finite = 0;                       ///< magnitudes
  std::uint64_t smallest = std::numeric_limits<std::uint64_t>::max();  ///< of the non-zero finite ones; all ones: none
};

/// Adds n codes. 16 and 32 bits by SIMD (run-time dispatch), the same on every target.
void scan_codes(const std::uint16_t* x, std::int64_t n, const ScanLimits& limits, CodeScan& scan);
void scan_codes(const std::uint32_t* x, std::int64_t n, const ScanLimits& limits, CodeScan& scan);
void scan_codes(const std::uint8_t* x, std::int64_t n, const ScanLimits& limits, CodeScan& scan);
void scan_codes(const std::uint64_t* x, std::int64_t n, const ScanLimits& limits, CodeScan& scan);

/// counts[v] = how many of n bytes are first + v modulo 256. n: a multiple of kCountedBytes, up to kScanBlock. SIMD,
/// the same on every target.
void count_sixteen(const std::uint8_t* bytes, std::int64_t n, int first, std::int64_t* counts);

inline constexpr std::int64_t kPairedCodes = 128;  // of which pair_fields() takes whole multiples
inline constexpr std::uint32_t kPairRow =
    272;  // not 256: rows that lie a power of two apart share few lines of the first cache

/// indices[i] = a + kPairRow b of the exponent fields, of 8 bits, of two codes; n / 2 of them, each code in one, which
/// with which is not said. bf16 and fp32. n: a multiple of kPairedCodes. SIMD; the pairs, not their counts by field,
/// may depend on the target.
void pair_fields(const std::uint16_t* x, std::int64_t n, std::uint32_t* indices);
void pair_fields(const std::uint32_t* x, std::int64_t n, std::uint32_t* indices);

}  // namespace ampcheck
