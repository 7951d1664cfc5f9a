// SPDX-License-Identifier: Apache-2.0
// Counting exponent fields.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <vector>

#include "src/amp/stats_scan.h"
#include "src/tensor.h"

namespace ampcheck {

/// Calls body(codes, n) for blocks of elements [begin, end) in row-major order, gathered where the view is not dense.
template <class Code, class Body>
void each_block(const TensorView& view, std::int64_t begin, std::int64_t end, const Body& body) {
  const bool dense = view.is_dense();
  std::array<Code, kScanBlock> gathered;
  for (std::int64_t at = begin; at < end; at += kScanBlock) {
    const std::int64_t n = std::min(kScanBlock, end - at);
    if (dense) {
      body(view.as<const Code>() + at, n);
      continue;
    }
    for (std::int64_t i = 0; i < n; ++i)
      gathered[static_cast<std::size_t>(i)] = view.as<const Code>()[view.offset(at + i)];
    body(gathered.data(), n);
  }
}

/// Any width; codes whose magnitude exceeds `max_code` (NaN of a format without infinity) are left out.
template <class Code>
class PlainHistogram {
 public:
  PlainHistogram(int fraction, int exponent, std::uint64_t max_code)
      : fraction_(fraction),
        fields_(std::size_t{1} << exponent),
        max_code_(max_code),
        magnitude_((std::uint64_t{1} << (fraction + exponent)) - 1),
        counts_(kTables * fields_) {}
  void add(const Code* x, std::int64_t n) {
    for (std::int64_t i = 0; i < n; ++i) {
      const std::uint64_t magnitude = x[i] & magnitude_;
      if (magnitude <= max_code_)
        ++counts_[(static_cast<std::size_t>(i) % kTables) * fields_ + (magnitude >> fraction_)];
    }
  }
  void add_to(std::vector<std::int64_t>& exponents) const {
    for (std::size_t table = 0; table < kTables; ++table)
      for (std::size_t field = 0; field < fields_; ++field) exponents[field] += counts_[table * fields_ + field];
  }

 private:
  static constexpr std::size_t kTables = 4;  // equal neighbours do not wait for one another
  int fraction_;
  std::size_t fields_;
  std::uint64_t max_code_, magnitude_;
  std::vector<std::int64_t> counts_;
};

/// fp16, bf16 and fp32: the fields of a block as bytes, of which the values between the smallest and the largest are
/// counted sixteen at a time: some fifteen to fifty in most blocks, which no table in memory comes up to.
template <class Code, int kFraction, int kExponent>
class FieldHistogram {
 public:
  void add(const Code* x, std::int64_t n) {
    for (std::int64_t at = 0; at < n; at += kScanBlock) add_block(x + at, std::min(kScanBlock, n - at));
  }
  void add_to(std::vector<std::int64_t>& exponents) const {
    for (std::size_t field = 0; field <= kField; ++field) exponents[field] += counts_[field];
  }
  /// Values between the smallest and the largest of these.
  static int values(const Code* x, std::int64_t n) {
    int highest = 0, lowest = static_cast<int>(kField);
    for (std::int64_t i = 0; i < n; ++i) {
      const auto field = static_cast<int>((x[i] >> kFraction) & kField);
      highest = std::max(highest, field);
      lowest = field == 0 ? lowest : std::min(lowest, field);
    }
    return highest - lowest + 1;
  }

 private:
  static constexpr std::uint32_t kField = (1u << kExponent) - 1;
  static constexpr int kMostValues = 80;        // of more, as of what is not finite beside small numbers, one by one
  static constexpr std::int64_t kFewest = 256;  // bytes, from which on many are counted at once

  void add_block(const Code* x, std::int64_t n) {
    alignas(64) std::uint8_t fields[kScanBlock];
    std::uint8_t highest = 0, lowest = 255;  // lowest: but for 0, less one
    for (std::int64_t i = 0; i < n; ++i) fields[i] = static_cast<std::uint8_t>((x[i] >> kFraction) & kField);
    for (std::int64_t i = 0; i < n; ++i) {
      const auto below = static_cast<std::uint8_t>(fields[i] - 1);
      highest = fields[i] > highest ? fields[i] : highest, lowest = below < lowest ? below : lowest;
    }
    if (highest - lowest > kMostValues || n < kFewest) {
      for (std::int64_t i = 0; i < n; ++i) ++counts_[fields[i]];
      return;
    }
    const std::int64_t whole = (n + kCountedBytes - 1) / kCountedBytes * kCountedBytes;
    std::fill(fields + n, fields + whole, std::uint8_t{0});
    std::int64_t found = 0;  // of all but 0
    for (int first = lowest + 1; first <= highest; first += 16) {
      std::int64_t of[16];
      count_sixteen(fields, whole, first, of);
      for (int v = 0; v < std::min(16, static_cast<int>(kField) + 1 - first); ++v) {
        counts_[static_cast<std::size_t>(first + v)] += of[v];
        found += of[v];
      }
    }
    counts_[0] += n - found;
  }

  std::array<std::int64_t, kField + 1> counts_{};
};

/// bf16 and fp32 with many binades in a block: one counter per pair of fields. kFold: elements before a 32-bit counter
/// could overflow.
template <class Code, std::int64_t kFold = std::int64_t{1} << 31>
class PairHistogram {
 public:
  /// Elements from which on the tables are soon paid for.
  static constexpr std::int64_t kWorthIt = 1 << 21;

  void add(const Code* x, std::int64_t n) {
    const std::int64_t whole = n - n % kPairedCodes;
    std::array<std::uint32_t, kPart / 2> indices;
    std::uint32_t* const even = tables_.data();
    std::uint32_t* const odd = even + kTable;
    for (std::int64_t at = 0; at < whole; at += kPart) {
      const std::int64_t part = std::min(kPart, whole - at);
      pair_fields(x + at, part, indices.data());
      for (std::int64_t i = 0; i < part / 2; i += kLinePairs) {
        __builtin_prefetch(x + at + 2 * i + kAhead, 0, 2);
        for (std::int64_t k = i; k < i + kLinePairs; k += 2) {
          ++even[indices[static_cast<std::size_t>(k)]];
          ++odd[indices[static_cast<std::size_t>(k + 1)]];
        }
      }
    }
    for (std::int64_t i = whole; i < n; ++i) ++single_[(x[i] >> kFraction) & kField];
    added_ += n;
    if (added_ < kFold) return;
    fold();
    std::fill(tables_.begin(), tables_.end(), 0u);
    added_ = 0;
  }
  /// Once, at the end.
  void add_to(std::vector<std::int64_t>& exponents) {
    fold();
    for (std::size_t field = 0; field <= kField; ++field) exponents[field] += single_[field];
  }

 private:
  static constexpr int kFraction = 8 * static_cast<int>(sizeof(Code)) - 9;
  static constexpr std::size_t kField = 255;
  static constexpr std::int64_t kLinePairs = 32 / static_cast<std::int64_t>(sizeof(Code));
  static constexpr std::int64_t kAhead =
      2 * kScanBlock;  // elements: into the second cache, a look at a block takes longer than to fetch one
  static constexpr std::size_t kTable = (kField + 1) * kPairRow;
  static constexpr std::int64_t kPart = 8 * kPairedCodes;

  void fold() {
    std::array<std::int64_t, kField + 1> first{};
    for (std::size_t b = 0; b <= kField; ++b) {
      const std::uint32_t* const even = tables_.data() + b * kPairRow;
      const std::uint32_t* const odd = even + kTable;
      std::int64_t second = 0;
      for (std::size_t a = 0; a <= kField; ++a) {
        const std::int64_t pairs = std::int64_t{even[a]} + odd[a];
        first[a] += pairs;
        second += pairs;
      }
      single_[b] += second;
    }
    for (std::size_t a = 0; a <= kField; ++a) single_[a] += first[a];
  }

  std::vector<std::uint32_t> tables_ =
      std::vector<std::uint32_t>(2 * kTable);  // two: equal neighbours do not wait for one another
  std::array<std::int64_t, kField + 1> single_{};
  std::int64_t added_ = 0;
};

}  // namespace ampcheck
